"""The model repository: folders of bundles, always with the built-in ones."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from pathlib import Path

from caps_med.bundles.bundle import Bundle
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


class ModelRepository:
    """The models of one folder, and the built-in ones.

    Args:
        root: the folder; None takes `default_root`. It need not exist until a model is written.
    """

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = default_root() if root is None else Path(root)

    @staticmethod
    def check_name(name: str) -> str:
        """The name itself, if it is valid.

        Raises:
            InvalidParameter: it is not of a-z, 0-9 and hyphens, or too long.
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
        """Names of all models, sorted."""
        folders = [p for base in (BUILT_IN, self.root) if base.is_dir() for p in base.iterdir()]
        named = {p.name for p in folders if _NAME.fullmatch(p.name)}
        return sorted(name for name in named if self.versions(name))

    def versions(self, name: str) -> list[int]:
        """Versions of that model in ascending order; none if it does not exist."""
        return sorted(self._folders(name))

    def list(self) -> list[Bundle]:
        """The latest version of every model; those with damaged metadata are logged, not listed.

        The damage of one model must not hide the others. `find` and `Bundle.verify` name it.
        """
        return [bundle for name in self.names() if _readable(bundle := self.find(name))]

    def find(self, reference: str) -> Bundle:
        """The model ``name`` in its latest version, or ``name@3``.

        Raises:
            ModelNotFound: there is no such model or version; the message lists what there is.
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None or not _NAME.fullmatch(match["name"]):
            raise ModelNotFound(f"no model {reference!r}: {self._known()}")
        name, folders = match["name"], self._folders(match["name"])
        if not folders:
            raise ModelNotFound(f"no model {name!r}: {self._known()}")
        version = int(match["version"]) if match["version"] else max(folders)
        if version not in folders:
            there = ", ".join(map(str, sorted(folders)))
            raise ModelNotFound(f"no version {version} of {name}: there is {there}")
        return Bundle(name, version, folders[version])

    def _folders(self, name: str) -> dict[int, Path]:
        found = {}
        for base in (BUILT_IN, self.root):
            folder = base / name
            if not folder.is_dir():
                continue
            for path in folder.iterdir():
                complete = (path / "configs" / "metadata.json").is_file()
                if path.name.isdecimal() and path.name[0] != "0" and complete:
                    found[int(path.name)] = path
        return found

    def _known(self) -> str:
        names = self.names()
        known = f"there is {', '.join(names)}" if names else "there is none"
        return known if self.root.is_dir() else f"{known} (no folder {self.root})"


def _readable(bundle: Bundle) -> bool:
    try:
        bundle.metadata  # noqa: B018 - reading it is the check
    except InvalidBundle as error:
        log.warning("not listed: %s", error)
        return False
    return True
