"""Import weights of published projects as models of this library."""

from caps_med.importers.capsnet import read_capsnet
from caps_med.importers.capspix2pix import read_capspix2pix
from caps_med.importers.imported import Imported
from caps_med.importers.publish import EIGHT_BITS, HOUNSFIELD, import_bundle, publish
from caps_med.importers.segcaps import read_segcaps

__all__ = [
    "EIGHT_BITS",
    "HOUNSFIELD",
    "Imported",
    "import_bundle",
    "publish",
    "read_capsnet",
    "read_capspix2pix",
    "read_segcaps",
]
