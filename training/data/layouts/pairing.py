"""Which image and which label map belong together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice
from typing import NamedTuple

from training.data.cases import Case, FileRef, Unpaired
from training.data.layouts.naming import IMAGE_WORDS, LABEL_WORDS, Entry, by_key, without

#: What follows the name of a patient or a volume in the name of a part of it.
_PART = re.compile(r"[-_ ](?:slices?|sl|z|frame|tile|patch|look|aug)[-_ ]?\d+$", re.IGNORECASE)
_SIGN = re.compile(r"[-_. /]")


class _Reading(NamedTuple):
    """One way to read names: which words are left out of an image's and of a label map's."""

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
        """Capitals count only where nothing is left out."""
        return name.casefold() if self.label_words else name


#: Tried one after another on the names that are left, the first in its own capitals.
_READINGS = (
    _Reading((), ()),
    _Reading((), (LABEL_WORDS,)),
    _Reading((IMAGE_WORDS,), (LABEL_WORDS,)),
    _Reading((IMAGE_WORDS,), (LABEL_WORDS, IMAGE_WORDS)),
)


class Pairing(NamedTuple):
    """Cases, what stays alone, and the names of channels where each is a file of its own."""

    cases: list[Case]
    unpaired: list[Unpaired]
    channels: tuple[str, ...] = ()


def paired(images: Iterable[Entry], labels: Iterable[Entry]) -> Pairing:
    """Images with the label maps of the same name.

    Names are equal, or equal without the words for images and label maps at an end, in any case.
    Where no two names are, all files whose names go on after the label map's (``p1_t1``, ``p1_t2``
    for ``p1_seg``) are its channels, if most label maps have the same ones.
    """
    left, right = list(images), list(labels)
    cases: list[Case] = []
    for reading in _READINGS:
        by_image, by_label = by_key(left, reading.image_key), by_key(right, reading.label_key)
        keys = {k for k in by_image if len(by_image[k]) == len(by_label.get(k, ())) == 1}
        for key in keys:
            image, label = by_image[key][0], by_label[key][0]
            name = reading.image_name(image) or image.stem
            cases.append(Case(name, (FileRef(image.path),), FileRef(label.path)))
        left = [entry for k, group in by_image.items() if k not in keys for entry in group]
        right = [entry for k, group in by_label.items() if k not in keys for entry in group]
    if not cases and (several := _of_channels(left, right)):
        return several
    return Pairing(cases, _alone(left, right))


def _of_channels(images: Sequence[Entry], labels: Sequence[Entry]) -> Pairing | None:
    """Every label map with the images whose names begin like its own."""
    reading = _READINGS[1]
    by_label = {key: group[0] for key, group in by_key(labels, reading.label_key).items()}
    channels: dict[str, dict[str, Entry]] = {key: {} for key in by_label}
    for image in images:
        for key, word in islice(_beginnings(image, by_label), 1):
            channels[key].setdefault(word, image)
    counted = Counter(word for found in channels.values() for word in found)
    names = tuple(sorted(word for word, count in counted.items() if 2 * count > len(by_label)))
    if not names:
        return None
    cases, unpaired = [], []
    for key, label in by_label.items():
        if missing := [name for name in names if name not in channels[key]]:
            what = f"has no image {', '.join(missing)}, as others have"
            unpaired.append(Unpaired(label.path, what, "add it, or take the case out"))
        else:
            refs = tuple(FileRef(channels[key][name].path) for name in names)
            cases.append(Case(reading.label_name(label) or label.stem, refs, FileRef(label.path)))
    used = {channels[key][name] for key in channels for name in names if name in channels[key]}
    left = [image for image in images if image not in used]
    return Pairing(cases, unpaired + _alone(left, []), names)


def _beginnings(image: Entry, keys: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The keys that the image's name begins with, the longest first, and the word that follows."""
    stem = image.stem.casefold()
    for end in reversed([match.start() for match in _SIGN.finditer(stem)]):
        if stem[:end] in keys:
            yield stem[:end], stem[end + 1 :]


def _alone(images: Sequence[Entry], labels: Sequence[Entry]) -> list[Unpaired]:
    """What to do about entries without a counterpart, or with too many."""
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
                    fix = "leave one image and one label map of each name"
                else:
                    what = f"has no {other} of its name"
                    fix = f"add the {other}, or take the {kind} out of the folder"
                unpaired.append(Unpaired(entry.path, what, fix))
    return unpaired


def finished(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Cases sorted by unique names, those that are parts of one whole in one group."""
    counted = by_key(cases, lambda case: case.name)
    unique = [
        replace(case, name=case.name if len(same) == 1 else f"{case.name}-{number}")
        for same in counted.values()
        for number, case in enumerate(same, 1)
    ]
    return tuple(sorted(_grouped(unique), key=lambda case: case.name))


def _grouped(cases: list[Case]) -> list[Case]:
    """Groups from folders and from names such as ``p1_slice03``, unless all were one group."""
    parents = by_key(cases, lambda case: case.name.rpartition("/")[0])
    shared = {parent for parent, members in parents.items() if parent and len(members) > 1}
    guessed = []
    for case in cases:
        parent = case.name.rpartition("/")[0]
        group = case.group or (parent if parent in shared else _PART.sub("", case.name))
        guessed.append(replace(case, group="" if group == case.name else group))
    if len({case.grouped for case in guessed}) > 1 or any(case.group for case in cases):
        return guessed
    return cases
