"""What can go wrong, each with a stable code that HTTP answers and scripts rely on."""

from __future__ import annotations

from typing import ClassVar


class CapsMedError(ValueError):
    """Base of every error a caller can cause or mend; the message holds the fix."""

    code: ClassVar[str] = "error"


class UnsupportedFormat(CapsMedError):
    """The content is of no format that is read here."""

    code = "unsupported_format"


class InputTooLarge(CapsMedError):
    """The input is over a bound, before or after decompression."""

    code = "input_too_large"


class InvalidInput(CapsMedError):
    """The content is broken, or means nothing (a singular affine, NaN voxels)."""

    code = "invalid_input"


class NotFinite(InvalidInput):
    """The image holds NaN or infinity."""


class UnknownLabel(CapsMedError):
    """A label map holds an id that the model does not know."""

    code = "unknown_label"


class InvalidParameter(CapsMedError):
    """An argument is out of its range."""

    code = "invalid_parameter"


class ModelNotFound(CapsMedError):
    """No model, or no such version of it, in the repository."""

    code = "model_not_found"


class LayerNotFound(CapsMedError):
    """The network has no capsule layer of that name."""

    code = "layer_not_found"


class WrongTask(CapsMedError):
    """The model does another job: a synthesis model was asked to segment, say."""

    code = "wrong_task"


class InvalidBundle(CapsMedError):
    """A model on disk does not hold together: metadata, checksum or weights."""

    code = "invalid_bundle"


class MissingExtra(CapsMedError, ImportError):
    """An optional package is not installed; the message is the install command."""

    code = "missing_extra"
