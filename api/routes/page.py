"""GET /: a plain page that says what is here."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from api.routes.common import EngineDependency
from caps_med import __version__
from caps_med.bundles import Bundle

router = APIRouter(include_in_schema=False)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>caps_med</title>
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; font: 16px/1.6 system-ui, sans-serif }}
body {{ max-width: 46rem; margin: 3rem auto; padding: 0 1rem }}
pre {{ overflow-x: auto; padding: 1rem; border: 1px solid #8886; border-radius: 6px }}
td, th {{ text-align: left; padding: .2rem 1rem .2rem 0 }}
</style>
</head>
<body>
<h1>caps_med {version}</h1>
<p>Medical image-to-image with capsule networks. Research only; not a medical device.</p>
<h2>Models</h2>
<table><tr><th>model</th><th>task</th><th>labels</th></tr>{rows}</table>
<h2>Try it</h2>
<pre>curl -F image=@t1.nii.gz \\
     http://localhost:8000/v1/models/brain-t1-tissue/segment -o tissue.nii.gz
curl -F labels=@tissue.nii.gz -F seed=7 \\
     http://localhost:8000/v1/models/brain-t1-synthesis/synthesize -o synthetic.nii.gz
curl -F image=@t1.nii.gz \\
     "http://localhost:8000/v1/models/brain-t1-tissue/features?format=png" -o capsules.png</pre>
<p>All calls: <a href="/openapi.json">openapi.json</a>.
State: <a href="/healthz">healthz</a>, <a href="/readyz">readyz</a>,
<a href="/metrics">metrics</a>.</p>
</body>
</html>
"""


@router.get("/")
async def page(engine: EngineDependency) -> HTMLResponse:
    """What this service is, its models, and a first call."""
    bundles = await engine.run("list", engine.repository.list)
    return HTMLResponse(_PAGE.format(version=__version__, rows="".join(map(_row, bundles))))


def _row(bundle: Bundle) -> str:
    card = bundle.card
    cells = (bundle.reference, card.task, ", ".join(card.labels.values()))
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
