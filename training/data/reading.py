"""Reads one case, whatever its file formats, as an image and a matching label map."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from caps_med.errors import CapsMedError, InvalidInput, NotFinite, SeveralVolumes
from caps_med.images import Kind, MedicalImage, in_order_of, placed_on, stack_channels
from caps_med.images.channels import as_picture, is_plain_volume
from caps_med.images.image import STACK_AFFINE
from caps_med.images.labels import WHITES, smallest_unsigned
from caps_med.images.placing import on_one_grid
from caps_med.preprocessing import picture_of, single_slice
from caps_med.wording import counted
from training.data.cases import Case, Cases, FileRef, Instances
from training.data.instances import as_classes
from training.data.stacks import read_reference

#: The largest label id: prepared label maps are held in 16 bits.
MAX_ID = 2**16 - 1


class BrokenCase(InvalidInput):
    """A case that cannot be used for training.

    Attributes:
        finding: a stable code, see `training.data.check.findings`.
        file: the file at fault, with the picture's index in a stack.
        what: the problem.
        fix: how to fix it.
    """

    def __init__(self, finding: str, file: FileRef, what: str, fix: str) -> None:
        super().__init__(f"{file} {what}: {fix}")
        self.finding, self.file, self.what, self.fix = finding, file, what, fix


def label_encoding(cases: Cases) -> dict[int, int]:
    """Value in the label files -> label id, decided once per data set; see `encoding_of`.

    Stops at the first label map whose values must be ids.

    Raises:
        BrokenCase: a label map cannot be read.
    """
    values: list[Set[int]] = []
    if cases.instances in ("binary", "borders"):
        return {}
    for case in cases.cases:
        label = _read_label(case)
        values.append(set(np.unique(label.array).tolist()) - {cases.ignored})
        if not values[-1] <= {0, 1, *WHITES}:
            return {}
    return encoding_of(values, cases.labels)


def encoding_of(values: Iterable[Set[int]], names: Iterable[int] = ()) -> dict[int, int]:
    """Value -> label id, from the values of each label map; empty if the values are the ids.

    Label maps of only 0 and 255 (65535 in 16 bits) are masks: 255 means 1, even if others in the
    data set are masks of 0 and 1. All other values (class ids, palette indices) are ids already.

    Args:
        values: the set of values in each label map.
        names: ids named by the layout.
    """
    found = [frozenset(each) for each in values]
    union = frozenset().union(*found)
    masks = union <= {0, 1, *WHITES} and all(len(each - {0}) <= 1 for each in found)
    if not masks or not union & WHITES or WHITES & set(names):
        return {}
    return {value: min(value, 1) for value in sorted(union | {0})}


def values_known_to(label_values: Mapping[int, int], known: Container[int]) -> Mapping[int, int]:
    """Value -> label id for a model of the ids `known`: one that has learned 255 as a class finds
    it in maps of 0 and 255, too.
    """
    return {} if any(white in known for white in WHITES) else label_values


def read_case(
    case: Case,
    label_values: Mapping[int, int] | None = None,
    instances: Instances | None = None,
    *,
    flat: bool = True,
    ignored: int | None = None,
) -> tuple[MedicalImage, MedicalImage, MedicalImage]:
    """Read the image and label map of one case, which match in size and affine.

    The voxels of a label map may be stored in another order than those of the image.

    Args:
        case: the case to read.
        label_values: value in the file -> label id; None or empty keeps the values.
        instances: what the ids are learned as; see `Cases.instances`.
        flat: whether volumes of a single slice become pictures, as networks of pictures are
            trained on. Else they keep their geometry, with which a model of volumes takes them;
            the label map, which may be a picture, is laid into the image's slice.
        ignored: the id of what is background in the label map; see `Cases.ignored`.

    Returns:
        The image ``[C, *S]``, its channels from one file or several, the label map ``[1, *S]``,
        and the label map as it is in its file.

    Raises:
        BrokenCase: a file is unreadable, image and label map do not match, or an id is beyond
            `MAX_ID`.
    """
    image, ids = read_ids(case, flat=flat)
    return image, learned(case, _without(ids, ignored), label_values, instances), ids


def read_ids(case: Case, *, flat: bool = True) -> tuple[MedicalImage, MedicalImage]:
    """As `read_case`, with the label map as it is in its file alone; see `learned`."""
    channels = [(ref, _read(ref, "image")) for ref in case.images]
    label = _read_label(case)
    if case.segments:
        label = _placed(case.label, label, channels[0][1])
    channels = [(ref, _as_slice_of(label, one)) for ref, one in channels]
    label = _as_pages_of(channels[0][1], _as_slice_of(channels[0][1], label))
    label = in_order_of(channels[0][1], label)
    image = _joined([(ref, picture_of(one)) for ref, one in channels])
    label = picture_of(label)
    if label.spatial_dims == 2:
        image = as_picture(image, size=label.spatial_shape)
    _check_fit(case.images[0], image, case.label, label, "its label map")
    if flat or not all(single_slice(one) for _, one in channels):
        return image, label
    image = _joined(channels)
    return image, _in_slice_of(image, label)


def read_image_of(case: Case) -> MedicalImage:
    """Read only the image of one case, ``[C, *S]``; see `read_case`.

    Raises:
        BrokenCase: a file is unreadable, or two channels do not match.
    """
    return _joined([(ref, picture_of(_read(ref, "image"))) for ref in case.images])


def read_label(
    case: Case,
    label_values: Mapping[int, int] | None = None,
    instances: Instances | None = None,
    ignored: int | None = None,
) -> MedicalImage:
    """Read only the label map of one case, ``[1, *S]``; see `read_case`.

    Raises:
        BrokenCase: the file is unreadable, or an id is beyond `MAX_ID`.
    """
    return learned(case, read_label_ids(case, ignored), label_values, instances)


def read_label_ids(case: Case, ignored: int | None = None) -> MedicalImage:
    """Read only the label map of one case, ``[1, *S]``, as it is in its file; see `learned`.

    Args:
        case: as of `read_case`.
        ignored: as of `read_case`.

    Raises:
        BrokenCase: the file is unreadable.
    """
    label = _read_label(case)
    if case.images and _has_plain_pages(label):
        label = _as_pages_of(_read(case.images[0], "image"), label)
    return _without(picture_of(label), ignored)


def learned(
    case: Case,
    label: MedicalImage,
    label_values: Mapping[int, int] | None = None,
    instances: Instances | None = None,
) -> MedicalImage:
    """The label map of a case with its ids as they are learned; those of instances have no names.

    Args:
        case: named in errors.
        label: as it is in its file.
        label_values: as of `read_case`.
        instances: as of `read_case`.

    Raises:
        BrokenCase: an id is beyond `MAX_ID`.
    """
    classes = as_classes(label, instances)
    if (largest := int(classes.array.max())) > MAX_ID:
        what = f"holds the label id {largest}"
        raise BrokenCase("label_values", case.label, what, f"ids may run up to {MAX_ID}")
    if instances in ("binary", "borders"):
        classes = replace(classes, names={})
    return with_ids(classes, label_values)


def with_ids(label: MedicalImage, label_values: Mapping[int, int] | None) -> MedicalImage:
    """Replace the values in a label map by label ids."""
    if not label_values:
        return label
    ids = np.zeros(max(label_values) + 1, np.min_scalar_type(max(label_values.values())))
    ids[list(label_values)] = list(label_values.values())
    return label.with_array(ids[label.array])


def unlabelled(ids: MedicalImage, ignored: int | None) -> NDArray[np.bool_]:
    """Where a label map, as it is in its file, has the id `ignored`; nowhere, if that is None."""
    if ignored is None:  # to compare with None takes NumPy ten times as long
        return np.zeros(ids.array.shape, bool)
    return np.asarray(ids.array == ignored)


def _without(ids: MedicalImage, ignored: int | None) -> MedicalImage:
    """The label map with background where it has the id `ignored`."""
    return ids if ignored is None else ids.with_array(ids.array * ~unlabelled(ids, ignored))


def _read(reference: FileRef, kind: Kind) -> MedicalImage:
    try:
        return read_reference(reference, kind)
    except NotFinite as error:
        raise BrokenCase("not_finite", reference, "contains NaN or infinity", str(error)) from error
    except CapsMedError as error:
        if kind == "labels" and isinstance(error, SeveralVolumes):
            what, fix = f"holds {error.count} volumes", "save only the one of the image"
            raise BrokenCase("label_values", reference, what, fix) from error
        if kind == "labels" and _is_picture(reference):
            what = "is not a label map"
            raise BrokenCase("label_values", reference, what, str(error)) from error
        raise BrokenCase("unreadable", reference, "cannot be read", str(error)) from error


def _read_label(case: Case) -> MedicalImage:
    """The label map as it is in its file, with the ids that its segments have in the data set."""
    label = _merged(case.label) if case.label.objects else _read(case.label, "labels")
    if not case.segments:
        return label
    ids = np.zeros(max(number for number, _, _ in case.segments) + 1, np.uint16)
    for number, label_id, _ in case.segments:
        ids[number] = label_id
    if int(label.array.max()) >= len(ids):
        what = f"holds the value {label.array.max()}, which no segment describes"
        raise BrokenCase("label_values", case.label, what, "export the segmentation again")
    array = smallest_unsigned(ids[label.array])
    names = {label_id: name for _, label_id, name in case.segments}
    return replace(label, array=array, names=names, codes={}, palette=None)


def _merged(reference: FileRef) -> MedicalImage:
    """Masks of one object each as a label map of ids, in the order of their names.

    Where objects overlap, the last one is kept, and a warning says so.
    """
    refs = [FileRef(file) for file in reference.objects]
    first = _read(refs[0], "labels")
    ids = np.zeros(first.array.shape, np.uint32)
    found = overlapping = 0
    for ref in refs:
        mask = first if ref is refs[0] else _read(ref, "labels")
        _check_fit(refs[0], first, ref, mask, ref.path.name)
        if len(values := np.unique(mask.array[mask.array > 0])) > 1:
            what = f"should be the mask of one object, but holds {len(values)} values above 0"
            fix = "save each object as a mask of 0 and 255"
            raise BrokenCase("label_values", ref, what, fix)
        inside = mask.array > 0
        overlapping += int(np.count_nonzero(ids[inside]))
        found += len(values)
        ids[inside] = found
    said = f"{counted(overlapping, 'voxel')} in the masks of several objects: the last is kept"
    warnings = (said,) if overlapping else ()
    return replace(first, array=smallest_unsigned(ids), palette=None, warnings=warnings)


def _placed(reference: FileRef, label: MedicalImage, image: MedicalImage) -> MedicalImage:
    """A DICOM SEG, which leaves out slices without labels, on the whole grid of its image."""
    try:
        return placed_on(label, image)
    except InvalidInput as error:
        what, _, fix = str(error).partition(": ")
        raise BrokenCase("affine_mismatch", reference, f": {what}", fix) from error


def _is_picture(reference: FileRef) -> bool:
    try:
        read_reference(reference, "image")
    except CapsMedError:
        return False
    return True


def _as_slice_of(known: MedicalImage, image: MedicalImage) -> MedicalImage:
    """An array without geometry over the voxels of a single slice that has one, with that."""
    plain = is_plain_volume(image) and not is_plain_volume(known)
    if plain and image.spatial_shape == known.spatial_shape and single_slice(known):
        return replace(image, affine=known.affine, format=known.format)
    return image


def _as_pages_of(image: MedicalImage, label: MedicalImage) -> MedicalImage:
    """The pages of a TIFF without voxel sizes, as most programs write label maps, with the image's.

    Both are TIFF, whose pages are read in one orientation.
    """
    if image.format == "tiff" and _has_plain_pages(label):
        return replace(label, affine=image.affine)
    return label


def _has_plain_pages(image: MedicalImage) -> bool:
    """Whether it is a volume of a TIFF that says nothing of its voxels, which are taken for 1 mm.

    >>> _has_plain_pages(MedicalImage(np.zeros((1, 3, 4, 5)), STACK_AFFINE, "tiff"))
    True
    """
    return image.format == "tiff" and np.array_equal(image.affine, STACK_AFFINE)


def _in_slice_of(image: MedicalImage, label: MedicalImage) -> MedicalImage:
    """A label map that is a picture, as a volume of the single slice that the image is."""
    stack = single_slice(image)
    assert stack is not None  # noqa: S101 - `read_case` asks for it
    array = stack.restore(label.array)
    return replace(
        image.with_array(array, kind="labels"),
        palette=label.palette,
        warnings=label.warnings,
        names=label.names,
        codes=label.codes,
    )


def _joined(channels: list[tuple[FileRef, MedicalImage]]) -> MedicalImage:
    (first_ref, first), *others = channels
    for reference, image in others:
        _check_fit(first_ref, first, reference, image, reference.path.name)
    return stack_channels([image for _, image in channels])


def _check_fit(
    reference: FileRef, image: MedicalImage, other_ref: FileRef, other: MedicalImage, name: str
) -> None:
    if image.spatial_shape != other.spatial_shape:
        raise BrokenCase(
            "size_mismatch",
            reference,
            f"has size {image.spatial_shape}, but {name} {other.spatial_shape}",
            _how_to_fit(image.spatial_shape, other.spatial_shape),
        )
    if not on_one_grid(image.affine, other.affine):
        raise BrokenCase(
            "affine_mismatch",
            reference,
            f"and {name} have different affines",
            f"resample {other_ref} onto the image; copy the image's header only if their voxels "
            "show the same places, whatever the headers say",
        )


def _how_to_fit(size: tuple[int, ...], other: tuple[int, ...]) -> str:
    """What to do about two sizes that must be equal."""
    if sorted(size) == sorted(other):
        return "their axes are in different orders: save both in the same order"
    return "save both in the same size; resample label maps by nearest neighbour"
