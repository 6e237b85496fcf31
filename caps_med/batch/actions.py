"""The work on each case of a batch: one `Action` per task."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from caps_med.batch.cases import Case, split_suffix
from caps_med.batch.places import write_text
from caps_med.batch.table import CaseResult
from caps_med.errors import InvalidParameter
from caps_med.images import CODECS, Codec, MedicalImage, codec_of_path
from caps_med.inference import MapName, Model, Segmentation, load_model
from caps_med.inference.features import FOLDER_FILES
from caps_med.inference.precision import Precision, known_precision
from caps_med.inference.refinement import RefinementChoice, known_refinement
from caps_med.inference.uncertainty_maps import PROBABILITIES


@dataclass(frozen=True)
class Action(ABC):
    """A model's name, and what to do with a case. Sent to workers, so it does not hold the model.

    Attributes:
        model: the model's name, or one of its versions: ``name@3``.
        models: the model repository; see `load_model`.
        volume: which volume of cases with several, counted from 0; None for the only one.
    """

    model: str
    models: Path | None = None
    volume: int | None = field(default=None, kw_only=True)

    #: Its name in the tables.
    command: ClassVar[str]

    def load(self) -> Model:
        """The model.

        Raises:
            ModelNotFound, InvalidBundle: see `load_model`. WrongTask: its task does not fit.
            InvalidParameter: an attribute is out of its range.
        """
        model = load_model(self.model, self.models)
        self.check(model)
        return model

    @abstractmethod
    def check(self, model: Model) -> None:
        """Raise the errors of `load` for an action that this model cannot perform."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings besides the model that determine the outputs, for JSON."""

    @abstractmethod
    def claimed(self, name: str) -> Iterable[str]:
        """The outputs of a case with that name, without suffixes."""

    def read(self, model: Model, case: Case) -> MedicalImage:
        """The image or label map of a case; if it has several volumes, the chosen one."""
        return model.read(case.source, model.reads, index=self.volume)

    @abstractmethod
    def run(self, model: Model, case: Case, folder: Path) -> CaseResult:
        """Process a case: write its outputs to `folder`, and return what to report about them.

        Raises:
            CapsMedError: the case cannot be read, processed or written.
        """


@dataclass(frozen=True)
class SegmentFiles(Action):
    """Segment each image, and measure its labels.

    Attributes:
        format: of the label maps: a name in `caps_med.images.CODECS` or a suffix; None for each
            image's own format.
        probabilities: also write the probabilities, one channel per class, for volumes as
            ``NAME_probabilities.nii.gz``, for pictures as ``NAME_probabilities.npz``.
        refine, precision, tta: see `Model.segment`.
        maps: also write these maps, for volumes as ``NAME_entropy.nii.gz`` and so on, for pictures
            as ``NAME_entropy.png``, with 255 for 1. ``disagreement`` also appears in the tables.
    """

    format: str | None = None
    probabilities: bool = False
    refine: RefinementChoice | None = None
    precision: Precision = "fp32"
    tta: bool = False
    maps: tuple[MapName, ...] = ()

    command = "segment"

    def check(self, model: Model) -> None:  # noqa: D102 - see the base
        _ = model.segmenter.with_tta(self.tta)
        known_refinement(self.refine)
        known_precision(self.precision)
        _suffix_of(self.format)

    def settings(self) -> dict[str, Any]:  # noqa: D102
        more: dict[str, Any] = {"refine": self.refine} if self.refine else {}
        if self.precision != "fp32":
            more["precision"] = self.precision
        if self.tta:
            more["tta"] = True
        if self.maps:
            more["maps"] = list(self.maps)
        return {"format": self.format, "probabilities": self.probabilities, **more}

    def _codec(self, image: MedicalImage) -> Codec:
        """The format of the label map of this image."""
        suffix = _suffix_of(self.format)
        return codec_of_path(Path(f"x{suffix}")) if suffix else CODECS[image.format_of("labels")]

    def claimed(self, name: str) -> Iterable[str]:  # noqa: D102
        more = ["probabilities"] * self.probabilities + [*self.maps]
        return [name, *(f"{name}_{one}" for one in more)]

    def run(self, model: Model, case: Case, folder: Path) -> CaseResult:  # noqa: D102
        image = self.read(model, case)
        self._codec(image).check_labels(len(model.bundle.card.labels) - 1)
        result = model.segment(
            image,
            refine=self.refine,
            precision=self.precision,
            tta=self.tta,
            maps=(*self.maps, *(PROBABILITIES if self.probabilities else ())),
        )
        written = [_save(result, folder, case.name, case, self.format)]
        if self.probabilities:
            name = f"{case.name}_probabilities"
            suffix = ".npz" if result.spatial_dims == 2 else ".nii.gz"
            written.append(_save(result.probabilities, folder, name, case, suffix))
        for one in self.maps:
            name, shown = f"{case.name}_{one}", result.map_of(one)
            written.append(_save(shown, folder, name, case, map_suffix(shown)))
        return CaseResult(
            case.name,
            case.input,
            outputs=dict(written),
            warnings=result.warnings,
            unit=result.volume_unit,
            labels=result.measures,
            values=_uncertainty(result),
        )


