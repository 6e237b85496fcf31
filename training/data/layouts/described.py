"""Data sets with a description: nnU-Net and Decathlon folders, JSON and CSV lists."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from caps_med.errors import InvalidInput
from training.data.cases import PARTS, Case, Cases, FileRef, Part, Unpaired
from training.data.layouts.naming import as_on_disk, by_key, entries, is_pipe, stem_of
from training.data.layouts.pairing import finished

_CHANNEL = re.compile(r"_\d{4}$")
DESCRIPTION = "dataset.json"
#: Where nnU-Net keeps the folds of its cross-validation.
SPLITS = "splits_final.json"
#: Column headings of a CSV list, or keys of the entries of a JSON list.
IMAGE_KEYS = (
    "image",
    "images",
    "img",
    "input",
    "scan",
    "image_path",
    "filename",
    "file_name",
    "file",
    "path",
)
_LABEL_KEYS = (
    "label",
    "labels",
    "mask",
    "seg",
    "segmentation",
    "target",
    "label_path",
    "mask_path",
)
GROUP_KEYS = ("group", "patient", "subject", "patient_id", "subject_id", "volume")
PART_KEYS = ("part", "split", "subset", "set")
_FOLD_KEYS = ("fold",)
_NAME_KEYS = ("name", "case", "id", "case_id")
#: A number with more digits than this is not a label id.
_MAX_DIGITS = 9
_EXAMPLE = '[{"image": "a.png", "label": "a_seg.png"}, ...]'
_SPLITS_EXAMPLE = '[{"train": ["a", ...], "val": ["b", ...]}, ...]'


def nnunet(folder: Path) -> Cases | None:
    """``imagesTr/case_0000.nii.gz`` with ``labelsTr/case.nii.gz``, names in ``dataset.json``.

    The folds are those in ``splits_final.json``, if that is there, the parts those of the first.
    """
    images, labels = folder / "imagesTr", folder / "labelsTr"
    if not (images.is_dir() and labels.is_dir()):
        return None
    description = _description(folder)
    (left, unusable), (right, more) = entries(images, deep=False), entries(labels, deep=False)
    by_stem = by_key(right, lambda entry: entry.stem)
    channels = by_key(left, lambda e: e.stem if e.stem in by_stem else _CHANNEL.sub("", e.stem))
    parts, folds = _parts(folder)
    cases, unpaired = [], [*unusable, *more]
    unpaired += _unknown({*parts, *folds}, {*channels, *by_stem}, folder, "imagesTr")
    for stem, files in channels.items():
        found = by_stem.pop(stem, [])
        if len(found) == 1:
            refs = tuple(FileRef(e.path) for e in sorted(files))
            part, held = parts.get(stem), folds.get(stem, ())
            cases.append(Case(stem, refs, FileRef(found[0].path), part=part, folds=held))
        else:
            what = f"has {'several label maps' if found else 'no label map'} {stem} in labelsTr"
            unpaired += [
                Unpaired(e.path, what, "provide exactly one with that name") for e in files
            ]
    for stem, files in by_stem.items():
        what = f"has no image {stem}_0000 in imagesTr"
        unpaired += [Unpaired(e.path, what, "add the image or remove the label map") for e in files]
    return _with_names(folder, "nnU-Net", cases, unpaired, description)


def nnunet_list(folder: Path) -> Cases | None:
    """nnU-Net's ``dataset.json`` whose ``dataset`` names the files of each case, see `nnunet`."""
    description = _description(folder)
    named = description.get("dataset")
    if not (isinstance(named, Mapping) and any(isinstance(e, Mapping) for e in named.values())):
        return None
    parts, folds = _parts(folder)
    items = [
        {**entry, "name": name, "part": parts.get(name)} if isinstance(entry, Mapping) else entry
        for name, entry in named.items()
    ]
    listed, unpaired = _listed(items, folder)
    cases = [replace(case, folds=folds.get(case.name, ())) for case in listed]
    unpaired += _unknown({*parts, *folds}, named, folder, DESCRIPTION)
    return _with_names(folder, "nnU-Net", cases, unpaired, description)


def decathlon(folder: Path) -> Cases | None:
    """``dataset.json`` whose list ``training`` names existing files; also ``validation``."""
    description = _description(folder)
    if not isinstance(description.get("training"), list):
        return None
    cases, missing = _listed(_decathlon_entries(folder / DESCRIPTION), folder)
    if not cases and (folder / "imagesTr").is_dir():
        return None  # nnU-Net's first version lists cases without channel numbers
    return _with_names(folder, "Medical Segmentation Decathlon", cases, missing, description)


