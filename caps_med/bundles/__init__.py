"""The model repository: MONAI bundles on disk, versions, safetensors weights, provenance.

Everything except the weights can be read without importing torch.
"""

from typing import TYPE_CHECKING

import lazy_loader

from caps_med.bundles.bundle import Bundle
from caps_med.bundles.metadata import (
    BundleMetadata,
    ImageStatistics,
    LabelMapStatistics,
    ModelCard,
    NetworkSpec,
    Statement,
    WeightsProvenance,
    named_scores,
)
from caps_med.bundles.repository import ModelRepository

if TYPE_CHECKING:
    from caps_med.bundles.writer import write_bundle
else:
    __getattr__, _, _ = lazy_loader.attach(__name__, submod_attrs={"writer": ["write_bundle"]})

__all__ = [
    "Bundle",
    "BundleMetadata",
    "ImageStatistics",
    "LabelMapStatistics",
    "ModelCard",
    "ModelRepository",
    "NetworkSpec",
    "Statement",
    "WeightsProvenance",
    "named_scores",
    "write_bundle",
]


def __dir__() -> list[str]:
    return __all__
