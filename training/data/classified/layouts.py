"""Layouts of classified images on disk, detected automatically.

A layout is a function that takes a path and returns the images found there, or None if it does not
apply. To add one, write the function and list it here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from caps_med.errors import InvalidInput
from training.data.cases import PARTS, FileRef, Part, Unpaired
from training.data.classified.arrays import ArrayRef, names_in, read_array
from training.data.classified.figshare import figshare_tumours
from training.data.classified.images import (
    ClassifiedImages,
    Found,
    collected,
    files_by_part,
    natural,
)
from training.data.classified.norb import small_norb
from training.data.layouts.described import (
    GROUP_KEYS,
    IMAGE_KEYS,
    PART_KEYS,
    read_json,
    read_rows,
    read_text,
    text_at,
    value_at,
    with_parts,
)
from training.data.layouts.folders import folder_pairs, pair_in
from training.data.layouts.naming import (
    LABEL_WORDS,
    as_on_disk,
    composed,
    entries,
    is_image_name,
    is_label_name,
    is_pipe,
    unnumbered,
    visible_folders,
    without,
)

#: Column headings of a CSV list, or keys of the entries of a JSON list.
_CLASS_KEYS = ("class", "classes", "class_name", "diagnosis", "category", "finding", "findings")
#: Also a heading of label maps: taken for classes where it names no files.
_LABEL_KEYS = ("label", "labels", "target")
#: Several classes in one cell of a table.
_SEPARATOR = re.compile(r"\s*[|;]\s*")
_IDX = re.compile(
    r"^(?P<part>.*?)[-_.]?(?P<kind>images|labels)[-_.]idx(?P<axes>\d)[-_.]ubyte(\.gz)?$", re.I
)
#: Names of classes, one a line, beside IDX and npz files, which hold numbers.
_NAMES = "classes.txt"
_EXAMPLE = '[{"image": "a.png", "class": "benign", "patient": "17"}, ...]'

#: A heading and the layouts, for messages.
SUPPORTED = """\
Supported layouts of images with classes:
  benign/a.png + malignant/b.png          a folder per class; also inside train/, val/ and test/
  list.csv or list.json                   columns image and class; optional patient and part;
                                          alone of its kind in the folder, or give its path
  train-images-idx3-ubyte.gz + train-labels-idx1-ubyte.gz (MNIST, Fashion-MNIST)
  smallnorb-...-training-dat.mat + ...-cat.mat + ...-info.mat (smallNORB)
  1.mat, 2.mat, ... with cjdata           brain tumour slices as published on figshare
  pathmnist.npz                           MedMNIST: train_images, train_labels, ..."""

Layout = Callable[[Path], ClassifiedImages | None]


def idx_files(folder: Path) -> ClassifiedImages | None:
    """``train-images-idx3-ubyte.gz`` with ``train-labels-idx1-ubyte.gz``, as MNIST is published."""
    if not folder.is_dir():
        return None
    files = files_by_part(folder, _IDX)
    if not any(len(pair) == 2 for pair in files.values()):
        return None
    found: list[Found] = []
    unusable: list[Unpaired] = []
    for part, pair in files.items():
        if len(pair) < 2:
            (path,) = pair.values()
            what = "has no counterpart of the same part"
            unusable.append(Unpaired(path, what, "add it or remove the file"))
            continue
        images, labels = ArrayRef(pair["images"], 0), read_array(pair["labels"])
        named = part or pair["images"].stem
        found += _of_arrays(images, labels, named, PARTS.get(part), unusable)
    names = _class_names(folder, found)
    return collected(folder, "IDX files of images and labels", found, names, unusable)


def medmnist(path: Path) -> ClassifiedImages | None:
    """``train_images`` and ``train_labels`` in an npz file, as MedMNIST is published."""
    file = path
    if path.is_dir():
        archives = sorted(one for one in path.glob("*.npz") if not is_pipe(one))
        if len(archives) != 1:
            return None
        (file,) = archives
    if file.suffix.lower() != ".npz":
        return None
    names = names_in(file)
    parts = [n.removesuffix("_images") for n in names if n.endswith("_images")]
    pairs = [part for part in parts if f"{part}_labels" in names]
    if not pairs:
        return None
    found: list[Found] = []
    unusable: list[Unpaired] = []
    for part in sorted(pairs, key=lambda p: list(PARTS).index(p) if p in PARTS else len(PARTS)):
        labels = read_array(file, f"{part}_labels")
        images = ArrayRef(file, 0, array=f"{part}_images")
        found += _of_arrays(images, labels, part, PARTS.get(part), unusable)
    named = _class_names(file.parent, found)
    return collected(path, "npz of images and labels (MedMNIST)", found, named, unusable)


def class_list(path: Path) -> ClassifiedImages | None:
    """A CSV or JSON list with an image and its class, or classes, in each entry."""
    kind = path.suffix.lower()
    if not path.is_file() or kind not in (".json", ".csv", ".tsv"):
        return None
    content = read_json(path) if kind == ".json" else read_rows(path)
    described = content if isinstance(content, Mapping) else {}
    items = described.get("images") if described else content
    items = [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    if not any(_classes(item, path.parent) is not None for item in items):
        return None
    declared = described.get("classes")
    names = [str(name) for name in declared] if isinstance(declared, list) else None
    found: list[Found] = []
    unusable: list[Unpaired] = []
    for number, (item, folds) in enumerate(with_parts(items), 1):
        entry = _entry(item, number, path, names)
        if isinstance(entry, Found):
            found.append(entry._replace(folds=folds))
        else:
            unusable.append(entry)
    return collected(path, f"{kind[1:].upper()} list of classes", found, names, unusable)


def list_inside(folder: Path) -> ClassifiedImages | None:
    """A folder with one list of classes whose images exist, such as ``labels.csv``."""
    lists, _ = _lists_inside(folder)
    if len(lists) != 1:
        return None
    (listed,) = lists
    return replace(
        listed, name=folder.resolve().name, layout=f"{listed.layout}, {listed.root.name}"
    )


def _lists_inside(folder: Path) -> tuple[list[ClassifiedImages], list[InvalidInput]]:
    """The lists of classes in a folder, and why others cannot be read; other tables are not."""
    found: list[ClassifiedImages] = []
    failed: list[InvalidInput] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            listed = class_list(path)
        except InvalidInput as error:
            failed.append(error)
            continue
        if listed is not None and listed.images:
            found.append(listed)
    return found, failed


def class_folders(folder: Path) -> ClassifiedImages | None:
    """A folder per class; inside ``train``, ``val`` and ``test`` where these exist.

    Label maps beside their images (``a_mask.png``), or in a folder beside that of the images, are
    no images of a class.
    """
    if not folder.is_dir() or _pair_names(folder):
        return None
    inside = visible_folders(folder)
    parts = [f for f in inside if f.name.lower() in PARTS]
    classes: list[tuple[Path, Part | None]] = [
        (each, PARTS[part.name.lower()]) for part in parts for each in visible_folders(part)
    ]
    if not parts:
        classes = [(each, None) for each in inside]
    found: list[Found] = []
    unusable: list[Unpaired] = []
    masks: list[Path] = []
    for each, part in classes:
        pictures, labels = pair_in(each) or (each, None)
        files, bad = entries(pictures)
        unusable += bad
        masks += [e.path for e in entries(labels)[0]] if labels else []
        stems = {entry.stem for entry in files}
        masks += (e.path for e in files if _is_mask(e.stem, stems))
        images = (e.path for e in files if not _is_mask(e.stem, stems))
        found += [_of_folder(path, each, pictures, folder, part) for path in images]
    names = sorted(dict.fromkeys(composed(each.name) for each, _ in classes), key=natural)
    if not found or len(names) < 2 - bool(parts):
        return None
    layout = collected(folder, "a folder per class", found, names, unusable)
    return replace(layout, strangers=tuple(masks))


#: The first layout that applies is used; those in `CERTAIN` can be nothing else.
CERTAIN: tuple[Layout, ...] = (
    idx_files, small_norb, figshare_tumours, medmnist, class_list,
)  # fmt: skip
LAYOUTS: tuple[Layout, ...] = (*CERTAIN, list_inside, class_folders)


def discover(path: Path, layouts: Iterable[Layout] = LAYOUTS) -> ClassifiedImages | None:
    """The classified images in a folder, list or archive; None if no layout applies.

    Raises:
        InvalidInput: labels or a list cannot be read.
    """
    return next((found for layout in layouts if (found := layout(path)) is not None), None)


def hint(path: Path) -> str:
    """What is amiss where no layout applies, if that can be told; else empty."""
    if not path.is_dir():
        return ""
    lists, failed = _lists_inside(path)
    if len(lists) > 1:
        names = ", ".join(listed.root.name for listed in lists)
        return f"There are several lists of classes, {names}: give the path of one."
    if failed:
        return f"{failed[0]}."
    if pair := _pair_names(path):
        return f"{pair} are folders of images and label maps for segmentation, not of classes."
    folders = [folder for folder in visible_folders(path) if entries(folder)[0]]
    if len(folders) == 1 or (not folders and entries(path, deep=False)[0]):
        where = f"in {folders[0].name}/" if folders else "outside folders of classes"
        return (
            f"All images are {where}: to classify them, put the images of each class (at least two "
            "classes) into a folder of their own."
        )
    return ""


def _of_arrays(
    images: ArrayRef, labels: np.ndarray[Any, Any], name: str, part: Part | None,
    unusable: list[Unpaired],
) -> Iterator[Found]:  # fmt: skip
    """The pictures of one array; labels ``[N]``, ``[N, 1]`` or, several classes, ``[N, J]``."""
    count = len(read_array(images.path, images.array))
    if labels.ndim not in (1, 2) or len(labels) != count or labels.dtype.kind not in "iub":
        what = f"holds {count} pictures, but their labels have the shape {labels.shape}"
        unusable.append(
            Unpaired(images.path, what, "provide one whole number, or one row, per picture")
        )
        return
    several = labels.ndim == 2 and labels.shape[1] > 1
    strange = labels[(labels < 0) | (labels > 1)] if several else labels[labels < 0]
    if strange.size:
        where = "in a row" if several else "of a class"
        fix = "write 1 or 0 for each class" if several else "count classes from 0"
        what = f"holds the label {int(strange.flat[0])} {where}"
        unusable.append(Unpaired(images.path, what, fix))
        return
    rows = labels.astype(int).tolist() if several else labels.reshape(-1).astype(int).tolist()
    digits = len(str(max(count - 1, 0)))
    names: dict[Any, tuple[str, ...]] = {}
    for index, row in enumerate(rows):
        key = tuple(row) if several else row
        if key not in names:
            present = [k for k, on in enumerate(row) if on] if several else [row]
            names[key] = tuple(map(str, present))
        ref = ArrayRef(images.path, index, array=images.array)
        yield Found(f"{name}-{index:0{digits}}", ref, names[key], "", part)


def _class_names(folder: Path, found: list[Found]) -> list[str] | None:
    """Replace the numbers of classes by the lines of ``classes.txt``, if it is there.

    Raises:
        InvalidInput: it has too few lines, or is not UTF-8 text.
    """
    file = folder / _NAMES
    if not file.is_file():
        return None
    names = [line.strip() for line in read_text(file).splitlines() if line.strip()]
    highest = max((int(n) for each in found for n in each.classes), default=-1)
    if highest >= len(names) or len(set(names)) < len(names):
        raise InvalidInput(
            f"{file}: {len(set(names))} different names, but the labels run to {highest}: write "
            "one name per line"
        )
    found[:] = [each._replace(classes=tuple(names[int(n)] for n in each.classes)) for each in found]
    return names


def _entry(
    item: Mapping[Any, Any], number: int, path: Path, declared: list[str] | None
) -> Found | Unpaired:
    """One entry of a list, or what is wrong with it."""
    image, classes = value_at(item, IMAGE_KEYS), _classes(item, path.parent)
    if not isinstance(image, str) or not image.strip():
        what = f"entry {number} of the list does not name an image"
        if path.suffix == ".json":
            return Unpaired(path, what, f"write it like {_EXAMPLE}")
        columns = ", ".join(str(name) for name in item if name)
        fix = f"its header row needs the columns image and class, but has {columns}"
        return Unpaired(path, what, fix)
    file = as_on_disk(path.parent / image.strip())
    if not file.exists():
        what = f"is named in entry {number} of the list but does not exist"
        return Unpaired(file, what, "correct the path (relative to the folder of the list)")
    if classes is None or (not classes and not isinstance(value_at(item, _CLASS_KEYS), list)):
        what = f"has no class in entry {number} of the list"
        return Unpaired(file, what, "name its class or remove the entry")
    unknown = [name for name in classes if declared is not None and name not in declared]
    if unknown:
        what = f"has the class {unknown[0]!r} in entry {number}, which the list does not declare"
        return Unpaired(file, what, f"correct it to one of {', '.join(declared or ())}")
    part = text_at(item, PART_KEYS).lower()
    if part and part not in PARTS:
        what = f"is in the part {part!r} in entry {number} of the list"
        return Unpaired(file, what, "name one of train, validation and test")
    group = text_at(item, GROUP_KEYS)
    return Found(image.strip(), FileRef(file), classes, group, PARTS.get(part))


def _classes(item: Mapping[Any, Any], base: Path) -> tuple[str, ...] | None:
    """The classes of an entry; None if it names none, or a label map instead."""
    value = value_at(item, _CLASS_KEYS)
    if value is None:
        value = value_at(item, _LABEL_KEYS)
        if isinstance(value, str) and _names_file(base / value.strip()):
            return None
    if isinstance(value, list):
        return tuple(dict.fromkeys(str(name).strip() for name in value))
    if value is None or isinstance(value, Mapping):
        return None
    names = [name for name in _SEPARATOR.split(str(value).strip()) if name]
    return tuple(dict.fromkeys(names)) or None


def _names_file(path: Path) -> bool:
    """Whether a label is that of a label map, which may be missing, and no class."""
    return is_image_name(path) or path.is_file()


def _of_folder(
    file: Path, class_folder: Path, images: Path, root: Path, part: Part | None
) -> Found:
    """An image below the folder of its class; a folder below that of the images is its patient."""
    between = file.relative_to(images).parts[:-1]
    group = composed(between[0]) if between else ""
    name = composed(file.relative_to(root).as_posix())
    return Found(name, FileRef(file), (composed(class_folder.name),), group, part)


def _pair_names(folder: Path) -> str:
    """The folders of images and of label maps, if there are such; else empty."""
    try:
        pairs = folder_pairs(folder)
    except InvalidInput:
        return "Some"
    return " and ".join(f"{p.relative_to(folder).as_posix()}/" for p in pairs[0]) if pairs else ""


def _is_mask(stem: str, stems: Collection[str]) -> bool:
    """Whether a file is one of the label maps, perhaps numbered ones, of an image beside it."""
    names = (stem, unnumbered(stem))
    return any(is_label_name(name) and without(LABEL_WORDS, name) in stems for name in names)
