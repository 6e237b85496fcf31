"""Few bytes that could cost much time: a worker's or a decoder's, which others wait for."""

from __future__ import annotations

import io
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from PIL import Image

from benchmarks.siege.case import Breach, case
from benchmarks.siege.files import black_nifti, small_picture
from benchmarks.siege.service import SEGMENT, Service, Siege, expect

#: Answers to what is sent while others are served.
LATE = ("200", "503 overloaded", "504 deadline_exceeded")
#: The markers in a JPEG of Huffman tables, which each scan brings along, and of a scan.
TABLES, SCAN = b"\xff\xc4", b"\xff\xda"


@case("a NIfTI of 1 x 1 x 32767 in 120 bytes, one of 8 x 8 x 32767; small pictures meanwhile")
def endless_volumes(siege: Siege) -> str:
    told = []
    with siege.serving(request_seconds=5) as service:
        for side in (1, 8):
            begun = time.monotonic()
            answers, meanwhile = _meanwhile(service, black_nifti(side, side, 32_767), 1)
            siege.overrun = max(siege.overrun, time.monotonic() - begun - 5)
            told.append(f"{expect(answers, *LATE)}, {meanwhile}")
    return "; ".join(told)


@case("a progressive JPEG of 5000 scans six times, then of 90 six times; small pictures meanwhile")
def many_scans(siege: Siege) -> str:
    with siege.serving() as service:
        refused, meanwhile = _meanwhile(service, _progressive(1024, 5000), 6)
        slow, later = _meanwhile(service, _progressive(1024, 90), 6)
    many, some = expect(refused, "422 invalid_input"), expect(slow, *LATE)
    return f"{many}, {meanwhile}; {some}, {later}"


def _meanwhile(service: Service, file: bytes, count: int) -> tuple[list[httpx.Response], str]:
    """Send a file `count` times at once, and small pictures one after the other until all are
    answered; returns the answers, and how long a picture waited at most.

    Raises:
        Breach: no picture was segmented.
    """
    waits, pictures = [], []
    with ThreadPoolExecutor(count) as pool:
        sent = [pool.submit(service.post, SEGMENT, file) for _ in range(count)]
        while not all(each.done() for each in sent):
            begun = time.monotonic()
            pictures.append(service.post(SEGMENT, small_picture()))
            waits.append(time.monotonic() - begun)
    outcome = expect(pictures, *LATE)
    if "200" not in outcome:
        raise Breach(f"no small picture is segmented: {outcome}")
    return [each.result() for each in sent], f"pictures {outcome}, within {max(waits):.1f} s"


def _progressive(size: int, scans: int) -> bytes:
    """A black JPEG of many scans, of a few bytes each, that all go through the whole picture.

    Each sends all coefficients but the first anew, which a decoder takes without a warning.
    """
    file = io.BytesIO()
    Image.new("L", (size, size)).save(file, "JPEG", progressive=True)
    head, first, *_, last = file.getvalue().split(TABLES)
    precision = last.index(SCAN) + 9
    scan = TABLES + last[:precision] + b"\0" + last[precision + 1 : -2]
    return head + TABLES + first + scan * scans + last[-2:]
