"""Train a generator from label maps to images against a conditional discriminator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from ignite.engine import Engine, Events
from monai.engines import SupervisedTrainer
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from caps_med.bundles import ModelRepository
from caps_med.bundles.shapes import mismatches
from caps_med.errors import InvalidParameter
from caps_med.networks import (
    CapsPix2Pix,
    SegmentationNetwork,
    SynthesisNetwork,
    build_discriminator,
    one_hot,
)
from caps_med.networks.noise import FieldNoise
from caps_med.networks.noisy import NoisyGenerator
from training.data.samples import Source, evenly
from training.engine import distributed
from training.engine.initial import Weights, initial_network
from training.engine.loop import Best, TrainingRun, run_epochs, schedule
from training.engine.memory import with_less_memory
from training.engine.optimizer import adam
from training.engine.precision import computed_in
from training.engine.rate_finder import with_found_rate
from training.engine.run_folder import RunFolder, Stateful
from training.engine.sampling import DrawnDataset, EpochSampler, epoch_loader
from training.evaluation.validation import synthesis_scores
from training.tasks.synthesis.adversary import BETAS, Adversary
from training.tasks.synthesis.losses import GeneratorLoss
from training.tasks.synthesis.recipe import VALIDATED, SynthesisRecipe
from training.tasks.synthesis.step import SynthesisStep
from training.tasks.synthesis.style import Style
from training.transforms import synthesis_transforms

#: Crops that the style encoder is fitted to.
STYLE_CROPS = 256
#: Crops among which the codes that are kept are chosen, for each of them; and their edge, in crops.
CODE_CROPS, CODE_CROP = 3, 2
#: What a generator has of the codes, beside its weights.
CODES = {"noise.codes", "noise.spread"}


def train_synthesis(
    source: Source,
    recipe: SynthesisRecipe,
    folder: RunFolder,
    resume: bool,
    workers: int = 0,
    models: Path | None = None,
) -> tuple[SynthesisNetwork, Best]:
    """Run the recipe; return the generator with the weights that were kept, and their score.

    Raises:
        InvalidParameter: the recipe names something unknown.
        KeyboardInterrupt: on Ctrl-C; the last epoch's checkpoint is in the folder.
    """
    judge = _judge(recipe, source, models)
    if distributed.first():
        folder.open(recipe, resume)
    recipe = with_found_rate(
        recipe, folder, lambda r: _assembled(source, r, folder, judge, workers, models)[:2]
    )

    def attempt(current: SynthesisRecipe, on: bool) -> tuple[SynthesisNetwork, Best]:
        trainer, run, kept = _assembled(source, current, folder, judge, workers, models)
        best = run_epochs(trainer, run, on)
        return kept.eval(), best

    return with_less_memory(recipe, folder, resume, attempt)


def _assembled(
    source: Source,
    recipe: SynthesisRecipe,
    folder: RunFolder,
    judge: SegmentationNetwork | None,
    workers: int,
    models: Path | None,
) -> tuple[SupervisedTrainer, TrainingRun, SynthesisNetwork]:
    """The trainer of networks that have not learned anything, its run, and the one to keep."""
    device, crops = distributed.device(), drawn_crops(source, recipe)
    step = training_step(source, recipe, crops, judge, models)
    trainer = SupervisedTrainer(
        device=device,
        max_epochs=recipe.epochs,
        train_data_loader=epoch_loader(crops, recipe, workers),
        network=step.generator,
        optimizer=step.optimizer,
        loss_function=torch.nn.L1Loss(),
        iteration_update=step,
        decollate=False,
    )
    kept = step.generator if step.averaged is None else step.averaged.module
    assert isinstance(kept, SynthesisNetwork)  # noqa: S101 - a copy of the generator
    trainer.add_event_handler(Events.EPOCH_STARTED, _resample, step, kept)
    averaged: dict[str, Stateful] = {}
    if step.averaged is not None:
        averaged = {"generator": step.generator, "averaged": step.averaged}
    shown = evenly(source.validation, recipe.validated or VALIDATED)

    def validate() -> Mapping[str, float]:
        with computed_in(recipe.precision, device):
            return synthesis_scores(kept, shown, source.class_channels)

    run = TrainingRun(
        folder=folder,
        recipe=recipe,
        parts={
            "network": kept,
            **averaged,
            "discriminator": step.adversary.discriminator,
            "optimizer": step.optimizer,
            "discriminator_optimizer": step.adversary.optimizer,
        },
        schedules={
            "schedule": schedule(step.optimizer, recipe),
            "discriminator_schedule": schedule(step.adversary.optimizer, recipe),
        },
        validate=validate,
        names=source.training_name,
    )
    return trainer, run, kept


def _resample(engine: Engine, step: SynthesisStep, kept: SynthesisNetwork) -> None:
    """Let the generator enlarge capsules and continue borders as in the epoch that begins."""
    upsampling, padding = step.recipe.resampling(engine.state.epoch)
    step.loss.shifted = upsampling != "transposed"
    for network in (step.generator, kept):
        if isinstance(network, CapsPix2Pix):
            network.resample_by(upsampling, padding)


def drawn_crops(source: Source, recipe: SynthesisRecipe) -> DrawnDataset:
    """What a training sees."""
    transforms = synthesis_transforms(source, recipe.crop, recipe.augmentation)
    return DrawnDataset(source.training, transforms, recipe.seed)


def training_step(
    source: Source,
    recipe: SynthesisRecipe,
    crops: DrawnDataset,
    judge: SegmentationNetwork | None = None,
    models: Path | None = None,
) -> SynthesisStep:
    """The step of networks that have not learned anything."""
    device = distributed.device()
    generator = initial_network(
        recipe, source, models, lambda weights, own: _other_noise(weights, own, source)
    )
    assert isinstance(generator, SynthesisNetwork)  # noqa: S101 - of this recipe
    # runs of older versions in bfloat16, whose recipes lack `whole_batches`, had whole ones, too
    generator.whole_training_batches |= recipe.whole_batches or recipe.precision == "bfloat16"
    style = _style(crops, recipe, source, generator)
    if recipe.codes and style is not None:
        _keep_codes(generator, style, source, recipe)
    discriminator = build_discriminator(
        recipe.discriminator,
        source.class_channels,
        source.image_channels,
        recipe.discriminator_width,
    )
    return SynthesisStep(
        generator=generator,
        averaged=_averaged(generator, recipe.average),
        adversary=Adversary(
            discriminator.to(device),
            recipe.adversarial_loss,
            recipe.discriminator_rate,
            recipe.precision,
        ),
        optimizer=adam(generator, recipe.rate, betas=BETAS),
        style=style if style and style.size else None,
        loss=GeneratorLoss(
            _weights(recipe),
            judge.to(device) if judge else None,
            shifted=recipe.resampling(recipe.epochs)[0] != "transposed",
        ),
        recipe=recipe,
        device=device,
    )


def _averaged(generator: SynthesisNetwork, decay: float) -> AveragedModel | None:
    """The running average of the weights, or None if the weights themselves are kept."""
    if not decay:
        return None
    return AveragedModel(generator, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)


def _other_noise(weights: Weights, own: Weights, source: Source) -> Weights:
    """Weights of a generator for one with another noise source, or with other style codes.

    The codes are those of the new training. A new source keeps its initial weights; those of the
    first layer on its channels are zero.
    """
    weights = {name: w for name, w in weights.items() if name not in CODES}
    weights |= {name: own[name] for name in CODES & own.keys()}
    if not mismatches(weights, own):
        return weights
    kept = {name: w for name, w in weights.items() if not name.startswith("noise.")}
    kept |= {name: w for name, w in own.items() if name.startswith("noise.")}
    first, labels = "conv1.weight", source.class_channels
    if first in kept and first in own and len(kept[first]) == len(own[first]):
        kept[first] = torch.zeros_like(own[first])
        kept[first][:, :labels] = weights[first][:, :labels]
    return kept


def _weights(recipe: SynthesisRecipe) -> dict[str, float]:
    return {
        "l1": recipe.l1_weight,
        "structure": recipe.structure_weight,
        "texture": recipe.texture_weight,
        "geometry": recipe.geometry_weight,
    }


def _style(
    dataset: DrawnDataset, recipe: SynthesisRecipe, source: Source, generator: SynthesisNetwork
) -> Style | None:
    """The style encoder of the training crops, at most as long as the first half of z.

    Fitted again when a run is resumed: it follows from the seed.
    """
    if not recipe.style_weight:
        return None
    pairs = _pairs(dataset, source, STYLE_CROPS, recipe.seed)
    return Style.fit(pairs, generator.noise_size // 2)


def _keep_codes(
    generator: SynthesisNetwork, style: Style, source: Source, recipe: SynthesisRecipe
) -> None:
    """Let the generator draw near style codes of training images, of crops twice as large, so that
    they show most classes.

    Raises:
        InvalidParameter: the crops have no style that differs.
    """
    assert isinstance(generator, NoisyGenerator)  # noqa: S101 - checked by the recipe
    assert isinstance(generator.noise, FieldNoise)  # noqa: S101 - as above
    if not style.size:
        raise InvalidParameter(
            "codes: the training images all have the same style, so no codes can be kept; leave "
            "codes out"
        )
    transforms = synthesis_transforms(source, CODE_CROP * recipe.crop, recipe.augmentation)
    dataset = DrawnDataset(source.training, transforms, recipe.seed)
    pairs = _pairs(dataset, source, CODE_CROPS * recipe.codes, recipe.seed)
    generator.noise.keep_codes(style.most_complete(pairs, recipe.codes))


def _pairs(
    dataset: DrawnDataset, source: Source, count: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Image and condition of so many crops."""
    for draw in EpochSampler(len(dataset.samples), count, seed):
        crop = dataset[draw]
        yield crop["image"][None].float(), one_hot(crop["label"][None], source.class_channels)


def _judge(
    recipe: SynthesisRecipe, source: Source, models: Path | None
) -> SegmentationNetwork | None:
    """The frozen segmentation network of the geometry loss; None without that loss.

    Raises:
        InvalidParameter: the recipe names no judge, or one of other classes.
    """
    if not recipe.geometry_weight:
        return None
    if recipe.judge is None:
        raise InvalidParameter("geometry_weight: judge must name a segmentation model")
    network = ModelRepository(models).find(recipe.judge).load_network()
    if not isinstance(network, SegmentationNetwork):
        raise InvalidParameter(f"judge={recipe.judge}: a segmentation model is needed")
    if network.spatial_dims != source.spatial_dims or network.spatial_dims == 3:
        raise InvalidParameter(f"judge={recipe.judge}: geometry is judged only on slices, in 2-D")
    if network.out_channels != source.class_channels:
        raise InvalidParameter(
            f"judge={recipe.judge}: it has {network.out_channels} classes, the data have "
            f"{source.class_channels}"
        )
    return network.eval().requires_grad_(False)
