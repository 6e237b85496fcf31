"""Training of segmentation networks: capsules, their ablations, and the U-Net they rival."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import ignite.distributed as idist
import torch
from monai.engines import SupervisedTrainer
from monai.inferers import SimpleInferer
from pydantic import Field, model_validator
from torch import Tensor, nn

from caps_med.bundles import NetworkSpec
from caps_med.bundles.tasks import Task
from caps_med.errors import InvalidParameter
from caps_med.inference.suitability import own_slices, training_statistics
from caps_med.losses import CapsuleSegmentationLoss, ClassCapsuleLoss
from caps_med.losses.segmentation import Kind
from caps_med.networks import CapsuleNetwork, CapsuleUNet, SegCaps, SegmentationNetwork, one_hot
from caps_med.wording import counted
from training.data.samples import UNLABELLED, Source, evenly
from training.engine import distributed
from training.engine.collapse import RESTARTS, CollapseWatch, until_it_finds
from training.engine.initial import initial_network
from training.engine.loop import Best, TrainingRun, run_epochs, schedule
from training.engine.memory import with_less_memory
from training.engine.optimizer import adam
from training.engine.precision import (
    Bfloat16Inferer,
    Precision,
    chosen_precision,
    computed_in,
)
from training.engine.rate_finder import with_found_rate
from training.engine.recipe import MIN_CROP, Count, Crop, CropRecipe, Weight, first_epochs
from training.engine.reconstruction import ReconstructionFirst, ReconstructionStart
from training.engine.run_folder import RunFolder, Stateful
from training.engine.sampling import DrawnDataset, epoch_loader, share_of_batch
from training.evaluation.calibration import fit_temperature
from training.evaluation.validation import (
    dice_scores,
    of_labelled,
    pixel_scores,
    validation_picture,
)
from training.randomization import LabelScheme, Randomization
from training.randomization.source import RandomSource
from training.tasks.segmentation_networks import CHOICES, NetworkName, name_of
from training.transforms import Augmentation, Crops, Share, segmentation_transforms

#: Most samples that are validated after each epoch; the model's card has the score of all.
VALIDATED = 100
#: Share of the epochs that have small crops, and the least edge of these.
SMALL_CROPS, LEAST_SMALL_CROP = 0.75, 48
#: Evenly spaced training samples whose statistics the model's card keeps.
STATISTICS_OF = 200
#: Added to the seed for each restart.
_NEXT_SEED = 1009


class SegmentationRecipe(CropRecipe):
    """Settings of the training of a segmentation network.

    Attributes:
        network: see `training.tasks.segmentation_networks.CHOICES`.
        features: channels of the U-Net's five scales and last layer; None for MONAI's default.
        learning_rate: its peak; the default depends on the network.
        atoms: of the first capsules; None for the network's own (SegCaps and ConvCaps 16, OnlyCaps
            12, UCaps 4).
        variant: of SegCaps: ``r3`` or ``r1``.
        loss: see `caps_med.losses.CapsuleSegmentationLoss`.
        class_weights: for the weighted losses.
        reconstruction_weight: of the masked reconstruction's error (SegCaps).
        capsule_weight: of the margin loss of the class capsules (ConvCaps, UCaps).
        ignored: value in the label maps of `data` of what is not labelled, which is not learned;
            None if there is none.
        individuals: share of crops that are individuals sampled from tissue probabilities, where
            the data have them (`training.transforms.RandIndividuald`).
        plain: share of crops that are only cropped and flipped.
        foreground: share of crops that are centred on a labelled pixel.
        crops: where they lie, see `training.transforms.Crops`.
        augmentation: of the crops.
        reconstruct_first: share of the steps, the first ones, in which the network learns to
            reconstruct its images from perturbed ones, without labels; see
            `training.engine.reconstruction`.
        small_crops: share of the epochs, the first ones, whose crops are smaller: three quarters of
            the edge, half of the pixels. The best epoch is one of the others. None is `SMALL_CROPS`
            on a processor, for slices, crops that stay large enough and the networks of which it
            is known to give the same Dice (`training.tasks.segmentation_networks.Choice`), else 0.
        restarts: how often the training has started again, because the network answered nothing
            but background; each time with another seed and half the learning rate, and with
            normalized votes of a SegCaps.
        randomization: of label maps alone: how the images are drawn; None for labelled images.
        scheme: of label maps alone: what their ids mean.
        precision: of convolutions. None is ``bfloat16`` where a processor computes faster in it,
            for the networks of which it is known to give the same Dice
            (`training.tasks.segmentation_networks.Choice`), and on a GPU float16 with a scaled
            loss, as MONAI's trainers use it.
        whole_batches: whether a processor computes the crops of a batch at once, which takes less
            time, rather than one after another.
    """

    epochs: Count = 10
    steps: Count = 100
    batch_size: Count = 4
    crop: Crop = 128
    task: ClassVar[Task] = "segmentation"

    network: NetworkName = "convcaps"
    features: tuple[int, int, int, int, int, int] | None = None
    atoms: int | None = Field(default=None, ge=1)
    variant: Literal["r3", "r1"] = "r3"
    loss: Kind = "dice_ce"
    class_weights: tuple[Weight, ...] | None = None
    reconstruction_weight: Weight = 0.1
    capsule_weight: Weight = 0.1
    ignored: int | None = None
    individuals: Share = 0.65
    plain: Share = 0.0
    foreground: Share = 0.0
    crops: Crops = "anywhere"
    augmentation: Augmentation = Augmentation()
    reconstruct_first: float = Field(default=0.0, ge=0, le=0.9)
    small_crops: float | None = Field(default=None, ge=0, le=0.9)
    restarts: int = Field(default=0, ge=0, le=RESTARTS)
    randomization: Randomization | None = None
    scheme: LabelScheme | None = None
    precision: Precision | None = None
    whole_batches: bool = True

    before: ClassVar[Mapping[str, Any]] = {
        "precision": "float32",
        "whole_batches": False,
        "validated": VALIDATED,
        "small_crops": 0.0,
        "crops": "inside",
    }
    taken_by: ClassVar[Mapping[str, Collection[str]]] = {
        "atoms": [name for name, choice in CHOICES.items() if choice.has_atoms],
        "variant": [name for name, choice in CHOICES.items() if choice.name == "SegCaps"],
    }

    @model_validator(mode="before")
    @classmethod
    def _default_rate(cls, values: Any) -> Any:  # noqa: ANN401 - any input of a validator
        if isinstance(values, dict) and values.get("learning_rate") is None:
            network = values.get("network")  # any value, perhaps a list
            chosen = next((CHOICES[name] for name in CHOICES if name == network), None)
            return {**values, "learning_rate": (chosen or CHOICES["convcaps"]).rate}
        return values

    @model_validator(mode="after")
    def _crop_fits_network(self) -> SegmentationRecipe:
        if self.network == "unet" and self.crop % 16:
            raise ValueError(f"crop {self.crop}: unet needs a multiple of 16")
        return self

    @model_validator(mode="after")
    def _patience_outlasts_reconstruction(self) -> SegmentationRecipe:
        if self.patience and self.patience * self.steps <= self.reconstruction_steps:
            raise ValueError(
                f"patience={self.patience}: the network learns to segment only after "
                f"{self.reconstruction_steps} steps (reconstruct_first), and an epoch has "
                f"{self.steps} steps; a longer patience is needed"
            )
        return self

    @model_validator(mode="after")
    def _drawn_images_have_one_size(self) -> SegmentationRecipe:
        if self.small_crops and self.randomization:
            raise ValueError(
                f"small_crops={self.small_crops}: images that are drawn from label maps have one "
                "size; 0 is needed"
            )
        return self

    @property
    def epochs_before_best(self) -> int:
        """Those of small crops."""
        return first_epochs(self.small_crops or 0.0, self.epochs)

    @property
    def small_crop(self) -> int:
        """Edge of the small crops, a multiple of 16 as every network here takes it."""
        return min(self.crop, max(MIN_CROP, self.crop * 3 // 4 // 16 * 16))

    @property
    def reconstruction_steps(self) -> int:
        """How many steps come before those with labels."""
        return round(self.reconstruct_first * self.epochs * self.steps)

    def network_spec(self, source: Source) -> NetworkSpec:
        """Of the network that `CHOICES` names."""
        arguments: dict[str, Any] = {
            "spatial_dims": source.spatial_dims,
            "in_channels": source.image_channels,
            "out_channels": source.class_channels,
        }
        choice = CHOICES[self.network]
        arguments |= choice.arguments
        if self.atoms is not None and choice.has_atoms:
            arguments["atoms"] = self.atoms
        if choice.name == "SegCaps":
            arguments["variant"] = self.variant
            capsules = choice.arguments.get("capsules", True)
            arguments |= {"normalize": True} if self.restarts and capsules else {}
        if choice.name == "UNet" and self.features is not None:
            arguments["features"] = list(self.features)
        return NetworkSpec(name=choice.name, arguments=arguments)

    @property
    def casts_votes(self) -> bool:
        """Of all networks but the U-Net and the ablations without capsules."""
        return self.network != "unet" and CHOICES[self.network].arguments.get("capsules", True)

    def completed(self, source: Source) -> SegmentationRecipe:
        """With the precision of this processor, its share of epochs with small crops, and the
        number of samples that are validated.
        """
        values: dict[str, Any] = {}
        device = distributed.device()
        if self.small_crops is None:
            suits = CHOICES[self.network].from_small_crops and source.spatial_dims == 2
            large = self.small_crop >= LEAST_SMALL_CROP and not self.randomization
            chosen = device.type == "cpu" and suits and large
            values["small_crops"] = SMALL_CROPS if chosen else 0.0
        if self.precision is None and device.type == "cpu":
            known = CHOICES[self.network].in_bfloat16
            values["precision"] = chosen_precision(None, device, known)
        if self.validated is None and source.validation:
            values["validated"] = self.affordable(source.validation, VALIDATED)
        return self.model_copy(update=values)

    @classmethod
    def values_of(cls, spec: NetworkSpec) -> Mapping[str, Any]:
        """Its name here, width and variant."""
        found: dict[str, Any] = {"network": name_of(spec)} if name_of(spec) else {}
        shared = {"atoms", "variant", "features"} & spec.arguments.keys()
        return found | {name: spec.arguments[name] for name in shared}

    def started(self) -> SegmentationRecipe:
        """With the seed and the learning rate of the latest restart."""
        return self.model_copy(
            update={
                "seed": self.seed + _NEXT_SEED * self.restarts,
                "learning_rate": self.rate / 2**self.restarts,
            }
        )

    def held_out_scores(self, network: CapsuleNetwork, source: Source) -> Mapping[str, float]:
        """Dice of each class, and their mean."""
        assert isinstance(network, SegmentationNetwork)  # noqa: S101 - of this recipe
        return dice_scores(network, source.validation, source.labels)

    def card_values(self, network: CapsuleNetwork, source: Source) -> Mapping[str, Any]:
        """What the data are, and the statistics of the images to train on."""
        samples = evenly(source.training, STATISTICS_OF)
        shown = (torch.from_numpy(sample["image"]) for sample in samples)
        volumes = source.spatial_dims == 3
        stacks = (image.movedim(0, 1) if volumes else image[None] for image in shown)
        own = itertools.chain.from_iterable(own_slices(s, source.neighbours) for s in stacks)
        return {**source.card_values(), "statistics": training_statistics(own)}

    def calibration(self, trained: Sequence[tuple[CapsuleNetwork, Source]]) -> Mapping[str, Any]:
        """The temperature that fits pixels of the samples held out; none of an ensemble.

        Images drawn from label maps say too little about doubts on real ones.
        """
        network, source = trained[0]
        assert isinstance(network, SegmentationNetwork)  # noqa: S101 - of this recipe
        if len(trained) > 1 or isinstance(source, RandomSource) or not source.validation:
            return {}
        scores, classes = pixel_scores(network, evenly(source.validation, VALIDATED))
        return {"temperature": fit_temperature(scores, classes)} if len(classes) else {}


def train_segmentation(
    source: Source,
    recipe: SegmentationRecipe,
    folder: RunFolder,
    resume: bool,
    workers: int = 0,
    models: Path | None = None,
) -> tuple[SegmentationNetwork, Best]:
    """Train as the recipe says, and return the network with its best weights.

    Raises:
        KeyboardInterrupt: on Ctrl-C; the last epoch's checkpoint is in the folder.
        LossNotFinite: the loss became NaN or infinite; the message names the cases.
    """
    if distributed.first():
        folder.open(recipe, resume)
    recipe = with_found_rate(
        recipe,
        folder,
        lambda r: _assembled(source, _labelled(r), folder, workers, models)[:2],
    )

    def attempt(restarts: int) -> tuple[SegmentationNetwork, Best]:
        current = recipe.model_copy(update={"restarts": restarts})
        again = restarts > recipe.restarts
        if again and distributed.first():
            folder.clear()
            folder.write(current)
        return with_less_memory(
            current, folder, resume and not again,
            lambda r, on: _train(source, r, folder, on, workers, models),
        )  # fmt: skip

    network, best = until_it_finds(attempt, recipe.restarts)
    if best.score == 0 and distributed.first():
        drawn = isinstance(source, RandomSource)
        around = "" if drawn else ", centre crops on labels (--foreground 0.5)"
        found_nothing = (
            f"{recipe.network} found none of the held-out labels: train longer{around} or "
            "choose another --network"
        )
        labelled = any((sample["label"] % UNLABELLED).any() for sample in source.validation)
        no_labels = "the held-out data have no labels, so the scores mean nothing: label more"
        print(f"warning: {found_nothing if labelled else no_labels}")
    return network, best


def _train(
    source: Source,
    recipe: SegmentationRecipe,
    folder: RunFolder,
    resume: bool,
    workers: int,
    models: Path | None,
) -> tuple[SegmentationNetwork, Best]:
    recipe = recipe.started()
    trainer, run, network = _assembled(source, recipe, folder, workers, models)
    if recipe.restarts < RESTARTS:
        steps = recipe.epochs * recipe.steps
        CollapseWatch(steps, recipe.reconstruction_steps).attach(trainer)
    best = run_epochs(trainer, run, resume)
    return network.eval(), best


def _labelled(recipe: SegmentationRecipe) -> SegmentationRecipe:
    """The recipe from its first whole crops with labels on, for which the rate is to be found."""
    return recipe.model_copy(update={"reconstruct_first": 0.0, "small_crops": 0.0})


def _assembled(
    source: Source,
    recipe: SegmentationRecipe,
    folder: RunFolder,
    workers: int,
    models: Path | None,
) -> tuple[SupervisedTrainer, TrainingRun, SegmentationNetwork]:
    """The trainer of a network that has not learned anything, its run, and the network."""
    device, network = distributed.device(), initial_network(recipe, source, models)
    assert isinstance(network, SegmentationNetwork)  # noqa: S101 - of this recipe
    network.whole_training_batches |= recipe.whole_batches
    steps, loss = recipe.reconstruction_steps, loss_of(recipe, network)
    start = ReconstructionStart(network, steps) if steps else None
    trained: nn.Module = start or network
    optimizer = adam(trained, recipe.rate)
    trainer = SupervisedTrainer(
        device=device,
        max_epochs=recipe.epochs,
        train_data_loader=_batches(source, recipe, workers),
        network=distributed.wrapped(trained, all_used=start is None),
        optimizer=optimizer,
        loss_function=ReconstructionFirst(start, loss) if start else loss,
        prepare_batch=lambda batch, *_, **__: _prepare(batch, source, device, takes_mask(network)),
        decollate=False,
        **computing_in(recipe.precision, device),
    )
    if start:
        start.attach(trainer)
    shown = evenly(source.validation, recipe.validated or VALIDATED)

    def validate() -> Mapping[str, float]:
        with computed_in(recipe.precision, device):
            return dice_scores(network, shown, source.labels)

    parts: dict[str, Stateful] = {"network": network, "optimizer": optimizer}
    if start:
        parts["reconstruction"] = start.head
    run = TrainingRun(
        folder=folder,
        recipe=recipe,
        parts=parts,
        schedules={"schedule": schedule(optimizer, recipe)},
        validate=validate,
        picture=lambda: validation_picture(network, shown),
        names=source.training_name,
    )
    return trainer, run, network


def computing_in(precision: Precision | None, device: torch.device) -> Mapping[str, Any]:
    """Arguments of MONAI's trainer, by the precision of a recipe."""
    inferer = Bfloat16Inferer() if precision == "bfloat16" else SimpleInferer()
    return {"amp": device.type == "cuda" and precision is None, "inferer": inferer}


