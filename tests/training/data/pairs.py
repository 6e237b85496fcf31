"""Small labelled pictures, and the arrangements in which they are written."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import nibabel
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from skimage.measure import label as connected_components

from caps_med.images import Kind, MedicalImage, write_image
from tests.images.dicom_files import dataset, encoded, placed
from training.data.samples import hold_out
from training.labelmaps.phantoms import axon_phantoms

Pixels = NDArray[np.uint8]
#: Name -> image and mask of 0 and 1, both ``[H, W]``.
Pairs = Mapping[str, tuple[Pixels, Pixels]]


def draw_pairs(count: int = 24) -> Pairs:
    """Axon phantoms, of which rows and columns cannot be mistaken for each other."""
    pairs = {}
    for i, (_, phantom) in enumerate(axon_phantoms(count, seed=3, size=32)):
        image = np.rint(phantom.image[0, 6:26, :28] * 255)
        pairs[f"axon-{i:02}"] = image.astype(np.uint8), phantom.label[0, 6:26, :28]
    return pairs


def write(array: NDArray[np.generic], path: Path, kind: Kind = "image") -> None:
    """One picture ``[H, W]``, in the format of the suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_image(MedicalImage(array[None], kind=kind, format="png"), path)


def two_folders(
    images: str, labels: str, suffix: str = ".png", word: str = ""
) -> Callable[[Path, Pairs], Path]:
    """Images in one folder, masks of 0 and 1 in another, their names ending in `word`."""

    def layout(root: Path, pairs: Pairs) -> Path:
        for name, (image, mask) in pairs.items():
            write(image, root / images / f"{name}{suffix}")
            write(mask, root / labels / f"{name}{word}{suffix}", "labels")
        return root

    return layout


def white_masks(white: np.uint8 | np.uint16) -> Callable[[Path, Pairs], Path]:
    """Masks of 0 and `white`."""

    def layout(root: Path, pairs: Pairs) -> Path:
        for name, (image, mask) in pairs.items():
            write(image, root / "images" / f"{name}.png")
            Image.fromarray(mask * white).save(_below(root / "labels" / f"{name}.png"))
        return root

    return layout


def grey_as_colour(root: Path, pairs: Pairs) -> Path:
    """Masks saved as RGB with three equal channels, as drawing programs do."""
    for name, (image, mask) in pairs.items():
        write(image, root / "images" / f"{name}.png")
        white = Image.fromarray(mask * np.uint8(255)).convert("RGB")
        white.save(_below(root / "labels" / f"{name}.png"))
    return root


def one_folder(root: Path, pairs: Pairs) -> Path:
    for name, (image, mask) in pairs.items():
        write(image, root / f"{name}.png")
        write(mask, root / f"{name}-label.tif", "labels")
    return root


def words_first(root: Path, pairs: Pairs) -> Path:
    for name, (image, mask) in pairs.items():
        write(image, root / f"IMG_{name}.png")
        write(mask, root / f"mask_{name}.png", "labels")
    return root


def folder_a_case(root: Path, pairs: Pairs) -> Path:
    for name, (image, mask) in pairs.items():
        write(image, root / name / "image.nii.gz")
        write(mask, root / name / "seg.nii.gz", "labels")
    return root


def parts(root: Path, pairs: Pairs) -> Path:
    """For validation those that are held out where nobody says which."""
    chosen = hold_out(list(pairs))
    for name, (image, mask) in pairs.items():
        part = root / ("val" if name in chosen else "train")
        write(image, part / "images" / f"{name}.png")
        write(mask, part / "labels" / f"{name}.png", "labels")
    return root


def masks_of_objects(root: Path, pairs: Pairs) -> Path:
    """A folder an image, and a mask of 0 and 255 for each of its objects."""
    for name, (image, mask) in pairs.items():
        write(image, root / name / "images" / f"{name}.png")
        ids = connected_components(mask, connectivity=1)
        for number in range(1, ids.max() + 1):
            one = Image.fromarray((ids == number).astype(np.uint8) * np.uint8(255))
            one.save(_below(root / name / "masks" / f"{7 * number:x}.png"))
    return root


def nnunet(root: Path, pairs: Pairs) -> Path:
    for name, (image, mask) in pairs.items():
        write(image, root / "imagesTr" / f"{name}_0000.nii.gz")
        write(mask, root / "labelsTr" / f"{name}.nii.gz", "labels")
    write(np.zeros((4, 4), np.uint8), root / "imagesTs" / "unseen_0000.nii.gz")
    described = {"channel_names": {"0": "light"}, "labels": {"background": 0, "axon": 1},
                 "numTraining": len(pairs), "file_ending": ".nii.gz"}  # fmt: skip
    (root / "dataset.json").write_text(json.dumps(described))
    return root


