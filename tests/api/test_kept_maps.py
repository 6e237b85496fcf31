"""Every face has the answer keep only the maps that somebody asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from caps_med.cli import commands
from caps_med.images import MedicalImage
from caps_med.inference import assembling

SEGMENT = "/v1/models/tiny-segmentation/segment"


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    (tmp_path / "scans").mkdir()
    voxels = np.random.default_rng(0).uniform(0, 1, (1, 16, 24, 3)).astype(np.float32)
    MedicalImage(voxels, np.diag([-1.0, -1, 1, 1])).save(tmp_path / "scans" / "scan.nii.gz")
    return tmp_path / "scans" / "scan.nii.gz"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The maps that each answer to a volume has kept."""
    found: list[set[str]] = []

    def watched(*arguments: Any) -> assembling.Assembled:  # noqa: ANN401
        answer = assembling.assembled(*arguments)
        if answer.labels.ndim == 4:  # a volume's; the service warms up with pictures
            found.append(set(answer.maps))
        return answer

    monkeypatch.setattr("caps_med.inference.segmenter.assembled", watched)
    return found


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], set()),
        (["--entropy", "--disagreement"], {"entropy"}),
        (["--probabilities"], {"probabilities"}),
        (["--refine", "em", "--confidence"], {"probabilities"}),
    ],
)
@pytest.mark.parametrize("folder", [False, True])
def test_the_command(
    options: Sequence[str],
    wanted: set[str],
    folder: bool,
    scan: Path,
    models: Path,
    kept: list[set[str]],
) -> None:
    out = scan.parents[1] / "out"
    given = ["-i", scan.parent, "-o", out] if folder else [scan, "--out", f"{out}.nii.gz"]
    asked = ["segment", "--model", "tiny-segmentation", "--models", models, *given, *options]
    result = CliRunner().invoke(commands.app, list(map(str, asked)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert kept == [wanted]


@pytest.mark.parametrize(
    ("form", "data", "wanted"),
    [
        ("nifti", {}, set()),
        ("json", {"disagreement": "true"}, set()),
        ("zip", {"map": "entropy"}, {"entropy"}),
        ("nifti", {"map": "disagreement"}, set()),
        ("nifti", {"map": "probabilities"}, {"probabilities"}),
        ("npz", {"map": "confidence"}, {"probabilities"}),
        ("json", {"refine": "em"}, {"probabilities"}),
    ],
)
def test_the_service(
    form: str,
    data: dict[str, str],
    wanted: set[str],
    scan: Path,
    client: TestClient,
    kept: list[set[str]],
) -> None:
    files = {"image": (scan.name, scan.read_bytes())}
    answer = client.post(f"{SEGMENT}?format={form}", files=files, data=data)
    assert answer.status_code == 200, answer.text
    assert kept == [wanted]
