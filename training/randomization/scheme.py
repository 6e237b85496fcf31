"""What the ids of a label map mean: what is to be segmented, what looks alike, what is outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from caps_med.errors import InvalidInput
from caps_med.images import LabelCode
from caps_med.wording import reason
from training.yaml_files import read_yaml

Id = Annotated[int, Field(ge=0, le=65535)]
#: Built-in schemes by name.
SCHEMES: Mapping[str, Path] = {
    file.stem: file for file in sorted((Path(__file__).parent / "schemes").glob("*.yaml"))
}
_EXAMPLE = "labels: {1: {name: grey matter, ids: [3, 42]}, 2: {name: white matter, ids: [2, 41]}}"


class LabelClass(BaseModel):
    """One label to be segmented: its name, and the ids of the label maps that belong to it.

    Attributes:
        code: what it stands for in a DICOM SEG, as ``5366008,SCT,Hippocampus,left``; by default
            what its name tells.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=200)]
    ids: Annotated[tuple[Id, ...], Field(min_length=1)]
    code: str | None = None

    @field_validator("code")
    @classmethod
    def _is_code(cls, code: str | None) -> str | None:
        if code is not None:
            LabelCode.parse(code)
        return code


class LabelScheme(BaseModel):
    """From the ids of label maps to the labels that a network learns.

    Attributes:
        labels: label id -> its name and the ids it is made of; all other ids are background.
        outside: ids that skull stripping, or another mask, takes away.
        rim: ids that such a mask cuts anywhere, such as the fluid around the brain.
        alike: groups of ids whose intensities share one Gaussian, such as left and right.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: Annotated[dict[Annotated[int, Field(ge=1, le=65535)], LabelClass], Field(min_length=1)]
    outside: tuple[Id, ...] = ()
    rim: tuple[Id, ...] = ()
    alike: tuple[tuple[Id, ...], ...] = ()

    @model_validator(mode="after")
    def _once(self) -> Self:
        taken = [i for label in self.labels.values() for i in label.ids]
        for what, ids in (
            ("labels", taken),
            ("labels and outside", [*taken, *self.outside]),
            ("alike", [i for group in self.alike for i in group]),
        ):
            if twice := sorted({i for i in ids if ids.count(i) > 1}):
                raise ValueError(f"{what}: id {twice[0]} appears twice")
        return self

    @classmethod
    def of_ids(cls, ids: Sequence[int], names: Mapping[int, str] | None = None) -> Self:
        """Every id but 0 is a label of its own."""
        names = names or {}
        found = {i: {"name": names.get(i, f"label {i}"), "ids": [i]} for i in ids if i}
        return cls.model_validate({"labels": found})

    @property
    def names(self) -> dict[int, str]:
        """Label id -> name, with the background, in rising order."""
        return {0: "background", **{i: one.name for i, one in sorted(self.labels.items())}}

    def classes(self, ids: Sequence[int]) -> NDArray[np.uint8]:
        """The class, counted from 0 for the background, of each of the ids."""
        of = {
            i: k for k, label in enumerate(sorted(self.labels), 1) for i in self.labels[label].ids
        }
        return np.array([of.get(i, 0) for i in ids], np.uint8)

    def groups(self, ids: Sequence[int]) -> NDArray[np.int64]:
        """Position in `ids` of the one whose Gaussian each of them has."""
        first: dict[int, int] = {}
        for group in self.alike:
            present = [i for i in ids if i in group]
            first |= dict.fromkeys(present, present[0]) if present else {}
        places = {i: k for k, i in enumerate(ids)}
        return np.array([places[first.get(i, i)] for i in ids], np.int64)


def scheme_of(name: str | Path) -> LabelScheme:
    """The built-in scheme of this name, or the one in a YAML file.

    Raises:
        InvalidInput: there is no such scheme or file, or it is not a scheme.
    """
    file = SCHEMES.get(str(name), Path(name))
    if not file.exists():
        raise InvalidInput(f"{name}: neither a YAML file nor one of {', '.join(SCHEMES)}")
    values = read_yaml(file, str(file))
    try:
        return LabelScheme.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidInput(
            f"{file}: {where}{': ' if where else ''}{reason(first)}; write for example {_EXAMPLE}"
        ) from error
