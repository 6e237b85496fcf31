"""The noise of synthesized volumes: a field in 3-D, not one picture in every slice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from caps_med.bundles import ModelCard, NetworkSpec, WeightsProvenance
from caps_med.images import MedicalImage, one_slice
from caps_med.inference.provenance import AnswerProvenance
from caps_med.inference.synthesizer import Synthesizer
from caps_med.networks import CapsPix2Pix
from caps_med.networks.noise import FieldNoise

Volume = NDArray[np.float32]
ARGUMENTS = {"noise_source": "field", "noise_size": 64, "atoms": 2, "fibres": False,
             "upsampling": "linear", "padding": "replicate"}  # fmt: skip
#: Axial slices in display orientation: [slice, row, column] runs to S, P and L.
AXES = np.array([[0, 0, -1.0, 0], [0, -1.0, 0, 0], [1.0, 0, 0, 0], [0, 0, 0, 1]])


@pytest.fixture(scope="module")
def synthesizer() -> Synthesizer:
    torch.manual_seed(0)
    card = ModelCard(
        task="synthesis",
        network=NetworkSpec(name="CapsPix2Pix", arguments=ARGUMENTS),
        labels={0: "background", 1: "brain"},
        spacing_mm=(1.0, 1.0),
        noise_mm=(0.5, 4.0, 16.0),
        provenance=WeightsProvenance(command="pytest", data="none"),
    )
    network = CapsPix2Pix(**ARGUMENTS).eval()  # type: ignore[arg-type]
    noise = network.noise
    assert isinstance(noise, FieldNoise)
    with torch.no_grad():  # grain of two scales, as a trained generator has
        noise.fc_grain.bias.copy_(torch.tensor([-1.0, 0.0, -6.0]))
    source = AnswerProvenance("tiny", 1, "", "none")
    return Synthesizer(network, card, source)


def labels(depth: int, apart: float = 1.0, at: tuple[int, ...] = (0, 0, 0)) -> MedicalImage:
    affine = AXES @ np.diag([apart, 1, 1, 1])
    affine[:3, 3] = at
    ids = np.ones((1, depth, 40, 48), np.uint8)
    return MedicalImage(ids, affine=affine, kind="labels", format="nifti")


def correlation(volume: Volume, gap: int) -> float:
    pairs = zip(volume[:-gap], volume[gap:], strict=True)
    return float(np.mean([np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in pairs]))


def stripes(volume: Volume) -> float:
    """How alike the columns across the slices are: 1 where every slice has the same noise."""
    centred = volume - volume.mean()
    return float(centred.mean(0).var() / centred.var())


def test_slices_differ_as_far_as_they_are_apart(synthesizer: Synthesizer) -> None:
    found = synthesizer(labels(24), seed=3).array[0]
    assert 0.2 < correlation(found, 1) < 0.95
    assert correlation(found, 8) < 0.35
    assert stripes(found) < 0.35


def test_one_noise_in_every_slice_would_be_stripes(
    synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        synthesizer, "slice_noise", lambda labels, z: z.expand(len(labels.slices), -1)
    )
    assert stripes(synthesizer(labels(8), seed=3).array[0]) > 0.99


def test_positions_count_in_millimetres(synthesizer: Synthesizer) -> None:
    fine, coarse = (synthesizer(labels(*of), seed=3).array[0] for of in ((9, 1.0), (3, 4.0)))
    np.testing.assert_allclose(fine[::4], coarse, atol=1e-5)


def test_an_older_card_has_fields_alike_in_all_directions(synthesizer: Synthesizer) -> None:
    card = synthesizer.card.model_copy(update={"noise_mm": None})
    older = Synthesizer(synthesizer.network, card, synthesizer.provenance)
    found = older(labels(24), seed=3).array[0]
    within = correlation(np.moveaxis(found, 1, 0), 2)
    assert abs(correlation(found, 2) - within) < 0.2


def test_a_slice_alone_is_that_of_its_volume(synthesizer: Synthesizer) -> None:
    """As it is shown on the page, and where features are looked at."""
    volume = labels(7, 2.0, at=(5, -3, -40))
    found = synthesizer(volume, seed=3).array[0]
    for at in (0, 4):
        alone = synthesizer(one_slice(volume, at), seed=3).array[0]
        np.testing.assert_allclose(alone[0], found[at], atol=1e-5)
    assert not np.allclose(found[0], found[4], atol=1e-2)
    picture = MedicalImage(volume.array[:, 0], kind="labels", format="png")
    noise = synthesizer.noise(3)
    assert torch.equal(synthesizer.slice_noise(synthesizer.prepare(picture), noise), noise)
