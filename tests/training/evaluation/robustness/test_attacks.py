"""Attacks against a float64 reference of their own, and what they must never do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.networks import (
    CapsNet,
    ClassificationNetwork,
    ConvolutionalClassifier,
    EfficientCapsNet,
    MatrixCapsules,
)
from training.evaluation.robustness.attacks import (
    BIM,
    FGSM,
    FGSM_TARGETED,
    PGD,
    Attack,
    cross_entropy,
    difference_of_scores,
    gradient,
    wanted_classes,
)
from training.evaluation.robustness.predictions import logits_of, predicted
from training.evaluation.robustness.votes import routes, votes_count_alike

Floats = NDArray[np.float64]
EDGE, CLASSES = 4, 3


class Linear(ConvolutionalClassifier):
    """Logits W x."""

    def __init__(self, weights: Floats) -> None:
        super().__init__(1, CLASSES, (EDGE, EDGE), "softmax")
        self.weights = torch.nn.Parameter(torch.from_numpy(weights))

    def logits(self, image: Tensor) -> Tensor:
        return image.flatten(1) @ self.weights.T


def linear(scale: float = 1.0) -> tuple[Linear, Floats]:
    weights = scale * np.random.default_rng(1).standard_normal((CLASSES, EDGE * EDGE))
    return Linear(weights).eval(), weights


def pictures(count: int = 8) -> Tensor:
    return torch.from_numpy(np.random.default_rng(2).random((count, 1, EDGE, EDGE)))


def reference(
    weights: Floats, clean: Floats, classes: NDArray[np.int64], epsilon: float, attack: Attack
) -> Floats:
    """Cross-entropy attacks on a linear network from the picture itself, after the papers."""
    flat = clean.reshape(len(clean), -1)
    changed = flat.copy()
    for _ in range(attack.steps):
        logits = changed @ weights.T
        powers = np.exp(logits - logits.max(1, keepdims=True))
        slope = (powers / powers.sum(1, keepdims=True) - np.eye(CLASSES)[classes]) @ weights
        way = -slope if attack.targeted else slope
        changed = changed + attack.step * epsilon * np.sign(way)
        changed = np.minimum(np.maximum(changed, flat - epsilon), flat + epsilon)
        changed = np.minimum(np.maximum(changed, 0), 1)
    return changed.reshape(clean.shape)


@pytest.mark.parametrize("attack", [FGSM, FGSM_TARGETED, BIM], ids=["fgsm", "targeted", "bim"])
@pytest.mark.parametrize("epsilon", [0.02, 0.3])
def test_attacks_equal_a_float64_reference(attack: Attack, epsilon: float) -> None:
    (network, weights), clean = linear(), pictures()
    classes = torch.arange(8) % CLASSES
    found = attack(network, clean, classes, epsilon)
    wanted = reference(weights, clean.numpy(), classes.numpy(), epsilon, attack)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-12)


@pytest.mark.parametrize("loss", [cross_entropy, difference_of_scores])
def test_gradients_are_those_of_finite_differences(loss: object) -> None:
    torch.manual_seed(0)
    network = CapsNet(1, CLASSES, (20, 20), width=2, primary_types=1).double().eval()
    clean = torch.rand(1, 1, 20, 20, dtype=torch.float64)
    found = gradient(network, clean, torch.tensor([1]), loss)  # type: ignore[arg-type]
    step = torch.zeros_like(clean)
    step[0, 0, 7, 9] = 1e-6
    with torch.no_grad():
        up, down = (
            loss(logits_of(network, clean + sign * step), torch.tensor([1]))  # type: ignore[operator]
            for sign in (1, -1)
        )
    assert found[0, 0, 7, 9].item() == pytest.approx((up - down).item() / 2e-6, rel=1e-4)


@pytest.mark.parametrize("attack", [FGSM, BIM, PGD, Attack(steps=3, step=2.0, restarts=1)])
def test_pictures_stay_in_the_ball_and_in_the_range(attack: Attack) -> None:
    network, _ = linear()
    clean = pictures(70)
    found = attack(network, clean, torch.zeros(70).long(), 0.1, torch.Generator().manual_seed(0))
    assert (found - clean).abs().max() <= 0.1 + 1e-12
    assert found.min() >= 0 and found.max() <= 1 and not found.equal(clean)


def test_a_targeted_attack_gets_the_class_it_wants() -> None:
    (network, _), clean = linear(), pictures()
    classes = predicted(network, clean)
    wanted = wanted_classes(classes, CLASSES, torch.Generator().manual_seed(0))
    assert not (wanted == classes).any()
    found = FGSM_TARGETED(network, clean, wanted, 1.0)
    assert FGSM_TARGETED.succeeds(network, found, wanted).all()
    assert predicted(network, found).equal(wanted)


def test_hidden_gradients_stop_fgsm_but_not_a_restart_on_scores() -> None:
    """A network so sure of itself that its softmax rounds to 1 has no cross-entropy to climb."""
    network, _ = linear(scale=1e6)
    clean = pictures()
    classes = predicted(network, clean)
    assert not gradient(network, clean, classes).any()
    assert FGSM(network, clean, classes, 0.5).equal(clean)
    once = Attack(PGD.steps, PGD.step, restarts=1)
    generator = torch.Generator().manual_seed(0)
    before = once.succeeds(network, once(network, clean, classes, 0.5, generator), classes)
    after = PGD.succeeds(network, PGD(network, clean, classes, 0.5, generator), classes)
    assert after.all() and before.double().mean() < 1


def networks() -> list[ClassificationNetwork]:
    torch.manual_seed(0)
    return [
        CapsNet(1, CLASSES, (20, 20), width=4, primary_types=2),
        MatrixCapsules(1, CLASSES, (20, 20), width=4, types=(2, 2, 2)),
        EfficientCapsNet(1, CLASSES, (20, 20)),
    ]


@pytest.mark.parametrize("network", networks(), ids=lambda n: type(n).__name__)
def test_the_bypass_changes_gradients_and_leaves_no_trace(network: ClassificationNetwork) -> None:
    network.eval()
    clean, classes = torch.rand(2, 1, 20, 20), torch.tensor([0, 1])
    before = logits_of(network, clean)
    through = gradient(network, clean, classes)
    around = gradient(network, clean, classes, bypass=votes_count_alike)
    assert routes(network) and not torch.allclose(through, around, rtol=1e-3)
    with pytest.raises(KeyError, match="anything"), votes_count_alike(network):
        assert not routes(network)
        raise KeyError("anything")
    assert routes(network) and logits_of(network, clean).equal(before)


def test_the_bypass_is_routing_of_one_iteration() -> None:
    for iterations, size in ((3, 20), (1, 20)):
        torch.manual_seed(3)
        network = CapsNet(1, 3, (size, size), iterations, width=4, primary_types=2).eval()
        clean = torch.rand(2, 1, size, size, generator=torch.Generator().manual_seed(0))
        with votes_count_alike(network):
            found = logits_of(network, clean)
        if iterations == 3:
            first = found
    torch.testing.assert_close(first, found)
    assert not routes(network), "one iteration has nothing to bypass"
