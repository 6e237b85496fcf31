"""A segmentation that is stored in the archive its image came from."""

from __future__ import annotations

import io
from dataclasses import dataclass

from api.engine import Engine
from caps_med.images import dicom_report, dicom_segmentation
from caps_med.images.dicom_origin import SegType
from caps_med.inference import Segmentation


@dataclass(frozen=True)
class Stored:
    """What an archive has got.

    Attributes:
        segmentation: the answer.
        kind: of the DICOM SEG that was stored.
        content: that DICOM SEG.
        series, instance: its UIDs.
    """

    segmentation: Segmentation
    kind: SegType
    content: bytes
    series: str
    instance: str

    def headers(self) -> dict[str, str]:
        """The UIDs, as headers of the answer."""
        return {"Caps-Med-Stored-Series": self.series, "Caps-Med-Stored-Instance": self.instance}


async def stored(
    engine: Engine,
    archive: str,
    segmentation: Segmentation,
    kind: SegType = "binary",
    report: bool = False,
) -> Stored:
    """Store a segmentation as DICOM SEG.

    Args:
        kind: of the DICOM SEG.
        report: whether to store the structured report of its volumes, too.

    Raises:
        CapsMedError, Busy: see `Archives.store`.
    """
    made = await engine.run("encode", lambda: _made(segmentation, kind))
    contents = [made.content]
    if report:
        contents.append(await engine.run("encode", lambda: dicom_report(segmentation, kind)))
    await engine.archives.store(archive, contents)
    return made


def _made(segmentation: Segmentation, kind: SegType) -> Stored:
    from pydicom import dcmread

    content = dicom_segmentation(segmentation, kind)
    header = dcmread(io.BytesIO(content), stop_before_pixels=True)
    return Stored(segmentation, kind, content, header.SeriesInstanceUID, header.SOPInstanceUID)
