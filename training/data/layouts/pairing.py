"""Matching images with label maps by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import count, islice
from typing import NamedTuple

from training.data.cases import Case, FileRef, Unpaired
from training.data.groups import folder_of, joined, subject_of, whole_of
from training.data.layouts.naming import (
    IMAGE_WORDS,
    LABEL_WORDS,
    Entry,
    by_key,
    is_label_name,
    unnumbered,
    without,
)
from training.data.patients import patient_of

_SEPARATOR = re.compile(r"[-_. /]")


class _Reading(NamedTuple):
    """One way to compare names: the words ignored in those of images and of label maps."""

    image_words: tuple[str, ...]
    label_words: tuple[str, ...]

    def image_name(self, entry: Entry) -> str:
        return reduce(lambda stem, words: without(words, stem), self.image_words, entry.stem)

    def label_name(self, entry: Entry) -> str:
        return reduce(lambda stem, words: without(words, stem), self.label_words, entry.stem)

    def image_key(self, entry: Entry) -> str:
        return self._key(self.image_name(entry))

    def label_key(self, entry: Entry) -> str:
        return self._key(self.label_name(entry))

    def _key(self, name: str) -> str:
        """Case matters only where no words are ignored."""
        return name.casefold() if self.label_words else name


#: Tried in turn on the names not yet matched; only the first is case-sensitive.
_READINGS = (
    _Reading((), ()),
    _Reading((), (LABEL_WORDS,)),
    _Reading((IMAGE_WORDS,), (LABEL_WORDS,)),
    _Reading((IMAGE_WORDS,), (LABEL_WORDS, IMAGE_WORDS)),
)


class Pairing(NamedTuple):
    """Cases, unpaired files, and the names of channels stored as separate files."""

    cases: list[Case]
    unpaired: list[Unpaired]
    channels: tuple[str, ...] = ()


def paired(images: Iterable[Entry], labels: Iterable[Entry]) -> Pairing:
    """Match images with label maps of the same name.

    Names match if they are equal, or equal (ignoring case) without a leading or trailing word for
    images or label maps. If no two names match, files whose names extend that of a label map
    (``p1_t1``, ``p1_t2`` for ``p1_seg``) are its channels, if most label maps have the same ones.
    """
    left, right = list(images), list(labels)
    cases: list[Case] = []
    for reading in _READINGS:
        by_image, by_label = by_key(left, reading.image_key), by_key(right, reading.label_key)
        single = (k for k in by_image if len(by_image[k]) == len(by_label.get(k, ())) == 1)
        keys = dict.fromkeys(single)  # in order, by which cases of one name get their numbers
        for key in keys:
            image, label = by_image[key][0], by_label[key][0]
            name = reading.image_name(image) or image.stem
            cases.append(Case(name, (FileRef(image.path),), FileRef(label.path)))
        left = [entry for k, group in by_image.items() if k not in keys for entry in group]
        right = [entry for k, group in by_label.items() if k not in keys for entry in group]
    if not cases and (several := _as_channels(left, right)):
        return several
    return Pairing(cases, _unmatched(left, right))


def _as_channels(images: Sequence[Entry], labels: Sequence[Entry]) -> Pairing | None:
    """Match each label map with the images whose names extend its own."""
    reading = _READINGS[1]
    by_label = {key: group[0] for key, group in by_key(labels, reading.label_key).items()}
    channels: dict[str, dict[str, Entry]] = {key: {} for key in by_label}
    for image in images:
        for key, word in islice(_prefixes(image, by_label), 1):
            channels[key].setdefault(word, image)
    counted = Counter(word for found in channels.values() for word in found)
    names = tuple(sorted(word for word, count in counted.items() if 2 * count > len(by_label)))
    if not names:
        return None
    cases, unpaired = [], []
    for key, label in by_label.items():
        if missing := [name for name in names if name not in channels[key]]:
            what = f"lacks channels that other cases have: {', '.join(missing)}"
            unpaired.append(Unpaired(label.path, what, "add them or remove the case"))
        else:
            refs = tuple(FileRef(channels[key][name].path) for name in names)
            cases.append(Case(reading.label_name(label) or label.stem, refs, FileRef(label.path)))
    used = {channels[key][name] for key in channels for name in names if name in channels[key]}
    left = [image for image in images if image not in used]
    return Pairing(cases, unpaired + _unmatched(left, []), names)


def _prefixes(image: Entry, keys: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The keys that prefix the image's name, longest first, each with the rest of the name."""
    stem = image.stem.casefold()
    for end in reversed([match.start() for match in _SEPARATOR.finditer(stem)]):
        if stem[:end] in keys:
            yield stem[:end], stem[end + 1 :]


