"""GET /docs: Swagger UI, whose files this service has itself; nothing comes from another host."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from api.problems import Refusal

router = APIRouter(include_in_schema=False)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>caps_med: all calls</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<main id="swagger-ui"></main>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
#: No validator: it would send the document to another host.
_START = """SwaggerUIBundle({
  url: 'openapi.json', dom_id: '#swagger-ui', deepLinking: true, validatorUrl: null,
});
"""
#: Files of Swagger UI (Apache-2.0), which the package fastapi-offline holds, by media type.
_FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
_CACHED = {"Cache-Control": "public, max-age=86400"}


@router.get("/docs")
def docs() -> HTMLResponse:
    """The page."""
    return HTMLResponse(_PAGE, headers={"Cache-Control": "no-cache"})


@router.get("/docs/{name}")
def file(name: str) -> Response:
    """One of its files."""
    if name == "start.js":
        return Response(_START, media_type="text/javascript", headers=_CACHED)
    if name not in _FILES:
        raise Refusal("not_found", "there is no such file")
    content = files("fastapi_offline").joinpath("static", name).read_bytes()
    return Response(content, media_type=_FILES[name], headers=_CACHED)
