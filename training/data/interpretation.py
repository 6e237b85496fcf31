"""What the user states about a data set beyond what its files say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self, get_args

from caps_med.errors import InvalidParameter
from caps_med.wording import ONE_LINE
from training.data.cases import IGNORE, Cases, Instances

#: Names of the labels that are made of instances, unless others are given.
MADE_NAMES: Mapping[str, Mapping[int, str]] = {
    "binary": {1: "object"},
    "borders": {1: "object", 2: "border"},
}
_LARGEST_ID = 65535


@dataclass(frozen=True)
class Interpretation:
    """How the label maps and channels of a data set are to be understood.

    Attributes:
        instances: what label ids are learned as, see `Cases.instances`; None for what the layout
            says.
        labels: label id -> name; takes precedence over names in the data.
        channels: names of the image channels, in order; empty for those in the data.
        ignored: see `Cases.ignored`; an id, or the name that it has, in lower case. It is no label.
    """

    instances: Instances | None = None
    labels: Mapping[int, str] = field(default_factory=dict)
    channels: tuple[str, ...] = ()
    ignored: int | str | None = None

    @classmethod
    def parse(
        cls,
        instances: str | None = None,
        labels: Sequence[str] = (),
        channels: str = "",
        ignored: int | None = None,
    ) -> Self:
        """From the values of options.

        >>> Interpretation.parse("borders", ["1=nucleus"]).labels
        {1: 'nucleus'}

        Args:
            instances: ``classes``, ``binary``, ``borders`` or None.
            labels: ``1=nucleus``, or several with commas between them.
            channels: ``FLAIR,T1``.
            ignored: an id.

        Raises:
            InvalidParameter: another value, or two labels of one name.
        """
        if instances not in (None, *get_args(Instances)):
            raise InvalidParameter(
                f"instances={instances}: must be one of {', '.join(get_args(Instances))}"
            )
        pairs = (part for text in labels for part in text.split(",") if part.strip())
        names = tuple(name.strip() for name in channels.split(",")) if channels.strip() else ()
        if "" in names:
            raise InvalidParameter(
                f"channels={channels}: a name is empty; give them in the form FLAIR,T1"
            )
        named: dict[int, str] = {}
        for number, name in map(_label, pairs):
            if named.setdefault(number, name) != name:
                raise InvalidParameter(f"labels: {number} is called {named[number]} and {name}")
        check_names(named)
        return cls(instances, named, names, ignored)  # type: ignore[arg-type]  # checked above

    def with_ignored(self) -> Self:
        """The label that the data call *ignore* is left out, as in nnU-Net, if no id is given."""
        return self if self.ignored is not None else replace(self, ignored=IGNORE)

    def applied_to(self, cases: Cases) -> Cases:
        """The cases, understood in this way.

        Raises:
            InvalidParameter: as `check_names`; or an id is ignored where masks of one object each
                have none.
        """
        labels = {**cases.labels, **self.labels}
        ignored = self._ignored_in(labels)
        if ignored is not None and any(case.label.objects for case in cases.cases):
            raise InvalidParameter(
                f"ignore_label={ignored}: masks of one object each have no ids: leave it out, or "
                "merge the masks of an image into one label map"
            )
        if ignored:
            labels.pop(ignored, None)
        instances = self.instances or cases.instances
        if made := MADE_NAMES.get(instances or ""):
            labels = {0: "background", **made, **{i: n for i, n in labels.items() if i in made}}
        check_names(labels)
        return replace(
            cases,
            instances=instances,
            labels=dict(sorted(labels.items())),
            channels=self.channels or cases.channels,
            chosen_channels=bool(self.channels),
            ignored=ignored,
        )

    def _ignored_in(self, labels: Mapping[int, str]) -> int | None:
        if not isinstance(self.ignored, str):
            return self.ignored
        return next((i for i, name in labels.items() if name.casefold() == self.ignored), None)


def check_names(labels: Mapping[int, str]) -> None:
    """Check that label names are unique, as volumes and scores are reported by name, and look it.

    Raises:
        InvalidParameter: two have one name, or one has characters that cannot be seen.
    """
    found: dict[str, int] = {}
    for number, name in {0: "background", **labels}.items():
        if not re.fullmatch(ONE_LINE, name):
            raise InvalidParameter(
                f"labels: {number} is called {name!a}: use a name without line breaks and "
                "invisible characters"
            )
        if found.setdefault(name, number) != number:
            raise InvalidParameter(
                f"labels: {found[name]} and {number} are both called {name}; give them different "
                "names. To learn them as one label, give them the same id in the label maps"
            )


def _label(text: str) -> tuple[int, str]:
    number, equals, name = text.partition("=")
    number, name = number.strip(), name.strip()
    if not (equals and name and number.isdecimal() and int(number) <= _LARGEST_ID):
        raise InvalidParameter(f"labels={text}: give an id and its name, such as 1=nucleus")
    return int(number), name
