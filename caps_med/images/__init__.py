"""Images with their geometry: reading, size limits, slices, normalization, writing.

>>> import numpy as np
>>> volume = MedicalImage(np.zeros((1, 40, 50, 60)), np.diag([2.0, 2.0, 3.0, 1.0]))
>>> stack = SliceStack.from_image(volume, "axial")
>>> stack.array.shape  # [slices, channels, rows, columns]
(60, 1, 50, 40)
>>> labels = volume.with_array(stack.restore(stack.array > 0.5), kind="labels")
>>> read_image(encode_image(labels, "nifti"), kind="labels").spacing
(2.0, 2.0, 3.0)
"""

from caps_med.images.channels import is_grey, stack_channels, with_channels
from caps_med.images.codecs.codec import Codec
from caps_med.images.codecs.registry import CODECS, codec_of_path, names_beside
from caps_med.images.dicom_results import dicom_preview, dicom_report, dicom_segmentation
from caps_med.images.files import (
    ImageSource,
    as_written,
    check_writable,
    count_pictures,
    encode_image,
    read_channels,
    read_image,
    writable_format,
    write_image,
)
from caps_med.images.image import Kind, MedicalImage
from caps_med.images.label_codes import Coding, LabelCode, code_of_name
from caps_med.images.label_files import label_description, write_label_description
from caps_med.images.labels import label_colors, label_palette, match_labels
from caps_med.images.like import like
from caps_med.images.limits import DEFAULT_LIMITS, Limits
from caps_med.images.normalization import Normalization, to_uint8
from caps_med.images.objects import from_object
from caps_med.images.placing import in_order_of, placed_on
from caps_med.images.preview import preview
from caps_med.images.region import Region, cropped
from caps_med.images.slices import Plane, SliceStack, chosen_slice, one_slice, slice_count

FORMATS = tuple(CODECS)

__all__ = [
    "CODECS",
    "DEFAULT_LIMITS",
    "FORMATS",
    "Codec",
    "Coding",
    "ImageSource",
    "Kind",
    "LabelCode",
    "Limits",
    "MedicalImage",
    "Normalization",
    "Plane",
    "Region",
    "SliceStack",
    "as_written",
    "check_writable",
    "chosen_slice",
    "code_of_name",
    "codec_of_path",
    "count_pictures",
    "cropped",
    "dicom_preview",
    "dicom_report",
    "dicom_segmentation",
    "encode_image",
    "from_object",
    "in_order_of",
    "is_grey",
    "label_colors",
    "label_description",
    "label_palette",
    "like",
    "match_labels",
    "names_beside",
    "one_slice",
    "placed_on",
    "preview",
    "read_channels",
    "read_image",
    "slice_count",
    "stack_channels",
    "to_uint8",
    "with_channels",
    "writable_format",
    "write_image",
    "write_label_description",
]
