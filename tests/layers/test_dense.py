from __future__ import annotations

import numpy as np
import pytest
import torch

from caps_med.errors import InvalidParameter
from caps_med.layers import DenseCapsules


def test_equals_the_procedure_in_numpy() -> None:
    """Sabour et al. 2017, equations 1 to 3 and procedure 1, in float64."""
    torch.manual_seed(0)
    layer = DenseCapsules(5, 3, out_types=2, out_atoms=4).double()
    capsules = torch.rand(2, 5, 3, dtype=torch.float64)
    weight = layer.weight.detach().numpy()
    for sample, found in zip(capsules.numpy(), layer(capsules).detach().numpy(), strict=True):
        votes = np.einsum("ijao,io->ija", weight, sample)
        logits = np.zeros((5, 2))
        for _ in range(3):
            coupling = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            total = (coupling[..., None] * votes).sum(0)
            length = np.linalg.norm(total, axis=1, keepdims=True)
            capsule = total * length / (1 + length**2)
            logits = logits + (votes * capsule).sum(2)
        np.testing.assert_allclose(found, capsule, rtol=1e-6)


def test_lengths_start_neither_empty_nor_full() -> None:
    torch.manual_seed(0)
    layer = DenseCapsules(256, 8, 4, 16)
    poses = torch.nn.functional.normalize(torch.randn(3, 256, 8), dim=2) * 0.7
    lengths = layer(poses).norm(dim=2)
    assert 0.2 < float(lengths.mean()) < 0.95


def test_another_number_of_capsules_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"\(1, 4, 8\): \[B, 3, 8\] is needed"):
        DenseCapsules(3, 8, 2, 4)(torch.rand(1, 4, 8))
