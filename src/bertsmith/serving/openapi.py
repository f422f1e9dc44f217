"""openapi.json: the routes and the bodies of requests, for people, generators of clients and fuzzers."""

import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

import bertsmith
from bertsmith.serving.exchange import Route

PARAMETERS = {"/v1/models/": "model", "/pipeline/": "task"}  # routes that end with a value
ERRORS = {
    "400": "The body is not JSON",
    "401": "The key is missing or wrong",
    "404": "There is no such model",
    "405": "The route does not answer this method",
    "408": "The body has not arrived in time",
    "413": "The request is larger than a limit",
    "415": "The route takes JSON only",
    "422": "A value is wrong, or the model cannot do this",
    "429": "The server is busy: try again after Retry-After seconds",
    "503": "The models are being loaded",
}


def document(routes: Sequence[Route], public: Collection[tuple[str, str]]) -> dict[str, Any]:
    """The description of a server with these routes."""
    bodies = [route.body for route in routes if route.body is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    by_body = dict(zip(bodies, schemas, strict=True))
    paths: dict[str, Any] = {}
    for route in routes:
        name = PARAMETERS.get(route.path)
        path = route.path + (f"{{{name}}}" if name else "")
        paths.setdefault(path, {})[route.method.lower()] = _operation(
            route, name, by_body, (route.method, route.path) in public
        )
    error = {"type": "object", "properties": {"error": {}, "error_type": {"type": "string"}}, "required": ["error"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "bertsmith serve", "version": bertsmith.__version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": error},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, parameter: str | None, bodies: dict[Any, Any], public: bool) -> dict[str, Any]:
    wrong = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": "_".join(
            [route.method.lower(), *re.findall(r"\w+", route.path), *([parameter] if parameter else [])]
        ),
        "security": [{}] if public else [{}, {"key": []}],
        "responses": {
            "200": {"description": "The answer", "content": {route.answers: {"schema": {}}}},
            **{status: {"description": why, "content": wrong} for status, why in ERRORS.items()},
        },
    }
    if parameter:
        operation["parameters"] = [{"name": parameter, "in": "path", "required": True, "schema": {"type": "string"}}]
    if route.body is not None:
        content: dict[str, Any] = {"application/json": {"schema": bodies[route.body]}}
        if route.images:
            file = {"type": "string", "format": "binary"}
            content["image/*"] = {"schema": file}
            content["multipart/form-data"] = {"schema": {"type": "object", "properties": {"image": file}}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation
