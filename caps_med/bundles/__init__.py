"""The model repository: MONAI bundles on disk, versions, safetensors weights, provenance."""

from caps_med.bundles.bundle import Bundle
from caps_med.bundles.metadata import (
    BundleMetadata,
    ImageStatistics,
    ModelCard,
    NetworkSpec,
    Statement,
    WeightsProvenance,
    named_scores,
)
from caps_med.bundles.repository import ModelRepository
from caps_med.bundles.writer import write_bundle

__all__ = [
    "Bundle",
    "BundleMetadata",
    "ImageStatistics",
    "ModelCard",
    "ModelRepository",
    "NetworkSpec",
    "Statement",
    "WeightsProvenance",
    "named_scores",
    "write_bundle",
]
