"""Capsule networks and their discriminators; `build_network` is the closed registry."""

from caps_med.networks.base import (
    CapsuleNetwork,
    LayerInfo,
    SegmentationNetwork,
    capsule_lengths,
)
from caps_med.networks.baseline import UNet
from caps_med.networks.capspix2pix import CapsPix2Pix
from caps_med.networks.discriminators import ConditionalDiscriminator
from caps_med.networks.ensemble import Ensemble
from caps_med.networks.registry import NETWORKS, build_network
from caps_med.networks.segcaps import SegCaps

__all__ = [
    "NETWORKS",
    "CapsPix2Pix",
    "CapsuleNetwork",
    "ConditionalDiscriminator",
    "Ensemble",
    "LayerInfo",
    "SegCaps",
    "SegmentationNetwork",
    "UNet",
    "build_network",
    "capsule_lengths",
]
