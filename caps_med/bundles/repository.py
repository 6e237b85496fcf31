"""The model repository: folders of bundles, always including the built-in ones."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from caps_med.bundles.bundle import CANDIDATE, Bundle, is_candidate
from caps_med.errors import InvalidBundle, InvalidParameter, ModelNotFound

log = logging.getLogger(__name__)

#: Models that come with the package.
BUILT_IN = Path(__file__).parent / "builtin"

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
_REFERENCE = re.compile(r"(?P<name>[^@]*)(@(?P<version>[1-9][0-9]{0,8}))?")


def default_root() -> Path:
    """``CAPS_MED_MODELS``, or the user's data folder."""
    if named := os.environ.get("CAPS_MED_MODELS"):
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "caps-med" / "models"


@dataclass
class _Found:
    """The versions of a model that can be read, and why others cannot."""

    folders: dict[int, Path] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)

    def warn(self) -> None:
        for reason in self.closed:
            log.warning("not listed: %s", reason)

    @contextmanager
    def reading(self, folder: Path) -> Iterator[None]:
        """Pass over a folder that was deleted meanwhile, or, with a reason, that is closed."""
        try:
            yield
        except FileNotFoundError:
            return
        except PermissionError as error:
            self.closed.append(f"{folder}: {error.strerror}")


class ModelRepository:
    """The models of one folder, and the built-in ones.

    Args:
        root: the folder; None takes `default_root`. It need not exist until a model is written.

    Raises:
        InvalidParameter: no folder can have this name, or a file has it.
    """

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = default_root() if root is None else Path(root)
        try:
            is_file = self.root.exists() and not self.root.is_dir()
        except OSError as error:
            raise InvalidParameter(f"--models {self.root}: {error.strerror}") from error
        if is_file:  # in which no model, job or project can be stored
            raise InvalidParameter(f"--models {self.root}: this is a file; name a folder")

    @staticmethod
    def check_name(name: str) -> str:
        """The name itself, if it is valid.

        Raises:
            InvalidParameter: it has characters other than a-z, 0-9 and hyphens, or is too long.
        """
        if not _NAME.fullmatch(name):
            raise InvalidParameter(
                f"model name {name!r}: use 1 to 64 of a-z, 0-9 and -, beginning and ending with "
                "a letter or digit"
            )
        return name

    def make_ready(self) -> None:
        """Create its folder, and check that a model can be written there.

        Raises:
            InvalidParameter: it cannot.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".", dir=self.root):
                pass
        except OSError as error:
            raise InvalidParameter(f"--models {self.root}: {error.strerror}") from error

    def names(self) -> list[str]:
        """Names of all models, sorted. Folders that may not be read are logged."""
        found = self._all()
        for one in found.values():
            one.warn()
        return [name for name, one in found.items() if one.folders]

    def versions(self, name: str) -> list[int]:
        """Versions of that model in ascending order; empty if it does not exist."""
        return sorted(self._find(name).folders)

    def candidates(self, name: str) -> list[int]:
        """Versions that wait for `promote`, in ascending order."""
        return sorted(v for v, path in self._find(name).folders.items() if is_candidate(path))

    def newest_first(self, name: str) -> list[Bundle]:
        """The versions that the bare name may refer to, the newest first.

        Raises:
            ModelNotFound: there is none; the message lists the available ones.
            InvalidBundle: there are some, but none may be read.
        """
        searched = self._find(name)
        folders = searched.folders
        found = [v for v in sorted(folders, reverse=True) if not is_candidate(folders[v])]
        if found:
            return [Bundle(name, version, folders[version]) for version in found]
        if folders:
            there = ", ".join(f"{name}@{version}" for version in sorted(folders))
            raise ModelNotFound(
                f"no version of {name} is promoted yet: name one of its candidates, {there}, or "
                "promote it"
            )
        if searched.closed:
            raise _closed(name, searched)
        raise ModelNotFound(f"no model {name!r}: {self._known()}")

    def promote(self, reference: str) -> Bundle:
        """Make the bare name refer to ``name@3``; newer versions become candidates.

        Raises:
            ModelNotFound: there is no such version. InvalidParameter: `reference` has none.
            OSError: the repository cannot be written.
        """
        bundle = self.find(reference)
        if "@" not in reference:
            raise InvalidParameter(f"{reference}: a version is needed, such as {bundle.reference}")
        (bundle.path / CANDIDATE).unlink(missing_ok=True)
        # the newest last: until then it goes on answering, and no third version does
        for version, path in sorted(self._find(bundle.name).folders.items()):
            if version > bundle.version:
                (path / CANDIDATE).touch()
        return bundle

    def is_built_in(self, name: str) -> bool:
        """Whether a model with this name comes with the package."""
        return bool(_NAME.fullmatch(name)) and (BUILT_IN / name).is_dir()

    def list(self) -> list[Bundle]:
        """The latest version of every model; those with damaged metadata are logged, not listed.

        The damage of one model must not hide the others. `Bundle.load_network` names it.
        """
        found = []
        for name in self.names():
            with suppress(ModelNotFound):  # there are only candidates
                found.append(self.newest_first(name)[0])
        return [bundle for bundle in found if _readable(bundle)]

    def find(self, reference: str) -> Bundle:
        """The model ``name`` in its latest version that is not a candidate, or ``name@3``.

        Raises:
            ModelNotFound: there is no such model or version; the message lists the available ones.
            InvalidBundle: it may not be read.
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None or not _NAME.fullmatch(match["name"]):
            raise ModelNotFound(f"no model {reference!r}: {self._known()}")
        name, found = match["name"], self._find(match["name"])
        if not found.folders or not match["version"]:
            newest = self.newest_first(name)[0]
            found.warn()
            return newest
        version = int(match["version"])
        if version not in found.folders:
            if found.closed:
                raise _closed(reference, found)
            there = ", ".join(map(str, sorted(found.folders)))
            raise ModelNotFound(f"no version {version} of {name}: available are {there}")
        return Bundle(name, version, found.folders[version])

    def _all(self) -> dict[str, _Found]:
        """What there is of each model, by its name, sorted."""
        folders = [p for base in (BUILT_IN, self.root) if base.is_dir() for p in base.iterdir()]
        named = {p.name for p in folders if _NAME.fullmatch(p.name)}
        return {name: self._find(name) for name in sorted(named)}

    def _find(self, name: str) -> _Found:
        found = _Found()
        if not _NAME.fullmatch(name):  # which may be too long for a file, or lead outside
            return found
        for base in (BUILT_IN, self.root):
            folder = base / name
            with found.reading(folder):
                for path in folder.iterdir() if folder.is_dir() else ():
                    if not path.name.isdecimal() or path.name[0] == "0":
                        continue
                    with found.reading(path):
                        if (path / "configs" / "metadata.json").is_file():
                            found.folders[int(path.name)] = path
        return found

    def _known(self) -> str:
        names = [name for name, one in self._all().items() if one.folders]
        known = f"available are {', '.join(names)}" if names else "there are none"
        return known if self.root.is_dir() else f"{known} (no folder {self.root})"


def _closed(reference: str, found: _Found) -> InvalidBundle:
    return InvalidBundle(
        f"{reference} cannot be read: {'; '.join(found.closed)}: give this user read access to it"
    )


def _readable(bundle: Bundle) -> bool:
    try:
        bundle.metadata  # noqa: B018 - reading it is the check
    except InvalidBundle as error:
        log.warning("not listed: %s", error)
        return False
    return True
