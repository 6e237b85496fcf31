"""What synthetic images are worth, in numbers: beside real ones, among themselves, in geometry."""

from training.measures.diversity import DISTANCES, Diversity, mean_pairwise
from training.measures.features import FeatureNetwork, feature_network
from training.measures.pairs import psnr, ssim
from training.measures.sets import ImageSet, SetDistances, distances

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
