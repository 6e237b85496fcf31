"""A segmentation that is stored in the archive its image came from."""

from __future__ import annotations

import io
from dataclasses import dataclass

from api.engine import Engine
from caps_med.images import dicom_report, encode_image
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


async def stored(
    engine: Engine, archive: str, segmentation: Segmentation, report: bool = False
) -> Stored:
    """Store a segmentation as DICOM SEG.

    Args:
        report: whether to store the structured report of its volumes, too.

    Raises:
        CapsMedError, Busy: see `Archives.store`.
    """
    made = await engine.run("encode", lambda: _made(segmentation))
    contents = [made.content]
    if report:
        contents.append(await engine.run("encode", lambda: dicom_report(segmentation)))
    await engine.archives.store(archive, contents)
    return made


def _made(segmentation: Segmentation) -> Stored:
    from pydicom import dcmread

    content = encode_image(segmentation, "dicom")
    header = dcmread(io.BytesIO(content), stop_before_pixels=True)
    return Stored(segmentation, content, header.SeriesInstanceUID, header.SOPInstanceUID)
