"""Records of finished cases, so that none is repeated: one file each until the tables have it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caps_med.batch.places import remove_files, remove_folder, texts_in, write_text
from caps_med.batch.table import CaseResult
from caps_med.drafts import drafts_in

if TYPE_CHECKING:
    from caps_med.batch.places import Place

_FOLDER, _SUFFIX = ".cases", ".json"


@dataclass(frozen=True)
class Records:
    """Files below the outputs, one per case, written by the process that worked on it.

    The tables of many cases are written only now and then; if the batch ends in between, even by
    force, the records show what is done. Half-written outputs are kept here, too, so that those of
    a killed process are removed with the folder.

    Attributes:
        out: the folder of the outputs.
        made_by: what determines the outputs; records of other models or settings do not count.
    """

    out: Place
    made_by: Mapping[str, Any]

    @property
    def folder(self) -> Place:
        """The hidden folder below the outputs."""
        return self.out / _FOLDER

    def add(self, result: CaseResult) -> None:
        """Keep a result.

        Raises:
            OSError: it cannot be written.
        """
        if not self.folder.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
        document = {"made_by": self.made_by, "case": result.as_dict()}
        write_text(self.folder / _name(result.case), json.dumps(document, ensure_ascii=False))

    def drafting(self, what: str) -> AbstractContextManager[None]:
        """Files written in this context lie here until complete; a store has no partial objects.

        Args:
            what: a case, or anything else that no two processes write at the same time.
        """
        if not isinstance(self.folder, Path):
            return nullcontext()
        return drafts_in((self.folder / _name(what)).with_suffix(".drafts"))

    def read(self) -> dict[str, CaseResult]:
        """Case name -> result, for cases that may be missing from the tables."""
        found = {}
        for text in texts_in(self.folder, _SUFFIX).values():
            try:
                document = json.loads(text)
                if document["made_by"] == self.made_by:
                    result = CaseResult.from_dict(document["case"])
                    found[result.case] = result
            except (ValueError, TypeError, KeyError):  # not ours
                continue
        return found

    def drop(self, cases: Iterable[str]) -> None:
        """Remove the records of cases that the tables have."""
        remove_files(self.folder, [_name(case) for case in cases])

    def tidy(self) -> None:
        """Leave no empty folder behind."""
        if isinstance(self.folder, Path):
            with suppress(OSError):  # it holds what workers did last, or is not there
                self.folder.rmdir()

    def clear(self) -> None:
        """Remove all records."""
        remove_folder(self.folder)


def _name(case: str) -> str:
    return f"{hashlib.sha256(case.encode()).hexdigest()[:32]}{_SUFFIX}"