def data_list(path: Path) -> Cases | None:
    """A JSON or CSV file with one entry per case; paths may be relative to its folder."""
    kind = path.suffix.lower()
    if not path.is_file() or kind not in (".json", ".csv", ".tsv"):
        return None
    if kind != ".json":
        return _of_list(path, _rows(path), {})
    content = read_json(path)
    if path.name == DESCRIPTION and (named := nnunet_list(path.parent)):
        return named
    if isinstance(content, Mapping):
        found = _decathlon_entries(path) if "training" in content else []
        description: Mapping[str, Any] = content
    else:
        found, description = content if isinstance(content, list) else [], {}
    if not found:
        raise InvalidInput(f"{path}: contains no list of cases: write {_EXAMPLE}")
    return _of_list(path, found, description)


def _of_list(path: Path, items: Sequence[Any], description: Mapping[str, Any]) -> Cases:
    cases, missing = _listed(items, path.parent)
    whole = _with_names(path, f"{path.suffix[1:].upper()} list", cases, missing, description)
    return replace(whole, has_test=any(_part_of(item) == "test" for item in items))


def _with_names(
    path: Path,
    layout: str,
    cases: Iterable[Case],
    unpaired: Iterable[Unpaired],
    description: Mapping[str, Any],
) -> Cases:
    name = path.stem if path.is_file() else path.name
    channels = description.get("channel_names") or description.get("modality") or {}
    if isinstance(channels, Mapping):
        channels = [channels[key] for key in sorted(channels, key=lambda k: (len(k), k))]
    return Cases(
        name, path, layout, finished(list(cases)), _label_names(description),
        tuple(map(str, channels)), tuple(unpaired),
    )  # fmt: skip


def _label_names(description: Mapping[str, Any]) -> dict[int, str]:
    """Id -> name, from ``{"1": "liver"}`` (Decathlon) or ``{"liver": 1}`` (nnU-Net).

    A region of several ids (nnU-Net's ``"tumour": [1, 2]``) is ignored.
    """
    names: dict[int, str] = {}
    labels = description.get("labels")
    for key, value in labels.items() if isinstance(labels, Mapping) else ():
        for number, name in ((key, value), (value, key)):
            digits = str(number)
            if isinstance(number, int | str) and digits.isdecimal() and len(digits) <= _MAX_DIGITS:
                names[int(digits)] = str(name)
                break
    return dict(sorted(names.items()))


def _description(folder: Path) -> Mapping[str, Any]:
    path = folder / DESCRIPTION
    if not path.is_file():
        return {}
    content = read_json(path)
    if not isinstance(content, Mapping):
        raise InvalidInput(f"{path}: must be an object with labels and channel_names")
    return content


def _parts(folder: Path) -> tuple[dict[str, Part], dict[str, tuple[int, ...]]]:
    """Of nnU-Net's cross-validation: case -> part in the first fold, and the folds that hold it
    out; empty if it has none.
    """
    path = folder / SPLITS
    content = read_json(path) if path.is_file() else []
    wrong = InvalidInput(f"{path}: must be a list of folds like {_SPLITS_EXAMPLE}")
    if not isinstance(content, list) or (path.is_file() and not content):
        raise wrong
    parts: dict[str, Part] = {}
    folds: dict[str, tuple[int, ...]] = {}
    for number, fold in enumerate(content):
        for key in ("train", "val"):
            names = fold.get(key) if isinstance(fold, Mapping) else None
            if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
                raise wrong
            if number == 0:
                parts |= dict.fromkeys(names, PARTS[key])
            if key == "val":
                folds |= {name: (*folds.get(name, ()), number) for name in names}
    return parts, folds


def _unknown(
    parts: Iterable[str], known: Iterable[str], folder: Path, where: str
) -> list[Unpaired]:
    """The names of cases in nnU-Net's folds that no case has."""
    fix = "add the case or take its name out"
    return [
        Unpaired(folder / SPLITS, f"names the case {name}, which is not in {where}", fix)
        for name in sorted({*parts} - {*known})
    ]


