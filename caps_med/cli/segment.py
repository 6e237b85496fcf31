"""``caps-med segment``: from an image to a label map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import caps_med
from caps_med.cli import archived, batch
from caps_med.cli.batch import Files, Format, Inputs, Jobs, OnCluster, Resume
from caps_med.cli.dicom_beside import DicomBeside
from caps_med.cli.options import (
    AsJson,
    ModelName,
    Models,
    Overwrite,
    SeriesUID,
    VolumeIndex,
    console,
    errors,
    say,
    say_input,
    say_json,
    say_warnings,
)
from caps_med.cli.output import (
    check_file,
    check_folder_of,
    check_format,
    check_free,
    check_no_input,
)
from caps_med.cli.progress import progress_bar
from caps_med.cli.tables import print_table
from caps_med.drafts import write_whole
from caps_med.errors import ArchiveDenied, ArchiveUnavailable, CapsMedError, InvalidParameter
from caps_med.wording import measure_text

if TYPE_CHECKING:
    from rich.console import Console

    from caps_med.archives import Archive
    from caps_med.images import MedicalImage
    from caps_med.inference import MapName, Model, RefinementChoice, Segmentation
    from caps_med.inference.precision import Precision


def segment(
    model: ModelName,
    files: Files = None,
    inputs: Inputs = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Output file; its suffix determines the format. With --input: a folder or s3:// "
            "location.",
        ),
    ] = None,
    source: archived.From = None,
    to: archived.To = None,
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            help="Write the probabilities, one channel per class, to --out instead of the labels.",
        ),
    ] = False,
    refine: Annotated[
        str | None,
        typer.Option(
            help="em: refine the labels by the image's own intensities, with the network's "
            "probabilities as the prior; none: do not refine. By default as set by the model "
            "(see `caps-med models show`)."
        ),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            help="fp32 or bf16. With bf16, convolutions are computed in bfloat16, which changes "
            "about one label in 1000. It saves time on GPUs, and on processors with bfloat16 for "
            "models whose numbers of channels are not multiples of 16."
        ),
    ] = "fp32",
    tta: Annotated[
        bool,
        typer.Option(
            "--tta",
            help="Test-time augmentation: average over mirror images, along the axes that were "
            "mirrored in training. Takes two or four times as long and is often more accurate.",
        ),
    ] = False,
    confidence: Annotated[
        bool,
        typer.Option(
            "--confidence",
            help="Also write OUT_confidence: the probability of the label of each voxel.",
        ),
    ] = False,
    entropy: Annotated[
        bool,
        typer.Option(
            "--entropy",
            help="Also write OUT_entropy: the entropy of the class probabilities, from 0 "
            "(certain) to 1 (undecided).",
        ),
    ] = False,
    disagreement: Annotated[
        bool,
        typer.Option(
            "--disagreement",
            help="Also segment mirrored copies of the image, and the image with each network of "
            "an ensemble; write where the results differ to OUT_disagreement.",
        ),
    ] = False,
    seg_type: Annotated[
        str,
        typer.Option(
            help="Type of a DICOM SEG: binary, which every program can read, or labelmap, which "
            "is newer and smaller."
        ),
    ] = "binary",
    report: Annotated[
        Path | None,
        typer.Option(
            help="For a DICOM series: also write the volumes of the labels to this file, a DICOM "
            "structured report (TID 1500) that refers to the DICOM SEG."
        ),
    ] = None,
    preview: Annotated[
        Path | None,
        typer.Option(
            help="For a DICOM series: also write a picture of slices with their labels to this "
            "file, a DICOM secondary capture, for viewers that cannot show a DICOM SEG."
        ),
    ] = None,
    label_file: Annotated[
        Path | None,
        typer.Option(
            help="Also write the names and colours of the labels to this file, for ITK-SNAP."
        ),
    ] = None,
    series: SeriesUID = None,
    volume: VolumeIndex = None,
    format: Format = None,
    jobs: Jobs = None,
    cluster: OnCluster = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    models: Models = None,
) -> None:
    """Segment an image, or all images of a folder, into a label map of the same geometry.

    --confidence, --entropy and --disagreement write a map beside OUT, such as OUT_entropy: a
    .nii.gz file for a volume, or a .png file, in which 255 stands for 1, for a picture.

    With --from, the input is a series of a DICOMweb archive, or each image series of a study; --to
    stores the segmentation in the archive. The --json of a study is a list, with the input and the
    error, if any, of each series.

    With --input, cases.csv and cases.json in --out list the measures of each image. Files, or
    series of a study, that cannot be segmented are listed at the end, and the exit status is 1.

    Examples:
      caps-med segment --model brain-t1-tissue t1.nii.gz --out tissue.nii.gz
      caps-med segment --model my-tumours flair.nii.gz t1.nii.gz --out tumour.nii.gz
      caps-med segment --model brain-t1-tissue -i scans -o tissues --jobs 4
      caps-med segment --model brain-t1-tissue -i s3://scans -o s3://tissues --cluster
      caps-med segment --model brain-t1-tissue --from dicomweb://pacs/studies/1.2 --to dicomweb
      caps-med segment --model brain-t1-tissue SERIES --out seg.dcm --report volumes.dcm
    """
    from caps_med.inference import MAP_NAMES
    from caps_med.inference.precision import known_precision
    from caps_med.inference.refinement import known_refinement

    method, computed = known_refinement(refine), known_precision(precision)
    asked = {"confidence": confidence, "entropy": entropy, "disagreement": disagreement}
    maps = tuple(name for name in MAP_NAMES if asked[name])
    objects = DicomBeside(seg_type, report, preview)
    file = None if out is None else Path(out)
    objects.check(
        file, overwrite, batch=bool(inputs), labels=not probabilities, stored=to is not None
    )
    if label_file is not None:
        given_files = [*(files or ()), *map(Path, inputs or ())]
        _check_label_file(label_file, [file, report, preview], given_files, overwrite or resume)
    with _label_file(label_file, model, models):
        if inputs:
            from caps_med.batch import SegmentFiles

            if out is None or source or to:
                raise InvalidParameter(
                    "--input: give the folder for the results with --out, and leave out --from and "
                    "--to"
                )
            batch.check_batch(series)
            action = SegmentFiles(
                model,
                models,
                format=format,
                probabilities=probabilities,
                refine=method,
                precision=computed,
                tta=tta,
                maps=maps,
                volume=volume,
            )
            batch.run(action, inputs, files, out, jobs=jobs, cluster=cluster, resume=resume,
                      overwrite=overwrite, as_json=as_json)  # fmt: skip
            return
        named = archived.check_given(
            files, source, format=format, jobs=(jobs or 1) > 1, cluster=cluster, resume=resume
        )
        given = archived.each_of(named)
        wanted = _Wanted(
            file, probabilities, method, computed, tta, maps, overwrite, as_json, objects, series,
            volume, study=given != [named],
        )  # fmt: skip
        targets = _check_places(given, to, wanted)
        _segment_each(caps_med.load_model(model, models), given, targets, wanted)


@dataclass(frozen=True)
class _Wanted:
    """What to do with an answer: the options of the command.

    Attributes:
        study: whether a study is named, whose JSON is a list.
    """

    out: Path | None
    probabilities: bool
    refine: RefinementChoice | None
    precision: Precision
    tta: bool
    maps: tuple[MapName, ...]
    overwrite: bool
    as_json: bool
    objects: DicomBeside
    series: str | None
    volume: int | None
    study: bool


def _check_places(
    given: Sequence[archived.Given], to: str | None, wanted: _Wanted
) -> list[Archive | None]:
    """Check that the options say where each answer goes; returns the archive of each, or None.

    Raises:
        InvalidParameter: they do not, or several answers would go into one file.
        ArchiveNotFound: see `archived.target_of`.
    """
    targets = [archived.target_of(to, one) for one in given]
    if wanted.out is None and to is None:
        raise InvalidParameter(
            "no place for the result: name a file with --out, or an archive with --to"
        )
    objects = wanted.objects
    files = {"--out": wanted.out, "--report": objects.report, "--preview": objects.preview}
    for option, file in files.items():
        if file is not None and len(given) > 1:
            raise InvalidParameter(
                f"{option} {file}: the study has {len(given)} image series, but one file holds one "
                "result; name a series in --from, or store all results with --to alone"
            )
        if file is not None:
            check_no_input(file, archived.files_of(given[0]), option)
    if wanted.out is not None:
        check_file(wanted.out, archived.files_of(given[0]), wanted.overwrite)
    elif wanted.maps:
        raise InvalidParameter(
            f"--{wanted.maps[0]}: the map is written beside the label map; name a file with --out"
        )
    elif wanted.probabilities:
        raise InvalidParameter(
            "--probabilities: an archive gets the labels, as DICOM SEG; name a file for the "
            "probabilities with --out, or leave the option out"
        )
    return targets


def _segment_each(
    model: Model,
    given: Sequence[archived.Given],
    targets: Sequence[Archive | None],
    wanted: _Wanted,
) -> None:
    """`_segment_one` for each; a failure ends the command only if there is just one.

    Raises:
        CapsMedError: the only one cannot be segmented, or the archive does not answer.
        typer.Exit: one of several cannot be segmented (status 1).
    """
    failed: list[str] = []
    listed: list[dict[str, Any]] = []
    try:
        for one, target in zip(given, targets, strict=True):
            try:
                numbers = _segment_one(model, one, target, wanted)
                listed.append({"input": str(one), "error": None, **numbers})
            except CapsMedError as error:
                if len(given) == 1 or isinstance(error, ArchiveDenied | ArchiveUnavailable):
                    raise
                failed.append(f"{one}: {error}")
                listed.append({"input": str(one), "error": str(error)})
    finally:
        if wanted.as_json and listed:
            say_json(listed if wanted.study else numbers)
        for text in failed:
            say(f"failed: {text}", errors)
    if failed:
        raise typer.Exit(batch.SOME_FAILED)


def _segment_one(
    model: Model, given: archived.Given, target: Archive | None, wanted: _Wanted
) -> dict[str, Any]:
    """Segment an image, write and store the answer, and show its measures; returns its numbers."""
    from caps_med.inference.uncertainty_maps import PROBABILITIES

    image = archived.read(model, given, wanted.series, wanted.volume)
    beside = _check_answer(model, image, given, target, wanted)
    with progress_bar(f"segmenting {archived.name_of(given)}") as progress:
        result = model.segment(
            image,
            progress=progress,
            refine=wanted.refine,
            precision=wanted.precision,
            tta=wanted.tta,
            maps=(*wanted.maps, *(PROBABILITIES if wanted.probabilities else ())),
        )
    places = [str(path) for path in (wanted.out, *beside.values()) if path is not None]
    stored = None
    if target is not None:
        objects = wanted.objects
        stored = archived.store(target, result, objects.kind, objects.report is not None)
        places.append(stored.place)
    if wanted.out is not None:
        _write(result, wanted.out, wanted, stored)
    wanted.objects.write(image, result)
    for name, path in beside.items():
        result.map_of(name).save(path)
    say_input(model.bundle)
    say_warnings(result.warnings)
    if not wanted.as_json:
        print_measures(console, result)
        say(_uncertainty_line(result))
        say(f"{model.bundle.reference} -> {', '.join(places)}")
    return result.numbers()


def _check_answer(
    model: Model,
    image: MedicalImage,
    given: archived.Given,
    target: Archive | None,
    wanted: _Wanted,
) -> dict[MapName, Path]:
    """Check, before any work, that the answer can be stored; returns the files of its maps.

    Raises:
        UnsupportedFormat, InvalidParameter: it cannot.
    """
    from caps_med.images import check_writable

    labels = len(model.bundle.card.labels) - 1
    if target is not None:
        check_writable(image, "labels", 1, "dicom", labels=labels)
    out = wanted.out
    if out is None:
        return {}
    classes = model.segmenter.network.out_channels
    if wanted.probabilities:
        check_format(out, image, "image", classes, colours=False)
    else:
        check_format(out, image, "labels", 1, labels=labels)
    beside = {name: _beside(out, name, image) for name in wanted.maps}
    for name, path in beside.items():
        check_no_input(path, archived.files_of(given), f"--{name}")
    check_free(beside.values(), wanted.overwrite)
    return beside


def _write(
    result: Segmentation, out: Path, wanted: _Wanted, stored: archived.Stored | None
) -> None:
    """Write the answer; for DICOM SEG the one that was stored, if any."""
    from caps_med.images import codec_of_path, dicom_segmentation

    if wanted.probabilities:
        result.probabilities.save(out)
    elif codec_of_path(out).name == "dicom":
        kind = wanted.objects.kind
        write_whole(out, stored.content if stored else dicom_segmentation(result, kind))
    else:
        result.save(out)


def _beside(out: Path, name: MapName, source: MedicalImage) -> Path:
    """The file of a map: ``tissue_entropy.nii.gz`` for ``tissue.nii.gz``."""
    from caps_med.batch.actions import map_suffix
    from caps_med.batch.cases import split_suffix

    return out.with_name(f"{split_suffix(out.name)[0]}_{name}{map_suffix(source)}")


def _uncertainty_line(result: Segmentation) -> str:
    titles = {
        "entropy": "mean entropy", "flips": "disagreement of flips",
        "members": "of the ensemble's networks",
    }  # fmt: skip
    found = result.uncertainty.items()
    return ", ".join(f"{titles[name]} {value:.3f}" for name, value in found if value is not None)


def _check_label_file(
    path: Path, others: Sequence[Path | None], sources: Sequence[Path], overwrite: bool
) -> None:
    """Check, before any work, that the file for the names of the labels can be written.

    Args:
        others: the other files to be written.
        sources: files, folders and patterns of the inputs.

    Raises:
        InvalidParameter: it cannot, is one of the others, or is an image.
    """
    from caps_med.batch.cases import split_suffix
    from caps_med.batch.series import is_dicom

    if path in others:
        raise InvalidParameter(
            "--label-file, --out, --report and --preview: must be different files"
        )
    check_folder_of(path, "--label-file")
    check_no_input(path, sources, "--label-file")
    if split_suffix(path.name)[1] or is_dicom(path):  # of a folder or pattern it may be an input
        raise InvalidParameter(
            f"--label-file {path}: this is an image; name a text file such as labels.txt"
        )
    check_free([path], overwrite)


@contextmanager
def _label_file(path: Path | None, model: str, models: Path | None) -> Iterator[None]:
    """Write the names and colours of the labels when the block ends, unless it raised an error."""
    if path is None:
        yield
        return
    try:
        yield
    except typer.Exit as ended:
        if ended.exit_code == batch.SOME_FAILED:  # the others are segmented
            _write_label_file(path, model, models)
        raise
    _write_label_file(path, model, models)


def _write_label_file(path: Path, model: str, models: Path | None) -> None:
    from caps_med.bundles import ModelRepository
    from caps_med.images import write_label_description

    card = ModelRepository(models).find(model).card
    write_label_description(path, card.labels, card.palette)


def print_measures(console: Console, result: Segmentation) -> None:
    """Print one row for each label except the background."""
    size = "area (pixels)" if result.volume_unit == "pixels" else "volume (mm3)"
    numbers = (size, "of the image", "objects", "confidence")
    rows = [
        (
            one.name,
            measure_text(one.volume),
            f"{one.fraction:.2%}",
            f"{one.objects}",
            "" if one.confidence is None else f"{one.confidence:.3f}",
        )
        for one in result.measures
    ]
    print_table(console, ("label", *numbers), rows, right=numbers)
