from __future__ import annotations

import numpy as np
import pytest

from caps_med.networks import SegCaps
from training.data.samples import Sample
from training.evaluation.validation import validation_picture

EDGE = 16


def flat_samples(count: int) -> list[Sample]:
    """Samples of one grey each: 0.1, 0.2, ..."""
    return [
        {
            "image": np.full((1, EDGE, EDGE), 0.1 * (i + 1), np.float32),
            "label": np.zeros((1, EDGE, EDGE), np.uint8),
        }
        for i in range(count)
    ]


@pytest.mark.parametrize(("held_out", "shown"), [(1, 1), (2, 2), (3, 3), (4, 4), (9, 4)])
def test_every_held_out_sample_is_shown_once(held_out: int, shown: int) -> None:
    network = SegCaps(spatial_dims=2, in_channels=1, out_channels=1, atoms=4)
    drawn = validation_picture(network, flat_samples(held_out))
    assert drawn.shape == (3, 3 * EDGE, shown * EDGE)
    greys = [round(float(grey), 3) for grey in drawn[0, 0, ::EDGE]]
    assert len(set(greys)) == shown, greys
