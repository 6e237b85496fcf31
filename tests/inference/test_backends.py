"""The built-in models give the same answer whatever routes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
import torch

import caps_med
from caps_med import samples
from caps_med.routing import eager, numba_backend, plain, use_backend

MODULES = {"numba": numba_backend, "eager": eager, "plain": plain}
BACKENDS = ["numba", "eager"]


@contextmanager
def only(backend: str) -> Iterator[None]:
    """Route by this backend; fails if it did not run, or if another one did."""
    spies = {}
    for name, module in MODULES.items():
        function = f"route_{name}"
        spies[name] = patch.object(module, function, wraps=getattr(module, function))
    calls = {name: spy.start() for name, spy in spies.items()}
    try:
        with use_backend(backend):
            yield
    finally:
        for spy in spies.values():
            spy.stop()
    assert [name for name, spy in calls.items() if spy.called] == [backend]


@pytest.mark.parametrize("backend", BACKENDS)
def test_labels_of_a_real_slice_are_those_of_the_plain_path(backend: str) -> None:
    model = caps_med.load_model("brain-t1-tissue")
    with only("plain"):
        expected = model.segment(samples.T1)
    with only(backend):
        found = model.segment(samples.T1)
    assert (found.array == expected.array).mean() >= 0.999
    difference = np.abs(found.probabilities.array - expected.probabilities.array)
    assert difference.max() < 1e-4


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_synthetic_slice_is_that_of_the_plain_path(backend: str) -> None:
    model = caps_med.load_model("brain-t1-synthesis")
    with only("plain"):
        expected = model.synthesize(samples.TISSUE, seed=3)
    with only(backend):
        found = model.synthesize(samples.TISSUE, seed=3)
    assert np.abs(found.array - expected.array).max() < 1e-4 * expected.array.max()


def test_bfloat16_labels_agree_nearly_everywhere() -> None:
    """Convolutions in bfloat16, routing in float32."""
    model = caps_med.load_model("brain-t1-tissue")
    expected = model.segment(samples.T1).array
    with torch.autocast("cpu", torch.bfloat16):
        found = model.segment(samples.T1).array
    assert (found == expected).mean() > 0.99
