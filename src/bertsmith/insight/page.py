"""Pages from the templates next to this file. Whatever a template is given is escaped, except what another rendered."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

ENVIRONMENT = Environment(
    loader=PackageLoader("bertsmith.insight"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters["formatted"] = format  # {{ 0.5 | formatted(".1%") }}, as in Python's own format strings


def render(name: str, /, **values: Any) -> Markup:
    """A template with its values, as markup that other templates take as it is."""
    return Markup(ENVIRONMENT.get_template(name).render(values))
