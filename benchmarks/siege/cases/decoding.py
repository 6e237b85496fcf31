"""Uploads that inflate, lie about their size or are damaged."""

from __future__ import annotations

import gzip
import struct

import nibabel as nib
import numpy as np

from benchmarks.siege.case import case
from benchmarks.siege.files import grey_png
from benchmarks.siege.service import MIB, SEGMENT, Siege, expect


@case("a gzip of 500 KB with 512 MiB behind the header of a small image, eight at once", quick=True)
def gzip_bombs(siege: Siege) -> str:
    header = nib.Nifti1Image(np.zeros((8, 8, 1), np.uint8), np.eye(4)).header
    bomb = gzip.compress(header.binaryblock + bytes(512 * MIB), 9)
    with siege.serving() as service:
        answers = service.at_once(8, lambda _: service.post(SEGMENT, bomb))
    return expect(answers, "422 invalid_input", "503 overloaded")


@case("a PNG of 30000 x 30000 in 100 bytes, and one whose checksum is wrong")
def lying_pictures(siege: Siege) -> str:
    with siege.serving() as service:
        large = service.post(SEGMENT, grey_png(30_000, 30_000, bytes(100)))
        damaged = service.post(SEGMENT, grey_png(8, 8, bytes(72))[:-20] + bytes(20))
    return f"{expect([large], '413 input_too_large')}, {expect([damaged], '422 invalid_input')}"


@case("a NIfTI whose slope is NaN, so that its intensities are unknown")
def unknown_slope(siege: Siege) -> str:
    content = bytearray(nib.Nifti1Image(np.ones((8, 8, 2), np.int16), np.eye(4)).to_bytes())
    content[112:116] = struct.pack("<f", float("nan"))
    with siege.serving() as service:
        answer = service.post(SEGMENT, bytes(content))
    return expect([answer], "422 invalid_input")
