"""The page for people at `/`: one static file that asks the server's routes, and holds nothing of the models."""

import base64
import hashlib
import re
from functools import cache

from markupsafe import Markup

from bertsmith.insight.page import render
from bertsmith.serving.exchange import Answer, Request, html
from bertsmith.serving.request_error import RequestError

SCRIPTS = re.compile(r"<script(?: type=\"module\")?>(.*?)</script>", re.S)


async def show(request: Request, _: None) -> Answer:
    if request.model is not None:
        remedy = "Use POST, or GET /v1/models/NAME"
        raise RequestError(405, "/models/NAME", "does not answer GET", remedy, allow=["POST"])
    page, policy = content()
    return html(page, (b"content-security-policy", policy.encode()), (b"cache-control", b"no-cache"))


@cache
def content() -> tuple[str, str]:
    """The page, and what a browser may do with it: run its script, and ask this server.

    A page of /inspect is opened out of this one and inherits its policy, which therefore knows that script, too.
    """
    page = str(render("serve.html", title="bertsmith serve"))
    chart = Markup('<p class="chart"></p>')  # recurrent networks have some, and their script
    inspect = str(render("inspect.html", title="", data="", sections=[("", chart, "")]))
    pages = page, inspect, str(render("inspect_image.html", title="", data=""))
    scripts = " ".join(f"'sha256-{digest(script)}'" for one in pages for script in SCRIPTS.findall(one))
    rules = {"default-src": "'none'", "script-src": scripts, "style-src": "'unsafe-inline'", "connect-src": "'self'"}
    rules |= {"img-src": "data:"} | dict.fromkeys(("base-uri", "form-action", "frame-ancestors"), "'none'")
    return page, "; ".join(f"{name} {allowed}" for name, allowed in rules.items())


def digest(script: str) -> str:
    """The hash of a script, as policies write it."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
