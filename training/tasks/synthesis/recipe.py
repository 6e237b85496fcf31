"""The recipe of a generator."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from caps_med.bundles import NetworkSpec
from caps_med.bundles.tasks import Task
from caps_med.errors import InvalidParameter
from caps_med.inference.label_suitability import training_label_statistics
from caps_med.inference.suitability import own_slices
from caps_med.layers.convolutional import Upsampling
from caps_med.networks import CapsPix2Pix, CapsuleNetwork, SynthesisNetwork
from caps_med.networks.capspix2pix import BorderPadding
from caps_med.wording import size_text
from training.data.samples import Source, evenly
from training.engine.precision import Precision
from training.engine.recipe import (
    Count,
    Crop,
    CropRecipe,
    Fraction,
    LearningRate,
    Weight,
    first_epochs,
)
from training.evaluation.validation import synthesis_scores
from training.tasks.synthesis.noise import has_fibres, noise_lengths
from training.transforms import Augmentation, Share

#: Nothing that would soften or add grain, which is to be learned: crops are not resampled. Their
#: intensities vary, so that styles lie closer together than those of the images.
GENTLE = Augmentation(
    rotation=0.0,
    zoom=0.0,
    shear=0.0,
    elastic=0.0,
    field=0.0,
    contrast=0.2,
    brightness=0.1,
    blur=0.0,
    noise=0.0,
)
#: Share of the epochs in which a generator that is smoothed is not, at first.
TRANSPOSED_FIRST = 0.75
#: Most held-out samples that are scored, evenly spaced: volumes have thousands of slices.
VALIDATED = 256
#: Evenly spaced training samples whose label maps' statistics the model's card keeps.
STATISTICS_OF = 200
#: Smallest crop of a discriminator: two need 4 x 4 positions at one sixteenth of its size, one more
#: than a single position in front of its last layer.
MIN_CROP = {"convolutional": 64, "capsule": 64, "patch": 24}
#: CapsPix2Pix, with capsules and without.
CAPSPIX2PIX = ("capspix2pix", "capspix2pix-plain")
#: Other defaults of pix2pix, as published (Isola et al. 2017: L1 and GAN loss 100 to 1).
PIX2PIX = {
    "learning_rate": 2e-4,
    "discriminator": "patch",
    "discriminator_width": 64,
    "adversarial_weight": 0.01,
    "structure_weight": 0.0,
    "texture_weight": 0.0,
    "style_weight": 0.0,
    "average": 0.0,
    "keep": "best",
}
#: Of SPADE (Park et al. 2019): its discriminator and adversarial loss. Style codes stand for its
#: image encoder, the losses of structure and texture for those of features.
SPADE = {
    "learning_rate": 2e-4,
    "discriminator": "patch",
    "discriminator_width": 64,
    "adversarial_loss": "hinge",
    "adversarial_weight": 0.03,
}
#: Of the ablation of CapsPix2Pix, as `benchmarks.adversarial_weight` found it; it diverges at 2e-3.
PLAIN = {"learning_rate": 5e-4}
#: Other defaults of a network.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "capspix2pix-plain": PLAIN,
    "pix2pix": PIX2PIX,
    "spade": SPADE,
}


class SynthesisRecipe(CropRecipe):
    """How a generator is trained.

    Attributes:
        network: ``capspix2pix``, its ablation ``capspix2pix-plain``, whose capsule layers are
            convolutions of the same width, or a baseline: ``pix2pix`` (Isola et al. 2017),
            ``spade`` (Park et al. 2019).
        keep: the last epoch by default; the score is that of the average style without grain,
            which measures closeness and not realism.
        atoms: of the first capsules.
        noise_source, noise_size, upsampling, padding: see `caps_med.networks.CapsPix2Pix`.
        transposed_first: share of the epochs, the first ones, in which transposed convolutions are
            not smoothed and borders are continued by zeros, as published. A generator with
            `upsampling` ``smoothed`` keeps more of the geometry for it. None is three quarters;
            with another `upsampling` or network, and with `start_from`, it is none of them.
        fibres: whether the random fields have fibres; None asks the data, see
            `training.tasks.synthesis.noise.has_fibres`.
        dropout: channel dropout after each capsule layer while training.
        discriminator: ``convolutional``, ``patch``, ``capsule`` or ``capsnet``, see
            `caps_med.networks.discriminators`.
        discriminator_width: channels of its first convolution.
        discriminator_rate: its peak learning rate; the generator's is `learning_rate`.
        adversarial_loss: ``bce``, ``lsgan`` or ``hinge``, see `training.tasks.synthesis.adversary`.
        adversarial_weight, l1_weight, structure_weight, texture_weight: of the losses, see
            `training.tasks.synthesis.losses` (published: 1, 1, 0, 0).
        geometry_weight: of the Dice loss between the label map and the segmentation of the
            synthetic image by the model `judge`.
        judge: a segmentation model, ``name`` or ``name@version``.
        style_weight: of the difference between the style code of a synthetic image and the one it
            was made from, see `training.tasks.synthesis.style`; at 0 z is drawn independently of
            the target, as published.
        style_fine: whether the style loss on grain reaches the capsules too, or the noise alone,
            which keeps the transposed convolutions from responding with a grid.
        codes: style codes of training crops that the generator keeps: new images are drawn near one
            of them. For images of several kinds, such as contrasts, between which nothing lies. 0
            draws style codes from a normal distribution. Of ``capspix2pix`` with the noise source
            ``field`` and a `style_weight`.
        free: share of each batch with a random style code; those samples have no target.
        diversity_weight: of `training.tasks.synthesis.losses.diversity_loss`.
        precision: of the convolutions of generator and discriminator. ``bfloat16`` takes less time
            where the processor has it; that images stay as good was not found
            (docs/results/training.md).
        whole_batches: whether a processor computes the crops of a batch at once, which takes less
            time, rather than one after another.
        average: decay of the running average of the weights, which is the model that is kept; 0
            keeps the weights themselves.
        augmentation: of the crops, where it differs from `GENTLE`.
    """

    epochs: Count = 24
    steps: Count = 50
    keep: Literal["best", "last"] = "last"
    batch_size: Count = 4
    crop: Crop = 128
    atoms: Count = 16
    learning_rate: LearningRate = 5e-3
    task: ClassVar[Task] = "synthesis"
    before: ClassVar[Mapping[str, Any]] = {
        "fibres": True,
        "whole_batches": False,
        "validated": VALIDATED,
        "transposed_first": 0.0,
    }
    taken_by: ClassVar[Mapping[str, Collection[str]]] = {
        **dict.fromkeys(("atoms", "noise_source", "upsampling", "padding", "dropout"), CAPSPIX2PIX),
        **dict.fromkeys(("noise_size", "fibres"), (*CAPSPIX2PIX, "spade")),
    }

    network: Literal["capspix2pix", "capspix2pix-plain", "pix2pix", "spade"] = "capspix2pix"
    noise_source: str = "field"
    noise_size: int = 64
    upsampling: Upsampling = "smoothed"
    padding: BorderPadding = "replicate"
    transposed_first: Fraction | None = None
    fibres: bool | None = None
    dropout: Fraction = 0.0
    discriminator: str = "convolutional"
    discriminator_width: Count = 32
    discriminator_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2e-4
    adversarial_loss: str = "bce"
    adversarial_weight: Weight = 0.1
    l1_weight: Weight = 1.0
    structure_weight: Weight = 0.25
    texture_weight: Weight = 2.0
    geometry_weight: Weight = 0.0
    judge: str | None = None
    style_weight: Weight = 0.15
    style_fine: bool = True
    codes: Annotated[int, Field(ge=0, le=256)] = 0
    free: Share = 0.25
    diversity_weight: Weight = 0.0
    average: Fraction = 0.99
    precision: Precision = "float32"
    whole_batches: bool = True
    augmentation: Augmentation = GENTLE

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        own = DEFAULTS.get(str(values.get("network", "")), {})
        changed = values.get("augmentation", {})
        if isinstance(changed, Mapping):
            changed = {**GENTLE.model_dump(), **changed}
        return {**own, **values, "augmentation": changed}

    @model_validator(mode="after")
    def _fits_the_discriminator(self) -> SynthesisRecipe:
        least = MIN_CROP.get(self.discriminator, 0)
        if self.crop < least:
            raise ValueError(
                f"crop {self.crop}: discriminator={self.discriminator} needs at least {least}"
            )
        return self

    @model_validator(mode="after")
    def _has_codes_to_keep(self) -> SynthesisRecipe:
        if not self.codes:
            return self
        if not self._is_capspix2pix:
            raise ValueError(f"codes: network={self.network} keeps no style codes; leave codes out")
        if self.noise_source != "field":
            raise ValueError(
                f"codes: noise_source={self.noise_source} keeps no style codes; leave codes out, "
                "or use noise_source=field"
            )
        if not self.style_weight:
            raise ValueError(
                "codes: style_weight=0 trains without style codes, so there are none to keep; "
                f"set it above 0 (the default is {type(self).model_fields['style_weight'].default})"
            )
        return self

    @model_validator(mode="after")
    def _smooths_what_was_transposed(self) -> SynthesisRecipe:
        if self.transposed_first and not self._is_capspix2pix:
            raise ValueError(
                f"transposed_first={self.transposed_first}: network={self.network} has no capsules "
                "to enlarge; leave it out"
            )
        if self.transposed_first and self.upsampling != "smoothed":
            raise ValueError(
                f"transposed_first={self.transposed_first}: upsampling={self.upsampling} is the "
                "same in all epochs; leave it out, or take upsampling=smoothed"
            )
        return self

    @property
    def epochs_before_best(self) -> int:
        """Those with transposed convolutions, where others follow."""
        return first_epochs(self.transposed_first or 0.0, self.epochs)

    def resampling(self, epoch: int) -> tuple[Upsampling, BorderPadding]:
        """How capsules are enlarged and the border is continued in an epoch, the first being 1."""
        if epoch <= self.epochs_before_best or not self._is_capspix2pix:
            return "transposed", "zeros"
        return self.upsampling, self.padding

    @property
    def casts_votes(self) -> bool:
        """Of the capsule generator."""
        return self.network == "capspix2pix"

    def smaller(self) -> Self | None:
        """See `CropRecipe.smaller`; with the noise source ``input`` the crop is the network's."""
        found = super().smaller()
        changed = found is not None and found.crop != self.crop
        return None if changed and self._has_one_size else found

    def network_spec(self, source: Source) -> NetworkSpec:
        """The generator."""
        dims = source.spatial_dims
        channels = {
            "spatial_dims": dims,
            "label_channels": source.class_channels,
            "image_channels": source.image_channels,
        }
        if self.network == "pix2pix":
            return NetworkSpec(name="Pix2Pix", arguments=channels)
        noise = {"noise_size": self.noise_size, "fibres": bool(self.fibres)}
        if self.network == "spade":
            return NetworkSpec(name="SPADE", arguments={**channels, **noise})
        arguments = {
            **channels,
            **noise,
            "noise_source": self.noise_source,
            "image_size": (self.crop,) * dims if self.noise_source == "input" else None,
            "atoms": self.atoms,
            "dropout": self.dropout,
            "upsampling": self.upsampling,
            "padding": self.padding,
            **({"codes": self.codes} if self.codes else {}),
            **({} if self.casts_votes else {"capsules": False}),
        }
        return NetworkSpec(name="CapsPix2Pix", arguments=arguments)

    @classmethod
    def values_of(cls, spec: NetworkSpec) -> Mapping[str, Any]:
        """Its name here, width and length of z; noise and upsampling may be others."""
        plain = spec.arguments.get("capsules", True) is False
        capsules = "capspix2pix-plain" if plain else "capspix2pix"
        names = {"CapsPix2Pix": capsules, "Pix2Pix": "pix2pix", "SPADE": "spade"}
        if spec.name not in names:
            return {}
        shared = {"atoms", "noise_size"} & spec.arguments.keys()
        own = {name: spec.arguments[name] for name in shared}
        return {"network": names[spec.name], **own}

    def completed(self, source: Source) -> SynthesisRecipe:
        """See `Recipe.completed`: with or without fibres, as in the data, the share of epochs with
        transposed convolutions, and the number of samples that are validated.

        Raises:
            InvalidParameter: samples are held out that a generator of one size cannot make.
        """
        self._check_sizes(source)
        values: dict[str, Any] = {}
        if self.transposed_first is None:
            smoothed = self._is_capspix2pix and self.upsampling == "smoothed"
            begins = smoothed and self.start_from is None
            values["transposed_first"] = TRANSPOSED_FIRST if begins else 0.0
        if self.fibres is None:
            values["fibres"] = has_fibres(source)
        if self.validated is None and source.validation:
            values["validated"] = self.affordable(source.validation, VALIDATED)
        return self.model_copy(update=values)

    def card_values(self, network: CapsuleNetwork, source: Source) -> Mapping[str, Any]:
        """See `Recipe.card_values`: how deep random fields are, and statistics of label maps."""
        noise = {"noise_mm": noise_lengths(source, bool(self.fibres))}
        labels = evenly(source.training, STATISTICS_OF)
        shown = (torch.from_numpy(sample["label"]).float() for sample in labels)
        volumes = source.spatial_dims == 3
        stacks: Iterable[Iterable[NDArray[np.float32]]]
        stacks = (own_slices(x.movedim(0, 1) if volumes else x[None]) for x in shown)
        if not volumes and source.spacing_mm is not None:  # slices of volumes, which have ends
            stacks = [itertools.chain.from_iterable(stacks)]
        return {
            **super().card_values(network, source),
            **(noise if self._has_fields else {}),
            "label_statistics": training_label_statistics(stacks, len(source.labels)),
        }

    def _check_sizes(self, source: Source) -> None:
        """Before an epoch is trained: whole images are held out, of which crops are trained on."""
        if not self._has_one_size:
            return
        divisor = CapsPix2Pix.divisor
        for sample in evenly(source.validation, VALIDATED):
            size = sample["label"].shape[1:]
            if any(-(-edge // divisor) * divisor != self.crop for edge in size):
                raise InvalidParameter(
                    f"noise_source=input: the generator makes images of {self.crop} pixels along "
                    f"each axis (crop), but the held-out images have {size_text(size, 'pixels')}; "
                    "resize all images to that size, or use another noise_source"
                )

    @property
    def _has_one_size(self) -> bool:
        """Whether the generator makes images of the crop's size alone."""
        return self._is_capspix2pix and self.noise_source == "input"

    @property
    def _has_fields(self) -> bool:
        if self._is_capspix2pix:
            return self.noise_source == "field"
        return self.network == "spade"

    @property
    def _is_capspix2pix(self) -> bool:
        """With or without capsules."""
        return self.network in CAPSPIX2PIX

    def held_out_scores(self, network: CapsuleNetwork, source: Source) -> Mapping[str, float]:
        """SSIM and mean absolute error inside the labelled foreground."""
        assert isinstance(network, SynthesisNetwork)  # noqa: S101 - of this recipe
        seen = evenly(source.validation, VALIDATED)
        return synthesis_scores(network, seen, source.class_channels)
