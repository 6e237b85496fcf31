"""The processes that the service starts import nothing from the folder it was started in."""

from __future__ import annotations

from pathlib import Path

import pytest

from caps_med import load_model
from caps_med.client import Client
from caps_med.images import encode_image
from tests.api.jobs import PATIENCE, TINY, zipped
from tests.api.serving import serving
from tests.conftest import tiny_card, write_tiny


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """A folder of packages named like ours, and one of a dependency; each import leaves a trace."""
    folder = tmp_path / "hostile"
    for package in ("api", "training", "caps_med", "numpy"):
        (folder / package).mkdir(parents=True)
        code = f"open({str(folder / 'imported')!r}, 'a').write(__name__)\n"
        (folder / package / "__init__.py").write_text(code)
    return folder


def test_a_hostile_folder(
    hostile_folder: Path, discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    write_tiny(models, "tiny-segmentation", tiny_card("segmentation"))
    picture = next(discs.glob("images/*")).read_bytes()
    expected = encode_image(load_model("tiny-segmentation", models).segment(picture), "png")
    monkeypatch.chdir(hostile_folder)
    with serving(tmp_path, models) as server, Client(server.address) as client:
        assert client.segment("tiny-segmentation", picture) == expected
        job = client.train("segmentation", "trained-there", zipped(discs), **TINY)
        assert client.wait(job["id"], PATIENCE)["state"] == "succeeded"
    assert not (hostile_folder / "imported").exists()
