"""A segmentation that is stored in the archive its image came from."""

from __future__ import annotations

import io
from dataclasses import dataclass

from pydicom import dcmread

from api.engine import Engine
from caps_med.images import encode_image
from caps_med.inference import Segmentation


@dataclass(frozen=True)
class Stored:
    """What an archive has got.

    Attributes:
        segmentation: the answer.
        content: the DICOM SEG that was stored.
        series, instance: its UIDs.
    """

    segmentation: Segmentation
    content: bytes
    series: str
    instance: str

    def headers(self) -> dict[str, str]:
        """The UIDs, as headers of the answer."""
        return {"Caps-Med-Stored-Series": self.series, "Caps-Med-Stored-Instance": self.instance}


async def stored(engine: Engine, archive: str, segmentation: Segmentation) -> Stored:
    """Store a segmentation as DICOM SEG.

    Raises:
        CapsMedError, Busy: see `Archives.store`.
    """
    made = await engine.run("encode", lambda: _made(segmentation))
    await engine.archives.store(archive, [made.content])
    return made


def _made(segmentation: Segmentation) -> Stored:
    content = encode_image(segmentation, "dicom")
    header = dcmread(io.BytesIO(content), stop_before_pixels=True)
    return Stored(segmentation, content, header.SeriesInstanceUID, header.SOPInstanceUID)
