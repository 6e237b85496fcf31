from __future__ import annotations

import csv
import io
from pathlib import Path

import nibabel as nib
import nrrd
import numpy as np
import pytest

from caps_med.errors import InvalidParameter
from caps_med.images import (
    MedicalImage,
    encode_image,
    label_description,
    read_image,
    write_label_description,
)


def test_itk_snap_reads_names_and_colours() -> None:
    """As ITK-SNAP does: comments begin with #, fields are separated by blanks, names quoted."""
    palette = np.array([[0, 0, 0], [1, 2, 3], [40, 50, 60]], np.uint8)
    text = label_description({0: "background", 1: 'the "inner" core', 2: "grey matter"}, palette)
    lines = [" ".join(x.split()) for x in text.splitlines() if not x.startswith("#")]
    rows = list(csv.reader(lines, delimiter=" "))
    assert rows == [
        ["0", "0", "0", "0", "0", "0", "0", "Clear Label"],
        ["1", "1", "2", "3", "1", "1", "1", "the 'inner' core"],
        ["2", "40", "50", "60", "1", "1", "1", "grey matter"],
    ]


@pytest.mark.parametrize("label", [256, 512, 2**24])
def test_only_the_background_is_black(label: int) -> None:
    array = np.array([0, label], np.uint32).reshape(1, 2, 1, 1)
    image = MedicalImage(array, kind="labels", names={label: "lesion"})
    (line,) = (x for x in label_description(image.names).splitlines() if "lesion" in x)
    assert line.split()[1:4] != ["0", "0", "0"]
    header = nrrd.read_header(io.BytesIO(encode_image(image, "nrrd")))
    assert header["Segment0_Color"].split() != ["0", "0", "0"]


def test_a_label_description_is_written_where_a_file_can_be(tmp_path: Path) -> None:
    for name, message in (("a" * 300, "too long"), ("none/l.txt", "no folder"), ("", "a folder")):
        with pytest.raises(InvalidParameter, match=message):
            write_label_description(tmp_path / name, {1: "lesion"})
    write_label_description(tmp_path / "l.txt", {1: "lesion"})
    assert "lesion" in (tmp_path / "l.txt").read_text()


def intent(data: bytes) -> str:
    return str(nib.Nifti1Image.from_bytes(data).header.get_intent()[0])


@pytest.mark.parametrize("from_nifti", [False, True])
def test_nifti_label_maps_say_that_they_are_label_maps(from_nifti: bool) -> None:
    labels = MedicalImage(np.ones((1, 2, 3, 4), np.uint8), kind="labels")
    if from_nifti:
        plain = encode_image(labels.with_array(labels.array, kind="image"), "nifti", compress=False)
        assert intent(plain) == "none"
        labels = read_image(plain, kind="labels")
    written = encode_image(labels, "nifti", compress=False)
    assert intent(written) == "label"
    again = read_image(written, kind="labels")
    np.testing.assert_array_equal(again.array, labels.array)
    image = again.with_array(again.array.astype(np.float32), kind="image")
    assert intent(encode_image(image, "nifti", compress=False)) == "none"


def test_what_described_vectors_is_gone_from_what_was_made_of_them() -> None:
    """The intent of the fifth axis, and the range of intensities to display."""
    source = nib.Nifti1Image(np.zeros((4, 5, 6, 1, 3), np.float32), np.eye(4))
    source.header.set_intent("vector", name="flow")
    source.header["cal_max"] = 500
    image = read_image(source)
    labels = image.with_array(np.ones((1, 4, 5, 6), np.uint8), kind="labels")
    map_ = image.with_array(np.zeros((1, 4, 5, 6), np.float32))
    for made, wanted in ((labels, "label"), (map_, "none")):
        assert intent(encode_image(made, "nifti", compress=False)) == wanted
        header = made.like(source).header
        assert header.get_intent() == (wanted, (), "")
        assert header["cal_max"] == 0
