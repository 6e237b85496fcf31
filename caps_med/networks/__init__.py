"""Capsule networks and their baselines; `build_network` is the closed registry."""

from caps_med.networks.base import (
    CapsuleNetwork,
    LayerInfo,
    SegmentationNetwork,
    SynthesisNetwork,
    capsule_lengths,
)
from caps_med.networks.baseline import UNet
from caps_med.networks.capsnet import CapsNet
from caps_med.networks.capspix2pix import CapsPix2Pix
from caps_med.networks.classes import one_hot, predicted_classes, with_temperature
from caps_med.networks.classification import ClassificationNetwork
from caps_med.networks.content import around_content
from caps_med.networks.convcaps import ConvCaps
from caps_med.networks.convolutional import ConvNet, ConvolutionalClassifier, ResNet
from caps_med.networks.devices import on_device
from caps_med.networks.discriminators import (
    CapsNetDiscriminator,
    CapsuleDiscriminator,
    ConditionalDiscriminator,
    Discriminator,
    PatchDiscriminator,
    build_discriminator,
)
from caps_med.networks.efficient_capsnet import EfficientCapsNet
from caps_med.networks.ensemble import ENSEMBLES, ClassificationEnsemble, Ensemble
from caps_med.networks.matrix_capsules import MatrixCapsules
from caps_med.networks.onlycaps import OnlyCaps
from caps_med.networks.pix2pix import Pix2Pix
from caps_med.networks.registry import NETWORKS, build_network
from caps_med.networks.segcaps import SegCaps
from caps_med.networks.spade import SPADE
from caps_med.networks.transforming import TransformingAutoencoder
from caps_med.networks.ucaps import UCaps
from caps_med.networks.unet_capsules import CapsuleUNet

__all__ = [
    "ENSEMBLES",
    "NETWORKS",
    "SPADE",
    "CapsNet",
    "CapsNetDiscriminator",
    "CapsPix2Pix",
    "CapsuleDiscriminator",
    "CapsuleNetwork",
    "CapsuleUNet",
    "ClassificationEnsemble",
    "ClassificationNetwork",
    "ConditionalDiscriminator",
    "ConvCaps",
    "ConvNet",
    "ConvolutionalClassifier",
    "Discriminator",
    "EfficientCapsNet",
    "Ensemble",
    "LayerInfo",
    "MatrixCapsules",
    "OnlyCaps",
    "PatchDiscriminator",
    "Pix2Pix",
    "ResNet",
    "SegCaps",
    "SegmentationNetwork",
    "SynthesisNetwork",
    "TransformingAutoencoder",
    "UCaps",
    "UNet",
    "around_content",
    "build_discriminator",
    "build_network",
    "capsule_lengths",
    "on_device",
    "one_hot",
    "predicted_classes",
    "with_temperature",
]
