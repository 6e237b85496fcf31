"""One training step of a generator: what is computed in which precision, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from monai.losses import SSIMLoss
from torch import Tensor, nn
from torch.utils.data import default_collate

from caps_med.networks import Discriminator, build_discriminator
from tests.training.axons import write_axons
from training.data import Source, load_source, open_dataset
from training.engine.precision import Precision, computed_in
from training.tasks.synthesis.adversary import CRITERIA, Adversary
from training.tasks.synthesis.losses import GeneratedBatch, GeneratorLoss
from training.tasks.synthesis.recipe import SynthesisRecipe
from training.tasks.synthesis.step import SynthesisStep
from training.tasks.synthesis.train import drawn_crops, training_step

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("axons")
    return load_source(open_dataset(write_axons(folder / "data", 5, seed=1)), folder / "store")


def recipe(**changes: object) -> SynthesisRecipe:
    values = {"data": "x", "seed": 0, "batch_size": 2, "crop": 64, "atoms": 4, "noise_size": 8,
              "discriminator_width": 8, "fibres": False, **changes}  # fmt: skip
    return SynthesisRecipe.model_validate(values)


def stepped(source: Source, chosen: SynthesisRecipe) -> SynthesisStep:
    """A step's networks after it."""
    torch.manual_seed(0)
    crops = drawn_crops(source, chosen)
    step = training_step(source, chosen, crops)
    step(None, default_collate([crops[1, i, i] for i in range(chosen.batch_size)]))
    return step


