"""Masks of one object each, in a folder for each image, as of the Data Science Bowl 2018."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from caps_med.errors import InvalidInput
from caps_med.wording import counted, listed
from training.data.cases import PARTS, Case, Cases, FileRef, Part, Unpaired
from training.data.layouts.folders import READ_PARTS, pair_in
from training.data.layouts.naming import Entry, composed, entries, visible_folders
from training.data.layouts.pairing import finished, paired

#: Most names of masks that an error lists.
_LISTED = 4
#: Of a competition, before the name of a part: ``stage1_train``.
_STAGE = re.compile(r"^stage\d+_")
_FIX = "name them images and masks, or remove the folder"


class _Folder(NamedTuple):
    """Of one image: its part, the folder of its masks, and what is in the two folders."""

    path: Path
    part: Part | None
    labels: Path
    images: list[Entry]
    masks: list[Entry]
    unusable: list[Unpaired]

    @property
    def of_objects(self) -> bool:
        """Whether there is one image, and no mask is named like it, as a label map would be."""
        return len(self.images) == 1 and not paired(self.images, self.masks).cases

    def case(self) -> Case | Unpaired:
        """The case, or why there is none."""
        if len(self.images) != 1:
            what = f"has {counted(len(self.images), 'image')}, but the others have one"
            return Unpaired(self.path, what, "give each image a folder of its own")
        image = self.images[0].path
        if not self.masks:
            fix = "add a mask (all 0 if there is no object), or remove the image"
            return Unpaired(image, f"has no masks in {self.labels.name}/", fix)
        label = FileRef(self.labels, objects=tuple(entry.path for entry in self.masks))
        return Case(composed(self.path.name), (FileRef(image),), label, part=self.part)


def masks_of_objects(folder: Path) -> Cases | None:
    """``a/images/a.png`` with ``a/masks/*.png``, also in ``train/`` and ``val/``.

    Raises:
        InvalidInput: masks have the same names in several folders, as those of classes have.
    """
    places = list(_places(folder))
    found = [one for one in (_folder(path, part) for path, part in places) if one is not None]
    several = any(one.of_objects and len(one.masks) > 1 for one in found)
    if not several or 2 * sum(one.of_objects for one in found) <= len(found):
        return None
    _check_names(folder, found)
    cases = [one.case() for one in found]
    known = {one.path for one in found}
    others = (path for path, _ in places if path not in known and entries(path)[0])
    return Cases(
        folder.name,
        folder,
        f"one mask for each object, as in {found[0].labels.relative_to(folder).as_posix()}/",
        finished([case for case in cases if isinstance(case, Case)]),
        unpaired=(
            *(case for case in cases if isinstance(case, Unpaired)),
            *(one for each in found for one in each.unusable),
            *(Unpaired(path, "has no folders of images and masks", _FIX) for path in others),
        ),
        instances="binary",
    )


def _places(folder: Path) -> Iterator[tuple[Path, Part | None]]:
    """The folders of images, with the part that they are in."""
    for one in visible_folders(folder):
        name = _STAGE.sub("", one.name.lower())
        if name in READ_PARTS:
            yield from ((below, READ_PARTS[name]) for below in visible_folders(one))
        elif name not in PARTS:
            yield one, None


def _folder(path: Path, part: Part | None) -> _Folder | None:
    """A folder that holds one of images and one of masks."""
    pair = pair_in(path)
    if pair is None:
        return None
    (images, unusable), (masks, more) = map(entries, pair)
    return _Folder(path, part, pair[1], images, masks, [*unusable, *more])


def _check_names(folder: Path, found: Sequence[_Folder]) -> None:
    """Names without numbers that masks of several images have are those of classes."""
    names = Counter(mask.stem for one in found for mask in one.masks)
    classes = [name for name, count in sorted(names.items()) if count > 1 and not _numbered(name)]
    if len(classes) > 1:
        raise InvalidInput(
            f"{folder}: the masks of several images have the names {listed(classes, _LISTED)}, "
            "like classes rather than objects: merge the masks of an image into one label map with "
            "an id for each class"
        )


def _numbered(name: str) -> bool:
    return any(character.isdigit() for character in name)