def read_json(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """The content of a JSON file.

    Raises:
        InvalidInput: it is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: cannot be read as JSON: {error}") from error


def _decathlon_entries(path: Path) -> list[Any]:
    """The entries of ``training`` and ``validation``, their paths made absolute."""
    from monai.data import load_decathlon_datalist

    content, found = read_json(path), []
    for key in ("training", "validation"):
        if key != "training" and not content.get(key):
            continue
        try:
            listed = load_decathlon_datalist(str(path.absolute()), data_list_key=key)
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidInput(f"{path}: {key} must be a list like {_EXAMPLE}: {error}") from error
        part = {"part": key} if content.get("validation") else {}
        found += [{**part, **entry} if isinstance(entry, Mapping) else entry for entry in listed]
    return found


def read_text(path: Path) -> str:
    """The content of a text file.

    Raises:
        InvalidInput: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: cannot be read as text: {error}") from error


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table, see `delimiter_of`.

    Raises:
        InvalidInput: it cannot be read as text, or is no table.
    """
    text = read_text(path)
    try:
        return list(csv.DictReader(text.splitlines(), delimiter=delimiter_of(text)))
    except csv.Error as error:
        raise InvalidInput(
            f"{path}: cannot be read as a table: {error}: is a quotation mark not closed?"
        ) from error


def delimiter_of(table: str) -> str:
    """The delimiter of a table: the most frequent candidate in its header row."""
    return max("\t;,", key=table.partition("\n")[0].count)


def _rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table with the columns image and label."""
    rows = read_rows(path)
    titles = {title: "x" for title in (rows[0] if rows else {}) if title}
    if not (value_at(titles, IMAGE_KEYS) and value_at(titles, _LABEL_KEYS)):
        raise InvalidInput(
            f"{path}: needs a header row with the columns image and label (optionally group and "
            "name), or, of images with classes, image and class, and one row per case; its "
            f"columns: {', '.join(titles) or 'none'}"
        )
    return rows


def with_parts(items: Iterable[Any]) -> list[tuple[Any, tuple[int, ...]]]:
    """The entries of a list, each with the folds that hold it out; see `Case.folds`.

    Those of its first fold are for validation, unless others are. MONAI's Auto3DSeg, too, holds out
    the first fold where nothing else is said.
    """
    entries = list(items)
    parts = [_part_of(entry) for entry in entries]
    named = [
        text_at(entry, _FOLD_KEYS) if isinstance(entry, Mapping) and part in ("", "train") else ""
        for entry, part in zip(entries, parts, strict=True)
    ]
    order = sorted(set(filter(None, named)), key=lambda fold: (len(fold), fold))
    if "validation" in parts:
        order = []
    numbers = {fold: number for number, fold in enumerate(order)}
    return [
        ({**entry, "part": "train" if numbers[fold] else "validation"}, (numbers[fold],))
        if fold in numbers
        else (entry, ())
        for entry, fold in zip(entries, named, strict=True)
    ]


def _part_of(entry: object) -> str:
    """The part that an entry names, in the word for it used here if it is known."""
    named = text_at(entry, PART_KEYS).lower() if isinstance(entry, Mapping) else ""
    return PARTS.get(named, named)


def _listed(items: Iterable[Any], base: Path) -> tuple[list[Case], list[Unpaired]]:
    """The cases of a list but for those of its test part, and what cannot be used."""
    cases, unpaired = [], []
    for number, (item, folds) in enumerate(with_parts(items), 1):
        entry = item if isinstance(item, Mapping) else {}
        images, label = (
            _paths(value_at(entry, IMAGE_KEYS), base),
            _paths(value_at(entry, _LABEL_KEYS), base),
        )
        if not images or len(label) != 1:
            where = images[0] if images else base
            what = f"entry {number} of the list does not name an image and one label map"
            unpaired.append(Unpaired(where, what, f"write it like {_EXAMPLE}"))
            continue
        part = text_at(entry, PART_KEYS).lower()
        if part and part not in PARTS:
            what = f"is in the part {part!r} in entry {number} of the list"
            unpaired.append(Unpaired(images[0], what, "name one of train, validation and test"))
            continue
        if PARTS.get(part) == "test":
            continue
        missing = [p for p in (*images, *label) if not p.exists() or is_pipe(p)]
        fix = "correct the path (relative to the folder of the list) or remove the entry"
        for path in missing:
            reason = "is a pipe or a device" if path.exists() else "does not exist"
            what = f"is named in entry {number} of the list but {reason}"
            unpaired.append(Unpaired(path, what, fix))
        if not missing:
            name = text_at(entry, _NAME_KEYS) or stem_of(images[0])
            refs = tuple(FileRef(path) for path in images)
            group = text_at(entry, GROUP_KEYS)
            known = PARTS.get(part)
            cases.append(Case(name, refs, FileRef(label[0]), group, part=known, folds=folds))
    return cases, unpaired


def value_at(entry: Mapping[Any, Any], keys: Iterable[str]) -> object:
    """The value of the first of `keys` in the entry, ignoring case; 0 is a value, "" is none."""
    folded = {str(key).strip().casefold(): value for key, value in entry.items()}
    return next((folded[key] for key in keys if folded.get(key) not in (None, "")), None)


def text_at(entry: Mapping[Any, Any], keys: Iterable[str]) -> str:
    """The value of the first of `keys` in the entry as text; empty if there is none."""
    value = value_at(entry, keys)
    return "" if value is None else str(value).strip()


def _paths(value: Any, base: Path) -> list[Path]:  # noqa: ANN401
    """One path, or several (one per channel)."""
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, str) and part.strip() for part in parts):
        return []
    return [as_on_disk(base / part.strip()) for part in parts]
