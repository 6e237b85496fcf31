"""Layouts of labelled images on disk, detected automatically.

A layout is a function that takes a path and returns the cases found there, or None if it does not
apply. To add one, write the function and list it here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from caps_med.errors import InvalidInput
from caps_med.images import names_beside
from training.data.cases import Case, Cases, FileRef
from training.data.copies import with_copies_joined
from training.data.layouts.described import (
    DESCRIPTION,
    SPLITS,
    data_list,
    decathlon,
    nnunet,
    nnunet_list,
)
from training.data.layouts.folders import (
    no_label_maps,
    one_folder,
    paired_folders,
    pairs_in_subfolders,
)
from training.data.layouts.naming import entries, name_of
from training.data.layouts.objects import masks_of_objects
from training.data.layouts.stacks import npy_stacks, with_stacks
from training.data.segments import with_segments
from training.data.unsupported import unsupported

Layout = Callable[[Path], Cases | None]

#: The first layout that applies is used.
FILES: tuple[Layout, ...] = (data_list,)
FOLDERS: tuple[Layout, ...] = (
    decathlon,
    nnunet_list,
    nnunet,
    npy_stacks,
    paired_folders,
    one_folder,
    masks_of_objects,
    pairs_in_subfolders,
)

#: A heading and the layouts, for messages.
SUPPORTED = """\
Supported layouts of images with label maps:
  images/a.png + labels/a.png             also imgs/masks, original/mask; a_seg, a_mask, a-label;
                                          also in folders of patients or findings
  a.png + a_mask.png                      side by side, or one folder per case
  a/images/a.png + a/masks/*.png          one mask for each object (Data Science Bowl 2018)
  imagesTr/a_0000.nii.gz + labelsTr/a.nii.gz (nnU-Net, Medical Segmentation Decathlon)
  NAME_data_train.npy + NAME_mask_train.npy
  list.json or list.csv                   with the image and label of each case (give its path)"""


class UnknownLayout(InvalidInput):
    """No layout fits."""


def discover(path: Path) -> Cases:
    """Find the labelled images in a folder or list, without reading any pixels.

    Files without a counterpart are listed in `Cases.unpaired`.

    Raises:
        UnknownLayout: no layout fits; the message lists what was found and the supported layouts.
        InvalidInput: the path does not exist, or its description is invalid.
    """
    path = Path(path)
    if not path.exists():
        raise InvalidInput(f"{path}: no such file or folder")
    for layout in FOLDERS if path.is_dir() else FILES:
        found = layout(path)
        if found is not None:
            named = replace(found, name=name_of(path)) if path.is_dir() else found
            cases = with_copies_joined(with_segments(with_stacks(named)))
            return replace(cases, strangers=_strangers(cases))
    raise UnknownLayout(unsupported(path, SUPPORTED, hint=no_label_maps(path)))


def _strangers(cases: Cases) -> tuple[Path, ...]:
    """Files in the folders of the cases that belong to none; of a list there are none."""
    if not cases.root.is_dir():
        return ()
    refs = [ref for case in cases.cases for ref in (*case.images, case.label)]
    read = {path for ref in refs for path in (ref.path, *ref.objects)}
    used = read | {path.with_name(name) for path in read for name in names_beside(path.name)}
    used |= {one.path for one in cases.unpaired} | {
        cases.root / DESCRIPTION,
        cases.root / SPLITS,
    }
    folders = {cases.root, *(path.parent for path in used if path.is_relative_to(cases.root))}
    files = (path for folder in folders for path in folder.iterdir() if path.is_file())
    return tuple(sorted(path for path in files if path not in used))


def label_maps_alone(path: Path) -> Cases | None:
    """Find label maps without images, in a folder or in its subfolder ``labels``."""
    folder = path / "labels" if (path / "labels").is_dir() else path
    if not folder.is_dir():
        return None
    found, _ = entries(folder, deep=False)
    cases = tuple(Case(e.stem, (), FileRef(e.path)) for e in sorted(found, key=lambda e: e.stem))
    return with_segments(Cases(name_of(path), path, "label maps alone", cases)) if cases else None


__all__ = [
    "FILES",
    "FOLDERS",
    "SUPPORTED",
    "Layout",
    "UnknownLayout",
    "discover",
    "label_maps_alone",
]
