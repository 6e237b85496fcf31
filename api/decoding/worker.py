"""The process that decodes: ``python -m api.decoding.worker BYTES``.

It bounds itself before it reads the first byte: BYTES of memory beyond what it starts with, no
file of any size, no core file. What it cannot say as an error of the library it says without the
values that were in it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import BinaryIO

from PIL import Image

from api.decoding import wire
from caps_med.errors import CapsMedError, InputTooLarge
from caps_med.images import Limits, read_image

#: What is said of a file that broke its decoder in a way nobody thought of.
BROKEN = "the file is cut or broken in a way that its format does not allow: copy or save it again"


def main() -> None:
    """Decode file after file, until the service closes the pipe."""
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # whatever a library prints must not end up in an answer
    Image.init()  # loads its plug-ins while files may still be opened at leisure
    bound(int(sys.argv[1]))
    wire.send(answers, {"ready": os.getpid()})
    with suppress(EOFError, BrokenPipeError):
        while True:
            answer(source, answers)


def answer(source: BinaryIO, answers: BinaryIO) -> None:
    """Read one request, write its answer."""
    asked = wire.receive_line(source)
    content = bytes(wire.receive_bytes(source, asked["size"]))
    try:
        image = read_image(content, kind=asked["kind"], limits=Limits(*asked["limits"]))
    except CapsMedError as error:
        wire.send(answers, {"error": error.code, "message": str(error)})
    except MemoryError:
        message = "decoding takes more memory than is allowed: crop or downsample the image"
        wire.send(answers, {"error": InputTooLarge.code, "message": message})
    except Exception as error:
        wire.send(answers, {"unforeseen": type(error).__name__, "message": BROKEN})
    else:
        wire.send_image(answers, image)


def bound(memory: int) -> None:
    """Bound this process; where a system has no such bounds, time alone is bounded."""
    if sys.platform == "win32":
        return
    import resource

    for name, value in (("RLIMIT_FSIZE", 0), ("RLIMIT_CORE", 0)):
        resource.setrlimit(getattr(resource, name), (value, value))
    with suppress(OSError, ValueError):  # only Linux says how much is in use, and macOS bounds none
        with open("/proc/self/statm") as statistics:  # noqa: PTH123
            used = int(statistics.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))


if __name__ == "__main__":
    main()
