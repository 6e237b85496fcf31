"""Random fields in 3-D that slices cut: paths of vectors."""

from __future__ import annotations

import numpy as np
import torch

from caps_med.networks import CapsPix2Pix
from caps_med.networks.noise import FieldNoise
from caps_med.networks.noise.depth import mean_correlation, path_of

SIZE = 32


def start(seed: int = 0, size: int = SIZE) -> torch.Tensor:
    return torch.randn(1, size, generator=torch.Generator().manual_seed(seed))


def places(count: int, apart: float) -> torch.Tensor:
    return apart * torch.arange(count, dtype=torch.float64)


def test_a_path_begins_at_its_vector_and_its_places_do_not_depend_on_one_another() -> None:
    w = start()
    path = path_of(w, places(9, 0.4), 1)
    assert torch.equal(path[:1], w)
    torch.testing.assert_close(path_of(w, places(9, 0.4)[6:7], 1), path[6:7])
    assert not torch.allclose(path_of(w, places(9, 0.4), 2)[3], path[3])
    back = path_of(w, torch.tensor([-1e-9, -0.8, -3e12], dtype=torch.float64), 1)
    torch.testing.assert_close(back[:1], w)
    assert not torch.allclose(back[1], path[2])


def test_correlation_falls_as_stated_and_steps_are_small() -> None:
    apart = 0.125
    seen = torch.stack(
        [torch.nn.functional.normalize(path_of(start(s), places(200, apart), 0)) for s in range(24)]
    )
    for gap in (1, 4, 8, 12, 20):
        found = float((seen[:, gap:] * seen[:, :-gap]).sum(-1).mean())
        assert abs(found - float(mean_correlation(gap * apart))) < 0.06, gap
    assert mean_correlation([0, 1, 2, 5]).round(2).tolist() == [1, round(1 / np.pi, 2), 0, 0]


def test_slices_of_a_volume_cut_fields_of_their_own_length() -> None:
    noise = FieldNoise(2 * SIZE, 2, 4, 1, fibres=False)
    z = noise.of_slices(start(1, 2 * SIZE), places(64, 1.0), [0.5, 4.0, 16.0])
    assert z.shape == (64, noise.slice_noise_size) == (64, 4 * SIZE)
    fields = noise.fields(z, (48, 40))
    assert fields.shape == (64, 3, 48, 40)

    def correlation(number: int, gap: int) -> float:
        of = fields[:, number].flatten(1)
        pairs = zip(of[:-gap], of[gap:], strict=True)
        return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in pairs]))

    white, texture, haze = (correlation(number, 3) for number in range(3))
    assert abs(white) < 0.15
    assert 0.2 < texture < 0.6
    assert haze > 0.8


def test_a_slice_at_zero_has_the_noise_of_a_picture() -> None:
    network = CapsPix2Pix(noise_source="field", noise_size=16, atoms=2).eval()
    label = torch.zeros(1, 1, 16, 24)
    z = start(2, 16)
    slices = network.noise_of_slices(z, places(3, 2.0))
    with torch.no_grad():
        torch.testing.assert_close(network(label, slices[:1]), network(label, z))
        assert not torch.allclose(network(label, slices[1:2]), network(label, z))


def test_noise_without_fields_is_that_of_the_volume() -> None:
    network = CapsPix2Pix(noise_size=8, atoms=2)
    z = start(0, 8)
    assert torch.equal(network.noise_of_slices(z, places(3, 1.0)), z.expand(3, -1))
