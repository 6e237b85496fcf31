"""A curl command for every route in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI

ADDRESS = "http://127.0.0.1:8000"
_ID = "5f0c1e0a9d5b4c0f8a7e6d5c4b3a2910"
#: Example values of path parameters and form fields.
VALUES: Mapping[str, str] = {
    "model": "brain-t1-tissue",
    "job": _ID,
    "picture": "epoch-0001.png",
    "sample": "t1",
    "task": "segmentation",
    "name": "axons",
    "archive": "axons.zip",
    "labels": "labels.nii.gz",
    "image": "t1.nii.gz",
    "images": "a.png",
}
#: Example values of path parameters that are called like form fields.
IDENTITIES: Mapping[str, str] = {"project": _ID, "image": _ID}
_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
_GENERATOR = "brain-t1-synthesis"


def install(app: FastAPI) -> None:
    """Add the commands to the app's document as ``x-codeSamples``."""
    make = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:  # every POST looks its parameters up in it
            _add_samples(make())
        return make()

    app.openapi = document  # type: ignore[method-assign]  # as FastAPI documents it


def _add_samples(document: Mapping[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            sample = {"lang": "Shell", "source": call(document, method, path, operation)}
            operation["x-codeSamples"] = [sample]


def call(document: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]) -> str:
    """The operation as a curl command with its required fields and at least one file, if any."""
    fields = list(_fields(document, operation))
    values = {**VALUES, "model": _GENERATOR} if ("labels", True) in fields else VALUES
    words = ["curl"]
    if method not in ("get", "post") or (method == "post" and not fields):
        words += ["-X", method.upper()]
    if "application/octet-stream" in operation.get("requestBody", {}).get("content", {}):
        words += ["-H", "'If-Match: \"1\"'", "--data-binary", f"@{VALUES['labels']}"]
    if "text/event-stream" in operation["responses"].get("200", {}).get("content", {}):
        words.append("-N")
    words += [f"-F {name}={'@' * is_file}{values.get(name, '1')}" for name, is_file in fields]
    for name, value in {**values, **IDENTITIES}.items():
        path = path.replace(f"{{{name}}}", value)
    return " ".join([*words, ADDRESS + path])


def upload(document: Mapping[str, Any], path: str, address: str) -> str | None:
    """A curl command that posts a file to a path of the document; None if it takes no file.

    Args:
        address: of the path, with its parameters.
    """
    fields = list(_fields(document, document["paths"][path]["post"]))
    if not any(is_file for _, is_file in fields):
        return None
    parts = (f"-F {name}={'@FILE' if is_file else name.upper()}" for name, is_file in fields)
    return " ".join(["curl", *parts, address])


def _fields(
    document: Mapping[str, Any], operation: Mapping[str, Any]
) -> Iterator[tuple[str, bool]]:
    """The required form fields: (name, is a file). If no file is required, the image is among them,
    or else the first file.
    """
    content = operation.get("requestBody", {}).get("content", {})
    form: dict[str, Any] = next((content[kind] for kind in _FORMS if kind in content), {})
    reference = form.get("schema", {}).get("$ref", "")
    schema = document["components"]["schemas"].get(reference.rpartition("/")[2], {})
    fields = [(name, _is_file(field)) for name, field in schema.get("properties", {}).items()]
    required = schema.get("required", ())
    yield from (field for field in fields if field[0] in required)
    if not any(is_file for name, is_file in fields if name in required):
        files = [field for field in fields if field[1]]
        yield from sorted(files, key=lambda field: field[0] != "image")[:1]


def _is_file(field: Mapping[str, Any]) -> bool:
    """Whether a field is a file, a list of files, or either of them or nothing."""
    kinds = [*field.get("anyOf", ()), *([field["items"]] if "items" in field else [])]
    binary = "contentMediaType" in field or field.get("format") == "binary"
    return binary or any(map(_is_file, kinds))