@pytest.mark.parametrize("network", ["capspix2pix", "pix2pix"])
def test_convolutions_are_in_bfloat16_and_losses_are_not(
    source: Source, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    convolved: list[tuple[nn.Module, torch.dtype]] = []
    compared: set[torch.dtype] = set()
    weighed = GeneratorLoss.__call__

    def note(module: nn.Module, _: object, answer: Any) -> None:  # noqa: ANN401
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            convolved.append((module, answer.dtype))

    def loss(self: GeneratorLoss, batch: GeneratedBatch) -> Tensor:
        compared.update((batch.clean.dtype, batch.image.dtype))
        return weighed(self, batch)

    monkeypatch.setattr(GeneratorLoss, "__call__", loss)
    hook = nn.modules.module.register_module_forward_hook(note)
    step = stepped(source, recipe(network=network, precision="bfloat16"))
    hook.remove()
    for part in (step.generator, step.adversary.discriminator):
        own = set(part.modules())
        assert {dtype for module, dtype in convolved if module in own} == {torch.bfloat16}
        assert {p.dtype for p in part.parameters()} == {torch.float32}
        assert all(p.isfinite().all() for p in part.parameters())
    assert compared == {torch.float32}


def test_precision_and_batches_move_what_is_learned_little(source: Source) -> None:
    """Of pix2pix: gradients of untrained capsules are so steep that rounding turns them."""
    ways: tuple[dict[str, object], ...] = ({}, {"whole_batches": False}, {"precision": "bfloat16"})
    gradients = []
    for way in ways:
        step = stepped(source, recipe(network="pix2pix", **way))
        found = [p.grad.flatten() for p in step.generator.parameters() if p.grad is not None]
        gradients.append(torch.cat(found))
    plain, crop_by_crop, rounded = gradients
    assert not torch.equal(plain, rounded)
    assert torch.cosine_similarity(plain, rounded, dim=0) > 0.999
    assert torch.cosine_similarity(plain, crop_by_crop, dim=0) > 0.999999


def test_the_generator_is_judged_by_the_discriminator_that_has_just_learned(
    source: Source,
) -> None:
    """In bfloat16 its weights are converted anew after its update."""
    seen: list[tuple[Any, Tensor]] = []

    def note(module: nn.Module, inputs: Any, answer: Tensor) -> None:  # noqa: ANN401
        if isinstance(module, Discriminator):
            seen.append((inputs, answer.detach()))

    hook = nn.modules.module.register_module_forward_hook(note)
    step = stepped(source, recipe(precision="bfloat16", discriminator_rate=0.05))
    hook.remove()
    (inputs, answer), discriminator = seen[-1], step.adversary.discriminator
    with torch.no_grad(), computed_in("bfloat16", CPU):
        assert torch.equal(discriminator(*inputs), answer)
    assert len(seen) == 3  # real and fake, then the generator's loss


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_generators_loss_leaves_the_discriminator_alone(precision: Precision) -> None:
    discriminator = build_discriminator("patch", 1, 1, 8)
    adversary = Adversary(discriminator, "lsgan", 1e-3, precision)
    fake, condition = torch.rand(2, 1, 32, 32, requires_grad=True), torch.zeros(2, 1, 32, 32)
    adversary.generator_loss(fake, condition).backward()
    assert fake.grad is not None and fake.grad.abs().max() > 0
    assert all(p.grad is None and p.requires_grad for p in discriminator.parameters())
    adversary.update(fake, fake.flip(2), condition)
    assert all(p.grad is not None for p in discriminator.parameters())


@pytest.mark.parametrize("loss", list(CRITERIA))
def test_a_discriminator_learns_to_tell_real_images(loss: str) -> None:
    torch.manual_seed(0)
    adversary = Adversary(build_discriminator("patch", 1, 1, 8), loss, 1e-3)
    real, fake = torch.rand(2, 2, 1, 32, 32)
    condition = torch.zeros(2, 1, 32, 32)
    losses = [adversary.update(real, fake, condition) for _ in range(30)]
    with torch.no_grad():
        says_real, says_fake = (adversary.discriminator(x, condition).mean() for x in (real, fake))
    assert says_real > says_fake + 0.5 and losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("is_real", "for_discriminator", "target"),
    [(True, True, 0.9), (False, True, 0.1), (True, False, 1.0)],
)
def test_cross_entropy_has_smoothed_targets_and_a_gradient_at_any_score(
    is_real: bool, for_discriminator: bool, target: float
) -> None:
    scores = torch.tensor([-40.0, -2.2, 0.0, 3.0, 40.0], requires_grad=True)
    loss = CRITERIA["bce"](scores, is_real, for_discriminator)
    p = torch.sigmoid(scores.detach().double())
    torch.testing.assert_close(
        torch.autograd.grad(loss, scores)[0], ((p - target) / len(p)).float()
    )
    by_hand = -(target * p[1:4].log() + (1 - target) * (1 - p[1:4]).log())
    found = CRITERIA["bce"](scores[1:4], is_real, for_discriminator)
    torch.testing.assert_close(found, by_hand.mean().float())


def test_a_validation_costs_a_tenth_of_its_epoch(source: Source) -> None:
    pixels = source.validation[0]["label"].size
    steps = 40 * pixels // (64 * 64)
    chosen = recipe(steps=steps, batch_size=1).completed(source)
    assert chosen.validated == pytest.approx(0.3 * 40, abs=1)
    assert recipe(steps=10**6).completed(source).validated == 256
    assert recipe(validated=7).completed(source).validated == 7


@pytest.mark.parametrize("channels", [1, 3])
def test_the_loss_of_structure_is_that_of_each_image(channels: int) -> None:
    torch.manual_seed(0)
    clean, real = (
        torch.rand(4, channels, 32, 40, requires_grad=True),
        torch.rand(4, channels, 32, 40),
    )
    weights = {"l1": 0.0, "structure": 1.0, "texture": 0.0, "geometry": 0.0}
    batch = GeneratedBatch(clean, clean, real, real[:, :1], paired=3)
    expected = torch.stack([SSIMLoss(spatial_dims=2)(clean[i : i + 1], real[i : i + 1])
                            for i in range(3)]).mean()  # fmt: skip
    found = GeneratorLoss(weights, None)(batch)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x, clean) for x in (found, expected)))
