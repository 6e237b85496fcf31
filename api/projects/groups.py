"""Images of a project that are not independent: of one patient, or parts of one volume."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from api.projects.records import Image
from training.data.groups import whole_of
from training.data.layouts.naming import stem_of


def group_of(image: Image) -> str:
    """The patient, else the volume that the image's name says it is a part of; "" if neither."""
    return image.patient or whole_of(stem_of(Path(image.name)))


def groups_of(images: Sequence[Image]) -> list[str]:
    """The group of each image; one that belongs to none is a group of its own, by its id.

    Names alone do not put all images in one group, as in a data set on disk.
    """
    groups = [group_of(image) for image in images]
    if len(set(groups)) == 1 and not any(image.patient for image in images):
        groups = [""] * len(images)
    return [group or image.id for group, image in zip(groups, images, strict=True)]
