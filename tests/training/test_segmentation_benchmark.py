"""The out-of-domain tests of the hippocampus benchmark."""

from __future__ import annotations

import torch

from benchmarks.segmentation.shifts import SHIFTS


def test_halves_of_the_field_of_view_are_called_by_what_they_show() -> None:
    places = torch.arange(6.0).view(1, 1, 1, 6, 1).expand(1, 1, 2, 6, 3)  # rising to posterior
    anterior, posterior = (SHIFTS[f"{side} half"] for side in ("anterior", "posterior"))
    for before, behind in zip(
        anterior(places, places, 0), posterior(places, places, 0), strict=True
    ):
        assert before.max() < behind.min()
