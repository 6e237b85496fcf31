"""``caps-med classify``: from an image to the probabilities of its classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import caps_med
from caps_med.cli import archived, batch
from caps_med.cli.batch import Files, Inputs, Jobs, OnCluster, Resume
from caps_med.cli.options import (
    AsJson,
    ModelName,
    Models,
    Overwrite,
    SeriesUID,
    SliceIndex,
    VolumeIndex,
    console,
    say,
    say_input,
    say_json,
    say_warnings,
)
from caps_med.cli.output import check_folder_of, check_free, check_no_input
from caps_med.cli.tables import print_table
from caps_med.drafts import write_whole
from caps_med.errors import InvalidParameter


def classify(
    model: ModelName,
    files: Files = None,
    inputs: Inputs = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="JSON file for the result, including the poses of the capsules. With --input: a "
            "folder or s3:// location.",
        ),
    ] = None,
    source: archived.From = None,
    slice: SliceIndex = None,
    series: SeriesUID = None,
    volume: VolumeIndex = None,
    jobs: Jobs = None,
    cluster: OnCluster = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    json_: AsJson = False,
    models: Models = None,
) -> None:
    """Classify an image: show the probability of each class and the length of its capsule.

    Examples:
      caps-med classify --model my-lesions lesion.png
      caps-med classify --model my-lesions scan.nii.gz --slice 40 --out answer.json
      caps-med classify --model my-lesions -i pictures -o classes
    """
    if inputs:
        from caps_med.batch import ClassifyFiles

        if source:
            raise InvalidParameter("--input and --from cannot be combined: leave one out")
        batch.check_batch(series)
        if out is None:
            raise InvalidParameter("--input: give --out, the folder for the results")
        action = ClassifyFiles(model, models, slice=slice, volume=volume)
        batch.run(action, inputs, files, out, jobs=jobs, cluster=cluster, resume=resume,
                  overwrite=overwrite, as_json=json_)  # fmt: skip
        return
    given = archived.check_one(files, source, jobs=(jobs or 1) > 1, cluster=cluster, resume=resume)
    file = None if out is None else Path(out)
    if file is not None:
        if file.suffix.lower() != ".json":
            raise InvalidParameter(f"--out {out}: must be a .json file, such as answer.json")
        check_folder_of(file)
        check_no_input(file, archived.files_of(given))
        check_free([file], overwrite)
    loaded = caps_med.load_model(model, models)
    found = loaded.classify(archived.read(loaded, given, series, volume), slice)
    numbers = found.numbers()
    if file is not None:
        text = json.dumps(numbers, indent=2, ensure_ascii=False) + "\n"
        write_whole(file, text.encode())
    say_input(loaded.bundle)
    say_warnings(found.warnings)
    if json_:
        say_json(numbers)
        return
    rows = [
        (one["name"], f"{one['probability']:.1%}", f"{one['length']:.3f}")
        for one in numbers["classes"]
    ]
    headings = ("class", "probability", "length")
    print_table(console, headings, rows, right=("probability", "length"))
    what = ", ".join(found.present) or "none of the classes"
    say(f"{loaded.bundle.reference}: {what}" + (f" -> {out}" if out else ""))