def _unmatched(images: Sequence[Entry], labels: Sequence[Entry]) -> list[Unpaired]:
    """Entries without a counterpart or with too many, each with a fix."""
    by_image = by_key(images, _READINGS[-1].image_key)
    by_label = by_key(labels, _READINGS[-1].label_key)
    unpaired = []
    for own, others, kind, other in (
        (by_image, by_label, "image", "label map"), (by_label, by_image, "label map", "image")
    ):  # fmt: skip
        for key, group in own.items():
            for entry in group:
                rivals = [e.path.name for e in (*group, *others.get(key, ())) if e != entry]
                if others.get(key):
                    what = f"shares its name with {', '.join(rivals)}"
                    fix = "keep one image and one label map per name"
                elif not is_label_name(entry.stem) and is_label_name(unnumbered(entry.stem)):
                    what = "is named like one of several label maps of an image"
                    fix = "merge them into one file: a case has one label map"
                else:
                    what = f"has no {other} of the same name"
                    fix = f"add the {other} or remove the {kind} from the folder"
                    if there := next((e.stem for g in others.values() for e in g), ""):
                        fix += f"; if it has another name, like {there}, give both the same name"
                unpaired.append(Unpaired(entry.path, what, fix))
    return unpaired


def finished(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Cases with unique names, sorted by name, parts of one whole in one group."""
    return tuple(sorted(_grouped(list(_numbered(cases))), key=lambda case: case.name))


def _numbered(cases: Sequence[Case]) -> Iterator[Case]:
    """Cases of one name get the next numbers that no other case has in its name."""
    counted = Counter(case.name for case in cases)
    used, numbers = set(counted), {name: count(1) for name in counted}
    for case in cases:
        name = case.name
        if counted[name] > 1:
            possible = (f"{name}-{number}" for number in numbers[name])
            name = next(one for one in possible if one not in used)
            used.add(name)
        yield replace(case, name=name)


def _grouped(cases: list[Case]) -> list[Case]:
    """Groups that are given; else BIDS subjects, and those from folders and names such as
    ``p1_slice03``, joined where DICOM files have one Patient ID, unless all cases would be in one.
    """
    parents = by_key(cases, lambda case: folder_of(case.name))
    shared = {parent for parent, members in parents.items() if parent and len(members) > 1}
    guessed = []
    for case in cases:
        parent = folder_of(case.name)
        folder = parent if parent in shared else ""
        group = subject_of(case.name) or folder or whole_of(case.name)
        guessed.append(replace(case, group=case.group or group))
    if any(case.group for case in cases):
        return guessed
    possible = (_of_patients(guessed), guessed)
    return next((some for some in possible if len({case.grouped for case in some}) > 1), cases)


def _of_patients(cases: Sequence[Case]) -> list[Case]:
    """Cases whose groups are joined where their images are of one patient."""
    ordered = sorted(cases, key=lambda case: case.name)
    groups = joined((case.grouped, patient_of(case.images[0])) for case in ordered)
    return [
        case if groups[case.grouped] == case.grouped else replace(case, group=groups[case.grouped])
        for case in cases
    ]
