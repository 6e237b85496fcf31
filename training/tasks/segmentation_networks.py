"""The segmentation networks that can be trained, by their name in a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from caps_med.bundles import NetworkSpec

NetworkName = Literal[
    "convcaps", "convcaps-plain", "ucaps", "ucaps-plain", "onlycaps", "onlycaps-plain",
    "segcaps", "segcaps-normalized", "segcaps-plain", "unet",
]  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """One network.

    Attributes:
        name: in the registry of networks.
        rate: default peak learning rate of Adam.
        arguments: what distinguishes it from others of the same class.
        has_atoms: whether it has an argument ``atoms``.
        in_bfloat16: whether training in bfloat16 has been compared with float32 and gave the same
            Dice (docs/results/training.md, docs/results/nnunet.md); deep capsules multiply its
            rounding.
        from_small_crops: whether beginning with small crops has been compared and gave the same
            Dice in less time (there).
    """

    name: str
    rate: float
    arguments: Mapping[str, Any] = field(default_factory=dict)
    has_atoms: bool = True
    in_bfloat16: bool = False
    from_small_crops: bool = False


def name_of(spec: NetworkSpec) -> NetworkName | None:
    """The name here of a model's network; None if it is none of these."""
    same = [
        (name, choice)
        for name, choice in CHOICES.items()
        if choice.name == spec.name
        and all(spec.arguments.get(key) == choice.arguments.get(key) for key in _DISTINGUISHING)
    ]
    return same[0][0] if same else None


#: Arguments by which networks of one class have different names.
_DISTINGUISHING = ("normalize", "capsules")

CHOICES: Mapping[NetworkName, Choice] = {
    "segcaps": Choice("SegCaps", 5e-3, {"atoms": 16}),
    "segcaps-normalized": Choice("SegCaps", 5e-3, {"atoms": 16, "normalize": True}),
    "segcaps-plain": Choice("SegCaps", 2e-3, {"atoms": 16, "capsules": False}),
    "onlycaps": Choice("OnlyCaps", 2e-3),
    "onlycaps-plain": Choice("OnlyCaps", 2e-3, {"capsules": False}),
    "ucaps": Choice("UCaps", 2e-3),
    "ucaps-plain": Choice("UCaps", 2e-3, {"capsules": False}),
    "convcaps": Choice("ConvCaps", 2e-3, in_bfloat16=True, from_small_crops=True),
    "convcaps-plain": Choice(
        "ConvCaps", 2e-3, {"capsules": False}, in_bfloat16=True, from_small_crops=True
    ),
    "unet": Choice("UNet", 2e-3, has_atoms=False, in_bfloat16=True, from_small_crops=True),
}
