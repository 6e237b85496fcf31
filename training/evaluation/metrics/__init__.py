"""Metrics of images and label maps."""

from training.evaluation.metrics.distribution import ImageSet, SetDistances, distances
from training.evaluation.metrics.diversity import (
    DISTANCES,
    Diversity,
    mean_pairwise,
    structural,
)
from training.evaluation.metrics.features import FeatureNetwork, feature_network
from training.evaluation.metrics.image import SSIM_WINDOW, has_ssim, psnr, ssim

__all__ = [
    "DISTANCES",
    "SSIM_WINDOW",
    "Diversity",
    "FeatureNetwork",
    "ImageSet",
    "SetDistances",
    "distances",
    "feature_network",
    "has_ssim",
    "mean_pairwise",
    "psnr",
    "ssim",
    "structural",
]
