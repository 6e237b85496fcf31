"""The options of each task's training jobs; other packages add those of their tasks.

Written down here: recipes would import the training engine into the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from caps_med.registries import Registry

#: Options of training on crops of images with label maps.
_OF_CROPS = ("crop", "atoms", "instances", "labels", "channels", "code")


@dataclass(frozen=True)
class TaskOptions:
    """The options that not every task has.

    Attributes:
        choices: those with named values, and the values; of ``network`` the recipe's default first.
        others: names of the others.
    """

    choices: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...]

    @property
    def names(self) -> set[str]:
        """Of all of them."""
        return {*self.choices, *self.others}


#: Other packages add theirs through the entry-point group ``caps_med.job_options``.
TASKS: Registry[TaskOptions] = Registry("caps_med.job_options", {
    "segmentation": TaskOptions(
        {
            "network": (
                "convcaps", "convcaps-plain", "ucaps", "ucaps-plain", "onlycaps", "onlycaps-plain",
                "segcaps", "segcaps-normalized", "segcaps-plain", "unet",
            ),
            "dims": ("2d", "2.5d", "3d"),
            "loss": (
                "dice_ce", "dice", "dice_focal", "bce", "weighted_bce", "margin", "weighted_margin",
            ),
            "variant": ("r3", "r1"),
        },
        (*_OF_CROPS, "foreground", "plain", "individuals", "randomize", "ignore_label"),
    ),
    "synthesis": TaskOptions(
        {
            "network": ("capspix2pix", "capspix2pix-plain", "pix2pix", "spade"),
            "dims": ("2d", "3d"),
            "noise_source": (
                "field", "input", "broadcast", "broadcast_conv", "broadcast_latent", "dropout",
            ),
            "discriminator": ("convolutional", "patch", "capsule", "capsnet"),
            "adversarial_loss": ("bce", "lsgan", "hinge"),
        },
        (*_OF_CROPS, "noise_size", "adversarial_weight"),
    ),
    "classification": TaskOptions(
        {
            "network": ("efficient", "capsnet", "matrix", "cnn", "resnet"),
            "loss": ("margin", "spread", "cross_entropy"),
        },
        ("image_size", "iterations", "validation"),
    ),
})  # fmt: skip
