"""What the tutorials show runs, prints what they say, and makes their pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.docs.tutorial import blocks, pictures, run

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PAGES = sorted(path for path in TUTORIALS.glob("*.md") if path.stem != "index")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
#: Other processors round otherwise: numbers may differ by this part, and by this much.
RELATIVE, ABSOLUTE = 0.1, 0.02


def assert_alike(printed: str, shown: str) -> None:
    assert _NUMBER.sub("#", printed).split() == _NUMBER.sub("#", shown).split()
    found, expected = (list(map(float, _NUMBER.findall(text))) for text in (printed, shown))
    assert found == pytest.approx(expected, rel=RELATIVE, abs=ABSOLUTE)


@pytest.fixture
def denormals() -> Iterator[None]:
    """A tutorial may choose to compute without; other tests compute with them."""
    yield
    torch.set_flush_denormal(False)


@pytest.mark.slow
@pytest.mark.usefixtures("denormals")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_tutorial_runs(
    path: Path, preloaded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block, printed in run(path.read_text(), tmp_path, preloaded.parent):
        if block.printed is not None:
            assert_alike(printed, block.printed.group(2))
    for made, committed in pictures(path).items():
        assert Image.open(tmp_path / made).size == Image.open(committed).size, made


def test_there_is_a_tutorial_for_each_job() -> None:
    jobs = {"segment", "own-data", "augment", "capsules", "monai", "serve", "first-day"}
    pages = jobs | {"how-capsules-work"}
    assert {path.stem for path in PAGES} == pages
    assert all(blocks(path.read_text()) and pictures(path) for path in PAGES)


def test_outputs_are_compared_with_what_is_printed() -> None:
    (block,) = blocks("```python\nprint('Dice', 0.9)\n```\n\n```text\nDice 0.91\n```\n")
    assert block.printed is not None
    assert_alike("Dice 0.9\n", block.printed.group(2))
    with pytest.raises(AssertionError, match=r"0\.5"):
        assert_alike("Dice 0.5\n", block.printed.group(2))
    with pytest.raises(AssertionError, match="IoU"):
        assert_alike("IoU 0.9\n", block.printed.group(2))


def test_a_block_that_is_not_run_is_refused() -> None:
    with pytest.raises(ValueError, match="'console' is neither run nor the output"):
        blocks("```console\ncaps-med\n```\n")
