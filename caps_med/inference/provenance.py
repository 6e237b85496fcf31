"""The provenance of an answer, for JSON and HTTP headers."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar
from urllib.parse import quote

from caps_med._version import __version__
from caps_med.bundles import Bundle
from caps_med.images import MedicalImage

Answer = TypeVar("Answer", bound=MedicalImage)

#: What a header holds as it is: printable ASCII but the percent sign.
_PLAIN = "".join(map(chr, range(32, 127))).replace("%", "")


@dataclass(frozen=True)
class AnswerProvenance:
    """Model, weights, code and preprocessing of one answer, and its seed, if any.

    `input_description` describes the model's input in words, if stated.

    `precision` is that of the convolutions, if it is not float32.

    With test-time augmentation, `tta_views` is the number of views that were averaged.

    For an interpolation, `to_seed` is the second seed and `position` runs from 0 to 1.
    """

    model: str
    version: int
    weights_sha256: str
    preprocessing: str
    caps_med_version: str = __version__
    seed: int | None = None
    to_seed: int | None = None
    position: float | None = None
    input_description: str | None = None
    precision: str | None = None
    tta_views: int | None = None

    @classmethod
    def of(cls, bundle: Bundle) -> AnswerProvenance:
        """The provenance common to all answers of a bundle."""
        return cls(
            model=bundle.name,
            version=bundle.version,
            weights_sha256=bundle.metadata.weights.sha256,
            preprocessing=bundle.card.preprocessing_text,
            input_description=bundle.card.input_description or None,
        )

    def with_seed(self, seed: int) -> AnswerProvenance:
        """The same for one seed."""
        return replace(self, seed=seed)

    def as_dict(self) -> dict[str, str | int | float]:
        """For JSON, without the fields that do not apply."""
        values: dict[str, str | int | float | None] = dict(self.__dict__)
        return {key: value for key, value in values.items() if value is not None}

    def headers(self) -> dict[str, str]:
        """For HTTP: ``Caps-Med-Model``, ``Caps-Med-Model-Version`` and so on.

        In the input description, percent signs and non-ASCII characters are percent-encoded.
        """
        names = {
            "model": "Caps-Med-Model",
            "version": "Caps-Med-Model-Version",
            "weights_sha256": "Caps-Med-Weights-SHA256",
            "preprocessing": "Caps-Med-Preprocessing",
            "caps_med_version": "Caps-Med-Version",
            "seed": "Caps-Med-Seed",
            "to_seed": "Caps-Med-To-Seed",
            "position": "Caps-Med-Position",
            "input_description": "Caps-Med-Input-Description",
            "precision": "Caps-Med-Precision",
            "tta_views": "Caps-Med-TTA-Views",
        }
        found = {names[key]: str(value) for key, value in self.as_dict().items()}
        if self.input_description is not None:
            found[names["input_description"]] = header_text(self.input_description)
        return found


def header_text(text: str) -> str:
    """Text for a header, with percent signs and non-ASCII characters percent-encoded."""
    return quote(text, safe=_PLAIN)


def as_answer(kind: type[Answer], image: MedicalImage, **added: Any) -> Answer:  # noqa: ANN401
    """`image` as a subclass of `MedicalImage`, with the given fields added or replaced."""
    own = {f.name: getattr(image, f.name) for f in fields(MedicalImage)}
    return kind(**{**own, **added})
