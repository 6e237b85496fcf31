from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from caps_med.networks import SegCaps, SegmentationNetwork, UNet
from training.data.samples import UNLABELLED, Sample
from training.evaluation.validation import dice_scores, pixel_scores, validation_picture

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


class Bright(SegmentationNetwork):
    """What is above 0.5 is foreground; where images are continued by zeros, so are these."""

    spatial_dims, in_channels, out_channels, divisor = 2, 1, 1, 8

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, image: Tensor) -> Tensor:
        edge = torch.nn.functional.max_pool2d(-image, 3, 1, 1)  # the darkest neighbour
        return self.weight * ((image > 0.5) | (edge > -0.1)).float()


def test_validation_continues_an_image_as_inference_does_and_scores_it_alone() -> None:
    bright = np.full((1, 11, 13), 0.4, np.float32)
    bright[:, 2:5, 3:6] = 0.9
    sample: Sample = {"image": bright, "label": (bright > 0.5).astype(np.uint8)}
    assert dice_scores(Bright(), [sample], {0: "background", 1: "bright"})["score"] == 1


def test_a_u_net_is_validated_on_images_of_sixteen_pixels() -> None:
    network = UNet(out_channels=2, features=(4, 4, 4, 4, 4, 4))
    assert "score" in dice_scores(network, flat_samples(1), {0: "background", 1: "bright"})


def test_only_what_is_labelled_is_validated() -> None:
    image = np.full((1, 16, 16), 0.4, np.float32)
    image[:, :, 8:] = 0.9
    label = np.full((1, 16, 16), UNLABELLED, np.uint8)
    label[:, :4] = image[:, :4] > 0.5
    sample: Sample = {"image": image, "label": label}
    names = {0: "background", 1: "bright"}
    assert dice_scores(Bright(), [sample], names)["score"] == 1
    scores, classes = pixel_scores(Bright(), [sample])
    assert len(scores) == 4 * 16 and classes.tolist() == scores[:, 0].round().tolist()
    assert sorted(set(classes)) == [0, 1]
    label[:, 0, 8:] = 0  # now an eighth of the pixels is wrong
    assert dice_scores(Bright(), [sample], names)["score"] == pytest.approx(48 / 56)
