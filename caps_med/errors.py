"""The errors of caps_med, each with a stable code that scripts can rely on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

#: What commands say of it, after the code ``out_of_memory``.
OUT_OF_MEMORY = "not enough memory: crop or downsample the image, or allow the program more memory"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; PyTorch's CPU allocator raises a plain RuntimeError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    said = str(error).lower()
    told = "can't allocate memory" in said or "out of memory" in said
    return isinstance(error, RuntimeError) and told


class CapsMedError(ValueError):
    """Base of the errors that a caller can fix; the message says how."""

    code: ClassVar[str] = "error"

    @property
    def members(self) -> dict[str, object]:
        """Details for programs, as members of a JSON object."""
        return {}


class UnsupportedFormat(CapsMedError):
    """The format is not supported."""

    code = "unsupported_format"


class InputTooLarge(CapsMedError):
    """The input exceeds a limit, before or after decompression."""

    code = "input_too_large"


class InvalidInput(CapsMedError):
    """The content is corrupt or meaningless, such as a singular affine or NaN voxels."""

    code = "invalid_input"


class NotFinite(InvalidInput):
    """The image has NaN or infinite values."""


class SeveralVolumes(InvalidInput):
    """A file or series holds several volumes, one of which must be chosen.

    Attributes:
        count: number of volumes; they are counted from 0.
    """

    code = "several_volumes"

    def __init__(self, message: str, count: int = 0) -> None:
        super().__init__(message)
        self.count = count

    @property
    def members(self) -> dict[str, object]:
        """The number of volumes."""
        return {"volumes": self.count}


class SeveralSeries(InvalidInput):
    """A folder or zip holds several DICOM series, one of which must be chosen.

    Attributes:
        uids: their identifiers.
        titles: a description of each, by its identifier.
    """

    code = "several_series"

    def __init__(self, message: str, titles: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.titles = dict(titles or {})
        self.uids = tuple(self.titles)

    @property
    def members(self) -> dict[str, object]:
        """Identifier and title of each series."""
        return {"series": [{"uid": uid, "title": title} for uid, title in self.titles.items()]}


class UnknownLabel(CapsMedError):
    """A label map has an id that the model does not know."""

    code = "unknown_label"


class InvalidParameter(CapsMedError):
    """An argument is out of its range."""

    code = "invalid_parameter"


class ModelNotFound(CapsMedError):
    """The repository has no such model or version."""

    code = "model_not_found"


class LayerNotFound(CapsMedError):
    """The network has no capsule layer of this name."""

    code = "layer_not_found"


class WrongTask(CapsMedError):
    """The model is for another task: a synthesis model cannot segment, for example."""

    code = "wrong_task"


class InvalidBundle(CapsMedError):
    """The metadata, checksum or weights of a model on disk are wrong."""

    code = "invalid_bundle"


class ArchiveNotFound(CapsMedError):
    """The settings name no such archive."""

    code = "archive_not_found"


class SeriesNotFound(CapsMedError):
    """An archive has no such study or series."""

    code = "series_not_found"


class ArchiveUnavailable(CapsMedError):
    """An archive cannot be reached, is too slow, or violates DICOMweb."""

    code = "archive_unavailable"


class ArchiveDenied(CapsMedError):
    """An archive does not accept the credentials in the settings."""

    code = "archive_denied"


class InvalidPlugin(CapsMedError):
    """An installed package adds something to caps_med that cannot be imported or used."""

    code = "invalid_plugin"


class MissingExtra(CapsMedError, ImportError):
    """An extra is not installed; the message contains the install command."""

    code = "missing_extra"
