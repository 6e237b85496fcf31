"""Whether label maps hold instances, each object with an id of its own, and not classes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from caps_med.images import MedicalImage
from caps_med.images.labels import WHITES
from caps_med.wording import counted
from training.data.check.findings import Finding, finding
from training.data.instances import separate_objects

#: With fewer objects in every label map they may as well be classes.
FEW = 8
#: Ids are instances if there are at most this many times as many connected components.
COMPONENTS = 1.1
#: Ids without gaps, but for this share of them.
GAPS = 1.1
#: The most objects in a label map, over the fewest: classes occur in most label maps.
VARYING = 1.25
#: Share of the label maps of instances that must look like it.
MOST = 0.9
_FIX = (
    "choose --binary (every id above 0 is foreground) or --instances borders (foreground, and "
    "borders between touching objects); if they are classes, --instances classes"
)


class _Map(NamedTuple):
    """One label map: its ids above 0, and whether each is one object."""

    file: str
    ids: frozenset[int]
    separate: bool

    @property
    def white(self) -> bool:
        """Whether it is a mask saved as black and white."""
        return len(self.ids) == 1 and self.ids <= WHITES

    @property
    def small(self) -> bool:
        """Whether it may be one of instances, too few to tell."""
        return len(self.ids) < FEW and max(self.ids) == len(self.ids)


class InstanceSurvey:
    """Collects the ids of label maps, one at a time."""

    def __init__(self) -> None:
        self._maps: list[_Map] = []

    def add(self, file: str, label: MedicalImage, values: Mapping[int, int]) -> None:
        """Record one label map ``[1, *S]`` and the number of voxels of each of its values."""
        ids = frozenset(values) - {0}
        gapless = len(ids) >= FEW and max(ids) <= GAPS * len(ids) + 1
        separate = gapless and separate_objects(label.array[0]) <= COMPONENTS * len(ids)
        self._maps.append(_Map(file, ids, separate))

    @property
    def odd(self) -> list[str]:
        """Label maps of ids among at least as many masks of 0 and 255."""
        return [one.file for one in self._odd()]

    def findings(self, names: Collection[int]) -> Iterator[Finding]:
        """One for each label map of ids among masks; or one if all hold instances.

        Args:
            names: ids that have names.
        """
        masks = sum(one.white for one in self._maps)
        for one in self._odd():
            found = f"{counted(len(one.ids), 'id')} up to {max(one.ids)}"
            each = ", one for each object" if one.separate else ""
            what = f"has {found}{each}, while {counted(masks, 'mask')} hold 0 and 255"
            fix = "save it as a mask of 0 and 255, or choose --binary: any id above 0 is foreground"
            yield finding("mixed_labels", one.file, what, fix)
        if self.all_instances(names):
            counts = [len(one.ids) for one in self._maps if one.ids]
            classes = frozenset[int]().union(*(one.ids for one in self._maps))
            what = (
                f"every object has its own id, {min(counts)} to {max(counts)} in a label "
                f"map: {counted(len(classes), 'class', 'classes')} would be learned"
            )
            yield finding("instances", "", what, _FIX)

    def all_instances(self, names: Collection[int]) -> bool:
        """Whether the label maps hold instances: other numbers of them, and no names of classes."""
        counts = [len(one.ids) for one in self._maps if one.ids]
        if len(set(names) - {0}) > 1 or not self.all_separate():
            return False
        return max(counts) >= VARYING * min(counts) + 1

    def all_separate(self) -> bool:
        """Whether each id is one object in most label maps, as of instances and of many organs."""
        labelled = [one for one in self._maps if one.ids]
        alike = sum(one.separate or one.small for one in labelled)
        return any(one.separate for one in labelled) and alike >= MOST * len(labelled)

    def _odd(self) -> list[_Map]:
        masks = [one for one in self._maps if one.white]
        odd = [one for one in self._maps if not one.ids <= {1, *WHITES}]
        return odd if len(odd) <= len(masks) else []
