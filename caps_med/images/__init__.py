"""Images with their geometry: read, bounded, sliced, normalized, written.

image = read_image("t1.nii.gz")                     # MedicalImage, [1, X, Y, Z], affine in mm
stack = SliceStack.from_image(image, "axial")       # [slices, 1, rows, columns]
labels = image.with_array(stack.restore(ids), kind="labels")
labels.save("tissue.nii.gz")
"""

from caps_med.images.codecs import CODECS, Codec
from caps_med.images.files import encode_image, read_image, write_image
from caps_med.images.image import Kind, MedicalImage
from caps_med.images.labels import label_format, label_palette, match_labels
from caps_med.images.limits import DEFAULT_LIMITS, Limits
from caps_med.images.normalization import Normalization
from caps_med.images.slices import Plane, SliceStack

FORMATS = tuple(CODECS)

__all__ = [
    "CODECS",
    "DEFAULT_LIMITS",
    "FORMATS",
    "Codec",
    "Kind",
    "Limits",
    "MedicalImage",
    "Normalization",
    "Plane",
    "SliceStack",
    "encode_image",
    "label_format",
    "label_palette",
    "match_labels",
    "read_image",
    "write_image",
]
