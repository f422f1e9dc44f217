"""A server without a key answers under names of its own machine only, so that no page of another site can ask it."""

import pytest
from serving.local import LocalServer, local

from bertsmith.inference.model import Model

OURS = ("localhost", "LocalHost:8000", "127.0.0.1:8000", "127.8.0.1", "[::1]:8000", "[::1]", "::1")
OTHERS = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example:80", "localhost.evil.example", "10.0.0.1", "")


@pytest.mark.parametrize(("host", "status"), [*((name, 200) for name in OURS), *((name, 403) for name in OTHERS)])
def test_without_a_key_a_name_must_be_of_this_machine(server: LocalServer, host: str, status: int) -> None:
    for method, path in (("POST", "/embed"), ("GET", "/v1/models"), ("GET", "/")):
        body = {"inputs": "x", "model": "plain"} if method == "POST" else None
        assert server.ask(method, path, body, host=host, origin=f"http://{host}").status == status


def test_the_name_of_the_server_opens_it(models: dict[str, Model]) -> None:
    with local({"plain": models["plain"]}, host="box.home") as server:
        assert server.ask("GET", "/v1/models", host="box.home:8000").status == 200
        line = (
            "host: 'evil.example' is no name of this server. Ask for 127.0.0.1 or localhost, or give the server a key"
        )
        assert server.ask("GET", "/v1/models", host="evil.example:80").json["error"]["message"].startswith(line)


def test_with_a_key_any_name_will_do(models: dict[str, Model]) -> None:
    with local({"plain": models["plain"]}, key="a-long-secret") as server:
        reply = server.ask("GET", "/v1/models", host="models.example", authorization="Bearer a-long-secret")
        assert reply.status == 200
