"""POST an image, get its label map in the same space."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Form, Response

from api.archives.storing import Stored, stored
from api.background import Work
from api.encoding import file_response, json_response, npz_bytes, zip_bytes
from api.engine import Engine, Segment
from api.record import note, note_warnings
from api.routes.asking import ACCEPTED, Asked, AskedDependency
from api.routes.common import EngineDependency, answers, problems
from api.routes.source import RequiredSource, Source
from api.schemas import SegmentationNumbers
from caps_med.errors import InvalidParameter
from caps_med.images import (
    CODECS,
    MedicalImage,
    check_writable,
    dicom_report,
    dicom_segmentation,
    encode_image,
)
from caps_med.images.dicom_origin import SegType
from caps_med.inference import Model, RefinementChoice, Segmentation, ShownMap
from caps_med.inference.uncertainty_maps import PROBABILITIES

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/segment",
    summary="Segment an image or volume",
    response_class=Response,
    responses={
        **answers(
            "nifti",
            "nrrd",
            "metaimage",
            "dicom",
            "png",
            "tiff",
            "bmp",
            "npy",
            "npz",
            "zip",
            "json",
            numbers=SegmentationNumbers,
        ),
        **problems(502),
        **ACCEPTED,
    },
)
async def segment(
    model: str,
    source: RequiredSource,
    engine: EngineDependency,
    asked: AskedDependency,
    refine: Annotated[
        RefinementChoice | None,
        Form(
            description="em: refine the labels by the image's own intensities, with the network's "
            "probabilities as prior; none: keep them. By default as the model card says."
        ),
    ] = None,
    disagreement: Annotated[
        bool,
        Form(
            description="Also segment mirror images, and with each network of an ensemble, and "
            "report how far they disagree; the labels do not change. At least four times the work."
        ),
    ] = False,
    tta: Annotated[
        bool,
        Form(
            description="Test-time augmentation: average over mirror images, along the axes that "
            "were mirrored in training. Two or four times the work; often more accurate."
        ),
    ] = False,
    map: Annotated[
        ShownMap | None,
        Form(
            description="Return a map of how sure the labels are instead of the label map: the "
            "probability of each position's label, the entropy of the classes (0 sure, 1 "
            "undecided), the share of views that disagree, or the probabilities of all classes, "
            "one channel each (for pictures as npy). A zip or npz contains it beside the label "
            "map; in a PNG, 255 stands for 1."
        ),
    ] = None,
    store: Annotated[
        bool,
        Form(
            description="With archive: store the result there, as DICOM SEG, or with "
            "format=dicom-labelmap as Label Map Segmentation."
        ),
    ] = False,
    report: Annotated[
        bool,
        Form(description="With store: also store the structured report of the volumes (TID 1500)."),
    ] = False,
) -> Response:
    """The label map in the format and geometry of the image; for DICOM, a DICOM SEG.

    As npz: `labels` and `probabilities`. As JSON: volume, share of the image, number of objects and
    mean confidence of each label. As zip: the label map in the format of the image and as NIfTI,
    the JSON and, for a DICOM series, the report.

    For a DICOM series, there are also dicom-labelmap, a Label Map Segmentation, and sr, a
    structured report (TID 1500) of the volumes that refers to the DICOM SEG.
    """
    loaded = await engine.load(model)
    decoded = await source.decoded(engine, loaded)
    if report and not store:
        raise InvalidParameter(
            "report: only used with store; to get the report as the answer, use format=sr"
        )
    labels = len(loaded.bundle.card.labels) - 1
    beside = [] if decoded.origin is None or map else [*_OF_DICOM]
    forms = [*_formats(loaded, decoded, map), *beside, "npz", "zip", "json"]
    form = asked.form_of(forms)
    kind: SegType = "labelmap" if form == _SEGS["labelmap"] else "binary"
    if not map and (form == _SEGS["binary"] or form in _OF_DICOM):
        CODECS["dicom"].check_labels(labels)
    then = _storing(engine, source, decoded, kind, report, labels) if store else None
    maps = _maps_of(asked, forms, map)
    call = Segment(decoded, refine, disagreement or map == "disagreement", tta, maps)
    encoded = partial(encode_stored if store else encode, map=map)
    return await asked.answered(Work("segment", loaded, decoded, call, forms, encoded, then))


def _formats(model: Model, image: MedicalImage, map: ShownMap | None) -> tuple[str, ...]:
    """The formats of what is asked for; probabilities of several classes are no colours."""
    forms = image.formats_of("image" if map else "labels")
    if map != "probabilities" or model.bundle.card.binary:
        return forms
    return ("npy",) if image.spatial_dims == 2 else tuple(f for f in forms if f != "tiff")


def _maps_of(asked: Asked, forms: Sequence[str], map: ShownMap | None) -> tuple[ShownMap, ...]:
    """The maps that the answer must keep: as npz it has the probabilities.

    In the background any form may be asked for later.
    """
    if asked.form_of(forms) == "npz" or asked.later:
        return PROBABILITIES
    return () if map is None else (map,)


def _storing(
    engine: Engine,
    source: Source,
    image: MedicalImage,
    kind: SegType,
    report: bool,
    labels: int,
) -> Callable[[Segmentation], Awaitable[Stored]]:
    """Store the answer to an image in the archive that it came from.

    Raises:
        InvalidParameter: the image came from none.
        UnsupportedFormat: no DICOM SEG can refer to it.
    """
    if source.reference is None:
        raise InvalidParameter("store: only used with archive, study and series")
    check_writable(image, "labels", 1, "dicom", labels=labels)
    archive = source.reference.archive
    note(stored=archive)
    return lambda result: stored(engine, archive, result, kind, report)


def encode_stored(result: Stored, form: str, map: ShownMap | None = None) -> Response:
    """A segmentation that was stored; as DICOM SEG the stored one. Headers name it."""
    found = result.segmentation
    if form == _SEGS[result.kind] and not map:
        note_warnings(found.warnings)
        answer = file_response(result.content, form, found.provenance, "segmentation")
    else:
        answer = encode(found, form, map, result.kind)
    answer.headers.update(result.headers())
    return answer


#: The forms of each kind of DICOM SEG.
_SEGS: Mapping[SegType, str] = {"binary": "dicom", "labelmap": "dicom-labelmap"}
#: What else there is of a label map of DICOM slices, beside a DICOM SEG of some kind, and what its
#: file is called.
_OF_DICOM: Mapping[str, Callable[[Segmentation, SegType], bytes]] = {
    "dicom-labelmap": lambda result, _: dicom_segmentation(result, "labelmap"),
    "sr": dicom_report,
}
_STEMS = {"dicom-labelmap": "segmentation", "sr": "report"}


def encode(
    result: Segmentation, form: str, map: ShownMap | None = None, kind: SegType = "binary"
) -> Response:
    """A segmentation in the form asked for; its warnings are sent along.

    Args:
        kind: of the DICOM SEG that a report refers to.
    """
    note_warnings(result.warnings)
    if form == "json":
        return json_response(result.numbers(), result.provenance)
    if form in _OF_DICOM:
        return file_response(_OF_DICOM[form](result, kind), form, result.provenance, _STEMS[form])
    if form == "npz":
        arrays = {"labels": result.array, "probabilities": result.probabilities.array}
        more = {map: result.map_of(map).array} if map else {}
        return file_response(npz_bytes(arrays | more), form, result.provenance, "segmentation")
    if form == "zip":
        return file_response(zip_bytes(_all(result, map)), form, result.provenance, "segmentation")
    if map:
        return file_response(encode_image(result.map_of(map), form), form, result.provenance, map)
    return file_response(encode_image(result, form), form, result.provenance, "segmentation")


def _all(result: Segmentation, map: ShownMap | None) -> Iterator[tuple[str, bytes]]:
    for form in dict.fromkeys((result.format, "nifti")):
        yield f"segmentation{CODECS[form].suffixes[0]}", encode_image(result, form)
    if map:
        shown = result.map_of(map)
        form = "npy" if shown.spatial_dims == 2 and len(shown.array) > 1 else "nifti"
        yield f"{map}{CODECS[form].suffixes[0]}", encode_image(shown, form)
    if result.format == "dicom":
        yield "report.dcm", dicom_report(result)
    yield "answer.json", json.dumps(result.numbers()).encode()
