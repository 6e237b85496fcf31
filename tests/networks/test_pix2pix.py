"""pix2pix: the contract of every network, its size, its noise, its discriminator, its service."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.networks import PatchDiscriminator, Pix2Pix
from tests.contract.generators import SizedGeneratorContract


class TestPix2Pix(SizedGeneratorContract):
    name = "Pix2Pix"
    sizes: ClassVar = [*SizedGeneratorContract.sizes, (256, 256)]

    def test_the_noise_is_on_at_inference_and_only_its_signs_count(self) -> None:
        network = self.network()
        label, z = self.inputs(network, 1, (32, 32))
        with torch.no_grad():
            image = network(label, z)
            assert torch.equal(network(label, z.sign() * 3), image)
            assert (network(label, -z) - image).abs().max() > 1e-4


def test_parameters_of_the_published_network() -> None:
    # Without normalization, and with a bias where none follows: counted from the paper's channels.
    kernels = [(1, 64), (64, 128), (128, 256), (256, 512), *[(512, 512)] * 4]
    kernels += [(512, 512), *[(1024, 512)] * 3, (1024, 256), (512, 128), (256, 64), (128, 1)]
    weights = sum(16 * below * above for below, above in kernels)
    biases = 64 + 512 + 1
    affine = 2 * (128 + 256 + 4 * 512 + 4 * 512 + 256 + 128 + 64)
    count = sum(p.numel() for p in Pix2Pix().parameters())
    assert count == weights + biases + affine
    assert 54.3e6 < count < 54.5e6


def test_a_channel_is_dropped_where_z_is_negative_and_doubled_elsewhere() -> None:
    torch.manual_seed(0)
    network = Pix2Pix(width=8).eval()
    seen: list[Tensor] = []
    network.up[1].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    label, z = torch.ones(1, 1, 32, 32), torch.ones(1, network.noise_size)
    dropped = z.clone()
    dropped[0, [3, 60]] = -0.1  # 64 channels drop at the innermost level
    with torch.no_grad():
        network(label, z), network(label, dropped)
    kept, some = (maps[0, :64] for maps in seen)
    assert some[[3, 60]].abs().max() == 0 and kept[[3, 60]].abs().min() > 0
    others = [c for c in range(64) if c not in (3, 60)]
    assert torch.equal(some[others], kept[others])


def test_the_discriminator_scores_patches_and_sees_the_label_map() -> None:
    torch.manual_seed(0)
    judge = PatchDiscriminator(label_channels=3, image_channels=1, width=8)
    image, label = torch.rand(2, 1, 64, 128), torch.zeros(2, 3, 64, 128)
    scores = judge(image, label)
    assert scores.shape == (2, 1, 6, 14)
    assert not torch.equal(judge(image, label + 1), scores)
    torch.testing.assert_close(judge(image[:1], label[:1]), scores[:1])
    with pytest.raises(
        InvalidParameter, match=r"label has shape \(2, 1, 64, 128\): \[B, 3, H, W\]"
    ):
        judge(image, label[:, :1])


def test_the_published_discriminator_judges_patches_of_70_pixels() -> None:
    judge = PatchDiscriminator()
    assert 2.7e6 < sum(p.numel() for p in judge.parameters()) < 2.8e6
    convolutions = [m for m in judge.modules() if isinstance(m, torch.nn.Conv2d)]
    field, jump = 1, 1
    for conv in convolutions:
        field, jump = field + 3 * jump, jump * conv.stride[0]
    assert field == 70
