"""GET /: the web page, which `api/web` builds into `api/static`, or how to build it."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from caps_med import __version__

router = APIRouter(include_in_schema=False)

STATIC = Path(__file__).parents[1] / "static"

_MISSING = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>caps_med</title>
<link rel="icon" href="data:,">
</head>
<body>
<h1>caps_med {version}</h1>
<p>The service is running, but its page is not built: with Node 20.19 or newer and npm, run</p>
<pre>make page</pre>
<p>in the folder of the source code, and reload this page. The API works without it:</p>
<pre>curl -F image=@t1.nii.gz \\
     http://localhost:8000/v1/models/brain-t1-tissue/segment -o tissue.nii.gz</pre>
<p>All calls: <a href="/docs">docs</a>, <a href="/openapi.json">openapi.json</a>.
State: <a href="/healthz">healthz</a>, <a href="/readyz">readyz</a>,
<a href="/metrics">metrics</a>.</p>
</body>
</html>
"""


class _Assets(StaticFiles):
    """The page's files, whose names change with their content; none before the page is built."""

    async def check_config(self) -> None:
        """Accept a missing folder."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the whole file, whatever range is asked for (RFC 9110, section 14.2).

        Starlette's answers to ranges that are not there are no problem documents.
        """
        headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """One file, which browsers may cache for good."""
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        response.headers["Accept-Ranges"] = "none"
        return response


@router.get("/")
def page() -> HTMLResponse:
    """The page, or how to build it."""
    index = STATIC / "index.html"
    try:
        content = index.read_text(encoding="utf-8")
    except FileNotFoundError:
        content = _MISSING.format(version=__version__)
    return HTMLResponse(content, headers={"Cache-Control": "no-cache"})


def install(app: FastAPI) -> None:
    """Serve the page, and the files that it loads: compressed, for they hold a megabyte of code."""
    app.include_router(router)
    files = _Assets(directory=STATIC / "assets", check_dir=False)
    app.mount("/assets", GZipMiddleware(files, minimum_size=1024, compresslevel=6))
