"""Weights of the published projects, as models of this library."""

from caps_med.importers.capspix2pix import read_capspix2pix
from caps_med.importers.imported import Imported
from caps_med.importers.publish import HOUNSFIELD, import_bundle, publish
from caps_med.importers.segcaps import read_segcaps

__all__ = ["HOUNSFIELD", "Imported", "import_bundle", "publish", "read_capspix2pix", "read_segcaps"]