def _batches(source: Source, recipe: SegmentationRecipe, workers: int) -> Iterable[Any]:
    """The batches of an epoch: crops of labelled images, or images drawn from label maps."""
    if isinstance(source, RandomSource):
        share, rank = share_of_batch(recipe), idist.get_rank()
        return source.batches(
            recipe.crop, share, recipe.steps, recipe.seed, rank, distributed.device()
        )
    small, whole = (
        segmentation_transforms(
            source,
            crop,
            recipe.individuals,
            recipe.plain,
            recipe.augmentation,
            recipe.foreground,
            recipe.crops,
        )
        for crop in (recipe.small_crop, recipe.crop)
    )
    early = (small, recipe.epochs_before_best)
    dataset = DrawnDataset(source.training, whole, recipe.seed, early)
    return epoch_loader(dataset, recipe, workers)


def loss_of(recipe: SegmentationRecipe, network: SegmentationNetwork) -> nn.Module:
    """Of the network's answer, and of what it returns besides where it `takes_mask`.

    Raises:
        InvalidParameter: there are more or fewer class weights than classes.
    """
    weights, classes = recipe.class_weights, network.out_channels
    if recipe.loss.startswith("weighted") and weights and len(weights) != classes:
        raise InvalidParameter(
            f"class_weights: {len(weights)} for {counted(classes, 'class', 'classes')}; give one "
            "each, the background included"
        )
    loss = CapsuleSegmentationLoss(recipe.loss, recipe.class_weights, recipe.reconstruction_weight)
    below = isinstance(network, CapsuleUNet)
    return ClassCapsuleLoss(loss, recipe.capsule_weight) if below else loss


def takes_mask(network: SegmentationNetwork) -> bool:
    """Whether the network takes the true label while it is trained: those of capsules do."""
    return isinstance(network, (SegCaps, CapsuleUNet)) and bool(network.layers)


def _prepare(
    batch: Mapping[str, Tensor], source: Source, device: torch.device, masked: bool
) -> tuple[Any, ...]:
    """Image, target, and the mask where the network takes it."""
    image = batch["image"].as_subclass(Tensor).to(device)
    classes, channels = batch["label"].as_subclass(Tensor).to(device), source.class_channels
    if source.partly_labelled:
        mask, labelled = of_labelled(classes, channels)
        return image, (mask, image, labelled), (mask,) if masked else (), {}
    mask = one_hot(classes, channels)
    return image, (mask, image), (mask,) if masked else (), {}
