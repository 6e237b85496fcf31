"""The report of an evaluation, on a screen and on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import caps_med
from tests.conftest import tiny_binary, write_tiny
from tests.page.conftest import Browsers
from training.data import open_dataset
from training.evaluation.segmentation import evaluate
from training.reports.segmentation import evaluation_report

#: Width of a sheet of A4 between Chromium's margins, in pixels.
A4 = 718
OVERFLOWS = "() => [...document.querySelectorAll('.wide')].map(x => x.scrollWidth - x.clientWidth)"


@pytest.mark.parametrize(("media", "width"), [("screen", 1200), ("print", A4)])
def test_the_scores_fit(
    media: Literal["screen", "print"], width: int, discs: Path, browsers: Browsers, tmp_path: Path
) -> None:
    """Nothing of a comparison is cut off; paper cannot be scrolled."""
    for name in ("posterior-hippocampus", "posterior-hippocampus-unet"):
        write_tiny(tmp_path, name, tiny_binary("UNet", "posterior hippocampus"))
    models = [caps_med.load_model(path.name, tmp_path) for path in sorted(tmp_path.iterdir())]
    evaluation_report(tmp_path / "report.html", evaluate(open_dataset(discs), models))
    page = browsers.get().new_page(viewport={"width": width, "height": 1000})
    page.emulate_media(media=media)
    page.goto((tmp_path / "report.html").as_uri())
    overflows = page.evaluate(OVERFLOWS)
    page.close()
    assert len(overflows) == 4 and max(overflows) <= 0
