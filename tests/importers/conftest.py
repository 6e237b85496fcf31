"""Upstream files with every tensor filled by a formula, written once for all tests here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers.reference import Weights, fill
from tests.importers.upstream import generator_shapes, segcaps_shapes, write_keras, write_torch


@pytest.fixture(scope="session")
def segcaps_weights() -> Weights:
    return fill(segcaps_shapes())


@pytest.fixture(scope="session")
def segcaps_file(segcaps_weights: Weights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_keras(tmp_path_factory.mktemp("segcaps") / "weights.hdf5", segcaps_weights)


@pytest.fixture(scope="session")
def generator_weights() -> Weights:
    return fill(generator_shapes("broadcast_conv", noise_size=16))


@pytest.fixture(scope="session")
def generator_file(generator_weights: Weights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_torch(tmp_path_factory.mktemp("capspix2pix") / "ModelG.pt", generator_weights)
