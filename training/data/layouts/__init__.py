"""Arrangements of labelled images on disk, recognized by themselves.

Each layout looks at a path and says which cases it finds, or None where it does not apply. To add
one, write it and list it here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from caps_med.errors import InvalidInput
from training.data.cases import Case, Cases, FileRef
from training.data.layouts.described import data_list, decathlon, nnunet
from training.data.layouts.folders import one_folder, paired_folders
from training.data.layouts.naming import entries
from training.data.layouts.stacks import npy_stacks, with_stacks

Layout = Callable[[Path], Cases | None]

#: The first that applies is taken.
FILES: tuple[Layout, ...] = (data_list,)
FOLDERS: tuple[Layout, ...] = (decathlon, nnunet, npy_stacks, paired_folders, one_folder)

_UNDERSTOOD = """\
  images/a.png + labels/a.png             also imgs/masks, original/mask; a_seg, a_mask, a-label
  a.png + a_mask.png                      beside each other, or a folder a case
  imagesTr/a_0000.nii.gz + labelsTr/a.nii.gz (nnU-Net, Medical Segmentation Decathlon)
  NAME_data_train.npy + NAME_mask_train.npy
  list.json or list.csv                   with image and label of every case (give its path)"""
_SHOWN = 8


def discover(path: Path) -> Cases:
    """The labelled images in a folder or a list; no pixel is read.

    What found no counterpart is kept in `Cases.unpaired`.

    Raises:
        InvalidInput: there is nothing, it has no arrangement that is understood, or its
            description is broken; the message says what was found and what would be understood.
    """
    path = Path(path)
    if not path.exists():
        raise InvalidInput(f"{path}: there is no such folder or file")
    for layout in FOLDERS if path.is_dir() else FILES:
        found = layout(path)
        if found is not None:
            return with_stacks(found)
    raise InvalidInput(
        f"{path}: images with label maps are not recognized. Found: {_content(path)}.\n"
        f"Understood are:\n{_UNDERSTOOD}"
    )


def label_maps_alone(path: Path) -> Cases | None:
    """Label maps without images, in a folder or in its folder ``labels``."""
    folder = path / "labels" if (path / "labels").is_dir() else path
    if not folder.is_dir():
        return None
    found, _ = entries(folder, deep=False)
    cases = tuple(Case(e.stem, (), FileRef(e.path)) for e in sorted(found, key=lambda e: e.stem))
    return Cases(path.name, path, "label maps alone", cases) if cases else None


def _content(path: Path) -> str:
    if path.is_file():
        return "a file that is no .json or .csv list"
    names = sorted(p.name + "/" * p.is_dir() for p in path.iterdir() if p.name[0] != ".")
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "nothing"


__all__ = ["FILES", "FOLDERS", "Layout", "discover", "label_maps_alone"]
