"""Unit routing: depthwise votes against a loop over pairs of types, lengths, recomputation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from caps_med.errors import InvalidParameter
from caps_med.layers import UnitCapsule, recompute_votes
from caps_med.layers.unit import soft_squash, unit
from caps_med.native.processor import has_long_vectors


def layer(**arguments: object) -> UnitCapsule:
    torch.manual_seed(0)
    shape = {"in_types": 3, "in_atoms": 4, "out_types": 2, "out_atoms": 5}
    return UnitCapsule(2, **shape, **arguments).double()  # type: ignore[arg-type]


@pytest.mark.parametrize("transposed", [False, True])
def test_votes_and_their_sum_are_those_of_a_loop(transposed: bool) -> None:
    edge = 4 if transposed else 5
    one = layer(kernel_size=edge, stride=2, transposed=transposed, squash="none")
    capsules = torch.randn(2, 3, 4, 6, 8, dtype=torch.float64)
    votes = one.votes(capsules)
    convolve = F.conv_transpose2d if transposed else F.conv2d
    weights = one.depthwise.weight.unflatten(0, (3, -1)).flatten(1, 2)  # [I, J, *kernel]
    for i in range(3):
        for j in range(2):
            kernel = weights[i, j][None, None]
            maps = [
                convolve(capsules[:, i, a, None], kernel, stride=2, padding=(edge - 1) // 2)
                for a in range(4)
            ]
            vote = torch.einsum("bchw,ac->bahw", torch.cat(maps, 1), one.matrices[i, j])
            length = (vote.square().sum(1, keepdim=True) + 1e-6).sqrt()
            torch.testing.assert_close(votes[:, i, j], vote / length)
    size = (12, 16) if transposed else (3, 4)
    assert votes.shape == (2, 3, 2, 5, *size)
    torch.testing.assert_close(one(capsules), votes.sum(1) + one.bias[..., None, None])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("spatial_dims", "size"), [(2, (24, 40)), (3, (6, 8, 10))])
@pytest.mark.parametrize("out_types", [1, 2, 5, 12])
def test_votes_in_parts_add_up_to_the_same_answers(
    spatial_dims: int, size: tuple[int, ...], transposed: bool, out_types: int
) -> None:
    torch.manual_seed(0)
    edge, stride = (4, 2) if transposed else (5, 1)
    one = UnitCapsule(spatial_dims, 24, 6, out_types, 6, edge, stride, transposed)
    capsules = torch.randn(1, 24, 6, *size)
    with torch.no_grad():
        found, expected = one(capsules), soft_squash(one.votes(capsules).sum(1) + 0.1)
    # without AVX-512, PyTorch adds up fewer output types in another order
    tolerance = 0.0 if has_long_vectors() else 1e-6
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    assert one.types_at_once == (1 if not transposed else {1: 1, 2: 2, 5: 3, 12: 2}[out_types])


def test_unit_and_soft_squash_keep_the_direction() -> None:
    capsules = torch.randn(1, 3, 4, 2, 2, dtype=torch.float64)
    lengths = capsules.norm(dim=2)
    for squashed, expected in (
        (unit(capsules, 2), torch.ones_like(lengths)),
        (soft_squash(capsules), lengths.softmax(1)),
    ):
        torch.testing.assert_close(squashed.norm(dim=2), expected, atol=1e-4, rtol=0)
        cosine = F.cosine_similarity(squashed, capsules, dim=2)
        torch.testing.assert_close(cosine, torch.ones_like(cosine))


def test_recomputed_votes_give_the_same_gradients() -> None:
    one, capsules = layer(), torch.randn(1, 3, 4, 8, 8, dtype=torch.float64)
    found = []
    for again in (False, True):
        recompute_votes(one, again)
        one.zero_grad()
        one(capsules).square()[:, 0].sum().backward()
        found.append([p.grad.clone() for p in one.parameters() if p.grad is not None])
    assert len(found[0]) == 3
    for kept, recomputed in zip(*found, strict=True):
        assert torch.equal(kept, recomputed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_long_votes_have_length_one(dtype: torch.dtype) -> None:
    """Their squared lengths are beyond float16; those of CT images in Hounsfield units are."""
    one, capsules = layer().float(), 3000 * torch.randn(1, 3, 4, 8, 8)
    with torch.no_grad():
        expected = one(capsules)
        with torch.autocast("cpu", dtype):
            lengths = one.votes(capsules).float().norm(dim=3)
            found = one(capsules)
    torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=0, atol=0.01)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05)


@pytest.mark.parametrize("shape", [(1, 3, 8, 8), (1, 4, 8, 8, 8), (1, 3, 7, 8, 8)])
def test_capsules_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidParameter, match=r"\[B, 3, 8, \*S\] with 2 spatial axes is needed"):
        UnitCapsule(2, 3, 8, 4, 6)(torch.rand(shape))


def test_a_wrong_squash_is_named() -> None:
    with pytest.raises(InvalidParameter, match="squash='hard': must be one of"):
        layer(squash="hard")