def decathlon(root: Path, pairs: Pairs) -> Path:
    for name, (image, mask) in pairs.items():
        write(image, root / "imagesTr" / f"{name}.nii.gz")
        write(mask, root / "labelsTr" / f"{name}.nii.gz", "labels")
        (root / "imagesTr" / f"._{name}.nii.gz").write_bytes(b"left by a Mac")
    described = {
        "modality": {"0": "light"},
        "labels": {"0": "background", "1": "axon"},
        "training": [
            {"image": f"./imagesTr/{name}.nii.gz", "label": f"./labelsTr/{name}.nii.gz"}
            for name in pairs
        ],
        "test": [],
    }
    (root / "dataset.json").write_text(json.dumps(described))
    return root


def json_list(root: Path, pairs: Pairs) -> Path:
    two_folders("a", "b")(root, pairs)
    path = root / "list.json"
    entries = [{"image": f"a/{name}.png", "label": f"b/{name}.png"} for name in pairs]
    path.write_text(json.dumps(entries))
    return path


def csv_list(root: Path, pairs: Pairs) -> Path:
    """With absolute and relative paths, semicolons and the mark that Excel writes first."""
    two_folders("a", "b")(root, pairs)
    path = root / "list.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["Image", "Mask"])
        rows.writerows([str(root / "a" / f"{name}.png"), f"b/{name}.png"] for name in pairs)
    return path


def npy_stacks(root: Path, pairs: Pairs) -> Path:
    images, masks = (np.stack(arrays) for arrays in zip(*pairs.values(), strict=True))
    np.save(root / "axons_data_train.npy", images[..., None])
    np.save(root / "axons_mask_train.npy", masks.astype(np.float32))
    return root


def tiff_stacks(root: Path, pairs: Pairs) -> Path:
    images, masks = zip(*pairs.values(), strict=True)
    save_pages(images, root / "original" / "axons.tif")
    save_pages([mask * np.uint8(255) for mask in masks], root / "mask" / "axons.tif")
    return root


def dicom_files(root: Path, pairs: Pairs) -> Path:
    """Without positions, as of a microscope or an X-ray."""
    for name, (image, mask) in pairs.items():
        _below(root / "images" / f"{name}.dcm").write_bytes(encoded(dataset(image)))
        write(mask, root / "masks" / f"{name}.png", "labels")
    return root


def dicom_series(root: Path, pairs: Pairs) -> Path:
    """A folder a series of one positioned slice, the file without suffix, as scanners write it."""
    for name, (image, mask) in pairs.items():
        content = encoded(dataset(image, **placed(12.5)))
        _below(root / "scans" / name / "IM000001").write_bytes(content)
        write(mask, root / "masks" / f"{name}_seg.nii.gz", "labels")
    return root


def save_pages(pages: object, path: Path) -> None:
    """A TIFF with one page an array."""
    first, *others = [Image.fromarray(page) for page in list(pages)]  # type: ignore[call-overload]
    first.save(_below(path), save_all=True, append_images=others)


def save_volume(array: NDArray[np.generic], affine: NDArray[np.float64], path: Path) -> None:
    """A NIfTI file."""
    nibabel.save(nibabel.Nifti1Image(array, affine), _below(path))


def _below(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def other_words(root: Path, pairs: Pairs) -> Path:
    return two_folders("2d_Images", "SegmentationClass")(root, pairs)


LAYOUTS: Mapping[str, Callable[[Path, Pairs], Path]] = {
    "images and labels": two_folders("images", "labels"),
    "imgs and masks": two_folders("imgs", "Masks", word="_mask"),
    "original and mask": two_folders("original", "mask", word="_seg"),
    "other words": other_words,
    "tiff": two_folders("images", "labels", ".tif"),
    "nrrd": two_folders("images", "labels", ".nrrd"),
    "npz": two_folders("images", "labels", ".npz"),
    "npy": two_folders("images", "labels", ".npy"),
    "nifti": two_folders("images", "labels", ".nii"),
    "nifti in gzip": two_folders("images", "labels", ".nii.gz", "_seg"),
    "masks of 0 and 255": white_masks(np.uint8(255)),
    "masks of 0 and 65535": white_masks(np.uint16(65535)),
    "masks in colour": grey_as_colour,
    "one folder": one_folder,
    "words first": words_first,
    "a folder a case": folder_a_case,
    "train and val": parts,
    "masks of objects": masks_of_objects,
    "nnU-Net": nnunet,
    "Decathlon": decathlon,
    "JSON list": json_list,
    "CSV list": csv_list,
    "DICOM files": dicom_files,
    "DICOM series": dicom_series,
    "npy stacks": npy_stacks,
    "TIFF of many pages": tiff_stacks,
}
