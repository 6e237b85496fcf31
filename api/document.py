"""The OpenAPI document; what all routes share is added here."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.access.gate import scope_of
from api.problems import MEDIA_TYPE, PROBLEMS
from api.schemas import Problem

_METHODS = ("get", "put", "post", "delete", "patch")
#: Statuses of answers that the middleware may give before a route is called.
_BEFORE = (401, 403, 429, 500, 503)
_WITH_BODY = (400, 408, 413)
#: Where the calls are: beside the document, also below a path that a proxy takes away.
_SERVERS = [{"url": "."}]
_SECURITY = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key made with `caps-med keys`.",
    },
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def install(app: FastAPI) -> None:
    """Add keys, scopes and problems to the description of every route."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(
                get_openapi(
                    title=app.title,
                    version=app.version,
                    description=app.description,
                    routes=app.routes,
                    servers=_SERVERS,
                    separate_input_output_schemas=app.separate_input_output_schemas,
                )
            )
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # as FastAPI documents it


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in (
        "HTTPValidationError",
        "ValidationError",
    ):  # FastAPI's 422 is never sent
        schemas.pop(unused, None)
    schemas["Problem"] = Problem.model_json_schema()
    for schema in schemas.values():
        _name_files(schema)
    components["securitySchemes"] = _SECURITY
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method in _METHODS:
                _complete(operation, scope_of(method.upper(), path))
    return document


def _name_files(schema: dict[str, Any]) -> None:
    """Describe an optional file as a file: a form cannot hold null."""
    for name, described in schema.get("properties", {}).items():
        files = [s for s in described.get("anyOf", []) if "contentMediaType" in s]
        if files:
            kept = {key: value for key, value in described.items() if key != "anyOf"}
            schema["properties"][name] = {**kept, **files[0]}


def _complete(operation: dict[str, Any], scope: str | None) -> None:
    responses = operation["responses"]
    expected = set(_BEFORE) if scope is not None else set()
    if "requestBody" in operation:
        expected |= set(_WITH_BODY)
    for status in sorted(expected | {int(s) for s in responses if s.isdecimal() and int(s) >= 400}):
        responses[str(status)] = _problem(status)
    if scope is not None:
        operation["security"] = [{}, {"bearer": []}, {"key": []}]
        operation["description"] = (
            f"{operation.get('description', '')}\n\nScope of the key: `{scope}`.".strip()
        )


def _problem(status: int) -> dict[str, Any]:
    codes = [f"`{code}`" for code, problem in PROBLEMS.items() if problem.status == status]
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": ", ".join(codes), "content": {MEDIA_TYPE: {"schema": schema}}}