@dataclass(frozen=True)
class SynthesizeFiles(Action):
    """Synthesize images of each label map.

    Attributes:
        format: as for `SegmentFiles`.
        seed: seed of the first image of each label map.
        count: images per label map, named ``NAME-seed7`` and so on if there are several.
    """

    format: str | None = None
    seed: int = 0
    count: int = 1

    command = "synthesize"

    def check(self, model: Model) -> None:  # noqa: D102
        if self.count < 1:
            raise InvalidParameter(f"count={self.count}: must be at least 1")
        for seed in (self.seed, self.seed + self.count - 1):
            model.synthesizer.noise(seed)
        _suffix_of(self.format)

    def settings(self) -> dict[str, Any]:  # noqa: D102
        return {"format": self.format, "seed": self.seed, "count": self.count}

    def claimed(self, name: str) -> Iterable[str]:  # noqa: D102
        return [output for _, output in self._outputs(name)]

    def run(self, model: Model, case: Case, folder: Path) -> CaseResult:  # noqa: D102
        labels = self.read(model, case)
        images = model.synthesize_many(labels, self.seed, self.count)
        outputs = (output for _, output in self._outputs(case.name))
        written = [
            _save(image, folder, output, case, self.format)
            for image, output in zip(images, outputs, strict=True)
        ]
        return CaseResult(case.name, case.input, outputs=dict(written), warnings=images[0].warnings)

    def _outputs(self, name: str) -> Iterator[tuple[int, str]]:
        """The outputs of a case by their seeds."""
        for seed in range(self.seed, self.seed + self.count):
            yield seed, name if self.count == 1 else f"{name}-seed{seed}"


@dataclass(frozen=True)
class ClassifyFiles(Action):
    """Classify each image: class and probabilities go to the tables, everything to ``NAME.json``.

    Attributes:
        slice: slice of volumes; None for the middle one.
    """

    slice: int | None = None

    command = "classify"

    def check(self, model: Model) -> None:  # noqa: D102
        _ = model.classifier

    def settings(self) -> dict[str, Any]:  # noqa: D102
        return {"slice": self.slice}

    def claimed(self, name: str) -> Iterable[str]:  # noqa: D102
        return [name]

    def run(self, model: Model, case: Case, folder: Path) -> CaseResult:  # noqa: D102
        found = model.classify(self.read(model, case), self.slice)
        name = f"{case.name}.json"
        path = _place(folder, name)
        write_text(path, json.dumps(found.numbers(), indent=2, ensure_ascii=False) + "\n")
        shares = {f"{name} probability": p for name, p in found.probabilities.items()}
        return CaseResult(
            case.name,
            case.input,
            outputs={name: path.stat().st_size},
            warnings=found.warnings,
            values={"class": found.label, "present": "; ".join(found.present), **shares},
        )


@dataclass(frozen=True)
class FeatureFiles(Action):
    """Compute the capsules of each image or label map: one folder each, see `Features.save`.

    Attributes:
        layer, slice, seed: as for `Model.features`.
    """

    layer: str | None = None
    slice: int | None = None
    seed: int = 0

    command = "features"

    def check(self, model: Model) -> None:  # noqa: D102
        model.check_layer(self.layer)

    def settings(self) -> dict[str, Any]:  # noqa: D102
        return {"layer": self.layer, "slice": self.slice, "seed": self.seed}

    def claimed(self, name: str) -> Iterable[str]:  # noqa: D102
        return [name, *(split_suffix(output)[0] for output in self._outputs(name))]

    def run(self, model: Model, case: Case, folder: Path) -> CaseResult:  # noqa: D102
        source = self.read(model, case)
        found = model.features(source, self.layer, self.slice, self.seed)
        # beside the outputs of cases in a folder of that name, which stay
        paths = {name: _place(folder, name) for name in self._outputs(case.name)}
        found.save(folder / case.name)
        written = {name: path.stat().st_size for name, path in paths.items()}
        return CaseResult(case.name, case.input, outputs=written, warnings=found.warnings)

    def _outputs(self, name: str) -> list[str]:
        return [f"{name}/{file}" for file in FOLDER_FILES]


def _uncertainty(result: Segmentation) -> dict[str, float]:
    """Columns of the table: the mean entropy, and the disagreement if requested."""
    titles = {"entropy": "entropy", "flips": "flip disagreement", "members": "member disagreement"}
    return {titles[k]: v for k, v in result.uncertainty.items() if v is not None}


def map_suffix(shown: MedicalImage) -> str:
    """The suffix of the file of an uncertainty map: floats for volumes, 8 bits for pictures."""
    return ".png" if shown.spatial_dims == 2 else ".nii.gz"


def _suffix_of(format: str | None) -> str | None:
    """The suffix of a format's name, or of a suffix with or without its dot.

    Raises:
        UnsupportedFormat: there is no such format.
    """
    if format is None:
        return None
    if format in CODECS:
        return CODECS[format].suffixes[0]
    suffix = f".{format.lower().removeprefix('.')}"
    codec_of_path(Path(f"x{suffix}"))
    return suffix


def _save(
    image: MedicalImage, folder: Path, name: str, case: Case, format: str | None
) -> tuple[str, int]:
    """Write an answer; returns the file's name below the folder and its size.

    By default, the answer's own format is used, with the input's suffix if it has that format.
    """
    suffix = _suffix_of(format) or CODECS[image.format].suffixes[0]
    if format is None and case.suffix in CODECS[image.format].suffixes:
        suffix = case.suffix
    path = _place(folder, f"{name}{suffix}")
    image.save(path)
    return f"{name}{suffix}", path.stat().st_size


def _place(folder: Path, name: str) -> Path:
    """The path of an output, with its folder created; links never lead out of `folder`.

    Raises:
        InvalidParameter: a link in the path leads elsewhere.
    """
    path = folder / name
    for parent in path.relative_to(folder).parents:
        if (folder / parent).is_symlink() and parent != Path():
            raise InvalidParameter(
                f"{folder / parent} is a link, through which no outputs are written: replace it "
                "with a folder, or name another --out"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
