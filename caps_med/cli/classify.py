"""``caps-med classify``: from an image to the probabilities of its classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import caps_med
from caps_med.cli.options import (
    AsJson,
    Images,
    ModelName,
    Models,
    Overwrite,
    SliceIndex,
    console,
    errors,
    say,
    say_input,
    say_json,
)
from caps_med.cli.output import check_free
from caps_med.cli.tables import print_table
from caps_med.errors import InvalidParameter


def classify(
    images: Images,
    model: ModelName,
    out: Annotated[
        Path | None, typer.Option(help="Write the answer with poses to this .json file.")
    ] = None,
    slice: SliceIndex = None,
    overwrite: Overwrite = False,
    json_: AsJson = False,
    models: Models = None,
) -> None:
    """Classify an image: the probability of each class, and the length of its capsule.

    Examples:
      caps-med classify --model my-lesions lesion.png
      caps-med classify --model my-lesions scan.nii.gz --slice 40 --out answer.json
    """
    if out is not None:
        if out.suffix.lower() != ".json":
            raise InvalidParameter(f"--out {out}: name a .json file")
        check_free([out], overwrite)
    loaded = caps_med.load_model(model, models)
    found = loaded.classify(images, slice)
    numbers = found.numbers()
    if out is not None:
        out.write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    say_input(loaded.bundle)
    for note in found.warnings:
        say(f"note: {note}", errors)
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
