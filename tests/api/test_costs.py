"""Estimates of memory, held against what calls really take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import caps_med
from api.engine import costs
from api.processes import import_path
from caps_med.bundles import NetworkSpec
from caps_med.images import MedicalImage
from tests.conftest import tiny_card, write_tiny

MIB = 2**20


@pytest.fixture(scope="module")
def peaks() -> Iterator[subprocess.Popen[str]]:
    """A process that forks one for each call, see `tests.api.peaks`."""
    environment = {**import_path(), "OMP_NUM_THREADS": "1", "PATH": "",
                   "MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "tests.api.peaks"], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield process


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
@pytest.mark.parametrize(
    "asked",
    [
        "brain-t1-tissue segment 256 256",
        "brain-t1-tissue segment 96 96 24",
        "brain-t1-tissue segment 1 1 200",
        "brain-t1-tissue segment 560 640",
        "brain-t1-tissue segment 776 776",  # in small windows
        "brain-t1-tissue labels 256 256 100",
        "brain-t1-tissue entropy 256 256 60",
        "brain-t1-tissue coarse 256 256 60",
        "brain-t1-tissue floats 160 160 120",
        "brain-tissue labels 160 160 60",
        "brain-tissue refined 96 96",
        "brain-tissue refined 96 96 24",
        "brain-tissue refined-labels 104 104 104",
        "brain-t1-tissue uncertainty 256 256",
        "brain-t1-tissue disagree 96 96 60",
        "brain-t1-tissue averaged 256 256",
        "hippocampus averaged 40 48 40",
        "brain-t1-tissue features 256 256",
        "brain-t1-tissue features 1 3000",
        "brain-t1-tissue manipulate 256 256",
        "brain-t1-synthesis synthesize 256 256",
        "digits inspect 28 28",
        "brain-t1-synthesis interpolate 192 192",
    ],
)
def test_an_estimate_covers_what_a_call_takes(
    asked: str, peaks: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Not less than that, and not so much more that what fits would be refused.

    Blocks above 128 KiB are returned to the system when they are freed, so a peak is what is in
    use: how much of the freed memory lies in gaps of the heap differs from run to run (by a factor
    of three for the stack of slices).
    """
    small, refined = asked.startswith("digits"), "refined" in asked
    times, further = (2.5, 32) if refined else (4, 32 if small else 64)
    taken, estimated = measured(peaks, tmp_path, asked)
    assert taken <= estimated <= times * taken + further * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
@pytest.mark.parametrize(
    ("name", "arguments", "times"),
    [
        ("OnlyCaps", {"out_channels": 3}, 2),
        ("OnlyCaps", {"out_channels": 3, "capsules": False}, 3),
        ("ConvCaps", {"out_channels": 3, "atoms": 48}, 2.5),
        ("UCaps", {"out_channels": 3}, 2.5),
        ("UNet", {"out_channels": 3, "features": [128, 128, 256, 256, 256, 128]}, 3),
    ],
)
def test_an_estimate_follows_the_width_of_a_network(
    name: str, arguments: dict[str, object], times: float, peaks: subprocess.Popen[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Votes by unit routing are larger than all capsules; convolutions are not listed."""
    card = tiny_card("segmentation", network=NetworkSpec(name=name, arguments=arguments))
    write_tiny(tmp_path, "wide", card)
    taken, estimated = measured(peaks, tmp_path, "wide labels 128 128 1")
    assert taken <= estimated <= times * taken + 32 * MIB


def test_any_network_tells_what_its_decoder_holds(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only those that inherit `CapsuleUNet`."""
    model = caps_med.load_model("tiny-segmentation", models)
    picture = MedicalImage(np.zeros((1, 64, 64), np.float32))
    kind = type(model.network)
    monkeypatch.setattr(kind, "lists_all", False)
    estimates = []
    for channels in (2_000.0, 5_000.0):
        monkeypatch.setattr(kind, "decoder_channels", channels)
        estimates.append(costs.segmentation(model, picture).working)
    assert estimates[1] - estimates[0] >= 4 * 3_000 * 64 * 64


def measured(peaks: subprocess.Popen[str], models: Path, asked: str) -> tuple[int, int]:
    """What a call takes, in a process of its own, as peaks count from its start; its estimate."""
    assert peaks.stdin is not None and peaks.stdout is not None
    peaks.stdin.write(f"{models} {asked}\n")
    peaks.stdin.flush()
    taken, held, working = map(int, peaks.stdout.readline().split())
    return taken, held + working


def test_a_class_costs_no_memory_of_the_volume_s_size_unless_its_probabilities_are_kept() -> None:
    """A CT of 512 x 512 x 400 with four classes, whose process takes 1.95 GB at its peak."""
    model = caps_med.load_model("brain-t1-tissue")
    ct = MedicalImage(np.broadcast_to(np.int16(0), (1, 512, 512, 400)), np.eye(4))
    labels, kept = costs.segmentation(model, ct, maps=()), costs.segmentation(model, ct)
    voxels = 512 * 512 * 400
    assert 1.5e9 < labels.held + labels.working < 3.5e9
    assert kept.held - labels.held >= 4 * 4 * voxels
