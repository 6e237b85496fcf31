"""The process that decodes: ``python -m api.decoding.worker BYTES PARENT``.

It bounds itself before it reads the first byte: BYTES of memory beyond what it starts with, no
file of any size, no core file, and no file, connection or process any more, whatever an upload
names (`api.confinement`). It ends with the process PARENT.
Errors that are not the library's are reported without the values in them.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO, get_args

import numpy as np
from PIL import Image
from pydicom import charset

from api.confinement import confine, end_with
from api.decoding import wire
from caps_med.errors import CapsMedError, InputTooLarge, UnsupportedFormat
from caps_med.images import CODECS, Kind, Limits, MedicalImage, encode_image, read_image
from caps_med.images.series import series_of_zip

#: The message about a file that made its decoder fail unexpectedly.
BROKEN = "the file is cut or broken in a way that its format does not allow: copy or save it again"
#: What the codecs, pydicom and tifffile import only when a file needs it.
_LATE = (
    "caps_med.images.codecs.dicom_segments",
    "caps_med.images.codecs.dicom_series",
    *(
        f"imagecodecs._{name}"
        for name in ("ccitt", "deflate", "imcd", "jpeg2k", "jpeg8", "jpegls", "png", "zlib", "zstd")
    ),
    "pydicom.pixels.decoders.pillow",
    "pydicom.pixels.decoders.rle",
    "pydicom.pixels.utils",
    "PIL.Jpeg2KImagePlugin",
)


def main() -> None:
    """Decode file after file, until the service closes the pipe."""
    end_with(int(sys.argv[2]))
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # whatever a library prints must not end up in an answer
    load_everything()
    bound(int(sys.argv[1]))
    confine()
    wire.send(answers, {"ready": os.getpid()})
    with suppress(EOFError, BrokenPipeError):
        while True:
            answer(source, answers)


def load_everything() -> None:
    """Import what decoding imports, while files may still be opened."""
    Image.init()
    for module in _LATE:
        import_module(module)
    for shape in ((1, 8, 8), (1, 8, 8, 8)):
        for kind in get_args(Kind):
            image = MedicalImage(np.zeros(shape, np.uint8), kind=kind, names={0: "", 1: "any"})
            for name in CODECS:
                with suppress(UnsupportedFormat):  # volumes as PNG; DICOM, which is read below
                    read_image(encode_image(image, name), kind=kind)
    with suppress(CapsMedError):
        read_image(bytes(128) + b"DICM")
    for encoding in set(charset.python_encoding.values()):  # of names in DICOM
        codecs.lookup(encoding)
    for form in ("JPEG", "JPEG2000"):
        file = io.BytesIO()
        Image.new("L", (8, 8)).save(file, form)
        Image.open(file).load()


def answer(source: BinaryIO, answers: BinaryIO) -> None:
    """Read one request, write its answer."""
    asked = wire.receive_line(source)
    content = bytes(wire.receive_bytes(source, asked["size"]))
    try:
        found = series_of_zip(content) if asked["series_only"] else _image(content, asked)
    except CapsMedError as error:
        wire.send(answers, {"error": error.code, "message": str(error), "members": error.members})
    except MemoryError:
        message = "decoding takes more memory than is allowed: crop or downsample the image"
        wire.send(answers, {"error": InputTooLarge.code, "message": message})
    except Exception as error:
        wire.send(answers, {"unforeseen": type(error).__name__, "message": BROKEN})
    else:
        if not isinstance(found, MedicalImage):
            wire.send_series(answers, *found)
            return
        wire.announce_image(answers, found)
        if wire.receive_line(source)["wanted"]:
            wire.send_array(answers, found.array)


def _image(content: bytes, asked: dict[str, Any]) -> MedicalImage:
    return read_image(
        content,
        kind=asked["kind"],
        limits=Limits(*asked["limits"]),
        index=asked["volume"],
        series=asked["series"],
    )


def bound(memory: int) -> None:
    """Bound this process; where a system has no such bounds, time alone is bounded."""
    if sys.platform == "win32":
        return
    import resource

    for name, value in (("RLIMIT_FSIZE", 0), ("RLIMIT_CORE", 0)):
        resource.setrlimit(getattr(resource, name), (value, value))
    with suppress(OSError, ValueError):  # only Linux says how much is in use, and macOS bounds none
        with open("/proc/self/statm", encoding="utf-8") as statistics:  # noqa: PTH123
            used = int(statistics.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))


if __name__ == "__main__":
    main()
