"""Answers in bfloat16."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import caps_med
from caps_med import samples
from caps_med.errors import InvalidParameter
from caps_med.inference.precision import Precision


def test_convolutions_run_in_the_precision_that_is_asked_for(models: Path) -> None:
    model = caps_med.load_model("tiny-segmentation", models)
    picture = np.random.default_rng(0).random((32, 40), np.float32)
    types: set[torch.dtype] = set()

    def note(_: nn.Module, __: object, maps: Tensor) -> None:
        types.add(maps.dtype)

    for layer in model.network.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            layer.register_forward_hook(note)
    whole = model.segment(picture)
    assert types == {torch.float32}
    assert not any("bfloat16" in warning for warning in whole.warnings)
    types.clear()
    half = model.segment(picture, precision="bf16")
    assert types == {torch.bfloat16}
    assert "computed in bfloat16" in half.warnings[-1]
    assert half.probabilities.array.dtype == np.float32


@pytest.mark.parametrize("name", ["brain-t1-tissue", "brain-tissue"])
def test_labels_of_a_real_slice_hardly_change(name: str) -> None:
    model = caps_med.load_model(name)
    whole, half = (model.segment(samples.T1, precision=one) for one in get_args(Precision))
    assert not np.array_equal(whole.probabilities.array, half.probabilities.array)
    assert (whole.array == half.array).mean() >= 0.998


def test_another_precision_is_refused(models: Path) -> None:
    model = caps_med.load_model("tiny-segmentation", models)
    with pytest.raises(InvalidParameter, match=r"^precision='int8': must be fp32 or bf16$"):
        model.segment(np.zeros((32, 40)), precision="int8")  # type: ignore[arg-type]
