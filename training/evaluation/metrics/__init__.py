"""Metrics of images and label maps."""

from training.evaluation.metrics.distribution import ImageSet, SetDistances, distances
from training.evaluation.metrics.diversity import DISTANCES, Diversity, mean_pairwise
from training.evaluation.metrics.features import FeatureNetwork, feature_network
from training.evaluation.metrics.image import psnr, ssim

__all__ = [
    "DISTANCES",
    "Diversity",
    "FeatureNetwork",
    "ImageSet",
    "SetDistances",
    "distances",
    "feature_network",
    "mean_pairwise",
    "psnr",
    "ssim",
]
