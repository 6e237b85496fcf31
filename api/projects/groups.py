"""Images of a project that are not independent: of one patient, or parts of one volume."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from pathlib import Path

from api.projects.records import Image
from caps_med.images import MedicalImage
from training.data.groups import whole_of
from training.data.layouts.naming import stem_of

_DIGITS = 16


def patient_digest(decoded: MedicalImage, project: str) -> str | None:
    """What links the images of a project whose DICOM files have one Patient ID.

    None if there is no ID. The ID cannot be computed from it, but whoever knows the project's id
    can try IDs.
    """
    if not decoded.patient:
        return None
    return hmac.new(project.encode(), decoded.patient.encode(), "sha256").hexdigest()[:_DIGITS]


def group_of(image: Image) -> str:
    """The patient, by name or digest; else the volume that the image's name says it is a part of;
    "" if neither.
    """
    return image.patient or image.patient_digest or whole_of(stem_of(Path(image.name)))


def groups_of(images: Sequence[Image]) -> list[str]:
    """The group of each image; one that belongs to none is a group of its own, by its id.

    Names and digests alone do not put all images in one group, as in a data set on disk: files may
    have been anonymized with one Patient ID for all. So pass all images that are used, and choose
    from their groups.
    """
    groups = [group_of(image) for image in images]
    if len(set(groups)) == 1 and not any(image.patient for image in images):
        groups = [""] * len(images)
    return [group or image.id for group, image in zip(groups, images, strict=True)]
