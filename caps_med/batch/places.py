"""Locations of inputs and outputs: folders on this machine, or an object store via fsspec.

A `Place` is a `pathlib.Path`, or for ``s3://bucket/prefix`` a `upath.UPath`, which has the same
methods. Credentials and endpoint are those of the AWS tools: the variables ``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY`` and ``AWS_ENDPOINT_URL``, the configuration files, or a role.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, TypeVar, cast

from caps_med.drafts import scratch, write_whole
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.extras import require_extra

if TYPE_CHECKING:
    from upath import UPath

    Place: TypeAlias = Path | UPath

#: The stores that can be named.
SCHEMES = ("s3",)
#: Requests to a store at a time while inputs are looked at, and bytes of one.
_REQUESTS, _BLOCK = 32, 2**18

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def place_of(text: str | Place) -> Place:
    """The place given by a path or URL.

    Raises:
        InvalidParameter: the path is empty, no such store is supported, or the URL contains
            credentials.
        MissingExtra: the packages to access the store are not installed.
    """
    if not isinstance(text, str):
        return text
    if not text:
        raise InvalidParameter("an empty path: name a file or folder; . is the working folder")
    scheme, found, rest = text.partition("://")
    if not found:
        return Path(text)
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise InvalidParameter(
            f"{scheme}://: not supported; name a folder of this machine, {known}"
        )
    if "@" in rest.partition("/")[0]:
        raise InvalidParameter(
            f"{scheme}://: a URL must not contain credentials, because others can see it: set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    require_extra("scale", f"{scheme}://")
    from upath import UPath

    return UPath(text.rstrip("/"))


@contextmanager
def store_errors() -> Iterator[None]:
    """Report failures of a store without its address or the credentials used.

    Raises:
        InvalidParameter: the store cannot be reached, or there are no credentials.
    """
    try:
        yield
    except Exception as error:
        if not is_store_error(error):
            raise
        raise InvalidParameter(
            f"the store does not answer ({type(error).__name__}): check AWS_ENDPOINT_URL, "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from None


def is_store_error(error: Exception) -> bool:
    """Whether an error comes from a store's client, whose messages contain addresses."""
    return type(error).__module__.partition(".")[0] in ("botocore", "aiobotocore", "aiohttp")


def is_remote(place: Place) -> bool:
    """Whether a place is in a store."""
    return not isinstance(place, Path)


def absolute(place: Place, base: Path | None = None) -> Place:
    """The absolute place; on this machine relative to `base` (the working folder); keeps links."""
    if isinstance(place, Path):
        return Path(os.path.abspath((base or Path.cwd()) / place))  # noqa: PTH100 - keeps links
    return place


def matching(pattern: Place) -> list[Place]:
    """The matching files and folders, ordered by name; ``**`` is any subfolder.

    On this machine, leading folders of the pattern that exist are names, not patterns: the working
    folder may be ``study [1]``.
    """
    if isinstance(pattern, Path):
        import glob

        folder = next(one for one in pattern.parents if one.exists())
        below = str(pattern.relative_to(folder))
        found = glob.glob(below, root_dir=folder, recursive=True)  # noqa: PTH207 - no hidden files
        return [folder / one for one in sorted(found)]
    return [_beside(pattern, one) for one in sorted(cast(list[str], pattern.fs.glob(pattern.path)))]


def common_folder(folders: Iterable[Place]) -> Place:
    """The deepest folder that contains all places.

    Raises:
        InvalidInput: they are in several stores.
    """
    given = list(folders)
    kinds = {_store(one) for one in given}
    if len(kinds) > 1:
        raise InvalidInput("the inputs are in several stores: run one batch for each")
    if all(isinstance(one, Path) for one in given):
        return Path(os.path.commonpath(cast(list[Path], given)))
    first = cast("UPath", given[0])
    return _beside(first, os.path.commonpath([cast("UPath", one).path for one in given]))


def _store(place: Place) -> str:
    return "" if isinstance(place, Path) else f"{place.protocol}://{place.path.partition('/')[0]}"


def objects_below(folder: UPath) -> list[Place]:
    """All objects whose names begin with the folder's, ordered by name."""
    return [_beside(folder, name) for name in sorted(folder.fs.find(folder.path))]


def _beside(place: UPath, path: str) -> UPath:
    """Another path in the same store."""
    return type(place)(path, protocol=place.protocol, **place.storage_options)


def head_of(place: Place, size: int) -> bytes:
    """The first bytes of a file.

    Raises:
        OSError: it cannot be read.
    """
    if isinstance(place, Path):
        with place.open("rb") as opened:
            return opened.read(size)
    return cast(bytes, place.fs.cat_file(place.path, start=0, end=size))


def opened(place: Place) -> BinaryIO:
    """A file, opened for reading from the start."""
    if isinstance(place, Path):
        return place.open("rb")
    return cast(BinaryIO, place.open("rb", block_size=_BLOCK, cache_type="readahead"))


def each(
    work: Callable[[_Item], _Answer], items: Sequence[_Item], place: Callable[[_Item], Place]
) -> list[_Answer]:
    """The answers for all items; many at a time in a store, where each costs a round trip."""
    if any(is_remote(place(item)) for item in items):
        with ThreadPoolExecutor(_REQUESTS) as pool:
            return list(pool.map(work, items))
    return [work(item) for item in items]


def state_of(place: Place) -> tuple[int, str | int]:
    """Size, and a value that changes with the content: a file's time, or an object's ETag."""
    if isinstance(place, Path):
        state = place.stat()
        return state.st_size, state.st_mtime_ns
    info = place.fs.info(place.path)
    changes = (info[key] for key in ("ETag", "etag", "LastModified", "created") if key in info)
    return info["size"], str(next(changes, ""))


def sizes_in(folder: Place) -> Callable[[str], int | None]:
    """A function from a file name to its size in the folder, or None; a store is listed once."""
    if isinstance(folder, Path):
        return lambda name: _size(folder / name)
    start = len(folder.path.rstrip("/")) + 1
    found = folder.fs.find(folder.path, detail=True)
    return {name[start:]: info["size"] for name, info in found.items()}.get


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def write_text(place: Place, text: str) -> None:
    """Write a file that appears whole or not at all."""
    if isinstance(place, Path):
        write_whole(place, text.encode())
    else:
        place.fs.pipe_file(place.path, text.encode())  # objects do


def texts_in(folder: Place, suffix: str) -> dict[str, str]:
    """Name -> content of the files in a folder, if it exists."""
    if isinstance(folder, Path):
        files = sorted(folder.glob(f"*{suffix}")) if folder.is_dir() else []
        return {file.name: file.read_text(encoding="utf-8") for file in files}
    names = [name for name in folder.fs.find(folder.path) if name.endswith(suffix)]
    found = folder.fs.cat(names) if names else {}
    return {name.rpartition("/")[2]: content.decode() for name, content in found.items()}


def remove_files(folder: Place, names: Sequence[str]) -> None:
    """Remove those of the files that exist."""
    if isinstance(folder, Path):
        for name in names:
            (folder / name).unlink(missing_ok=True)
    elif names:
        with suppress(FileNotFoundError):
            folder.fs.rm([f"{folder.path}/{name}" for name in names])


def remove_folder(folder: Place) -> None:
    """Remove a folder with all its contents, if it exists."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        remove_files(folder, [one.path[len(folder.path) + 1 :] for one in _objects(folder)])


def _objects(folder: UPath) -> list[UPath]:
    return cast("list[UPath]", objects_below(folder))


@contextmanager
def fetched(files: Sequence[Place]) -> Iterator[tuple[Path, ...]]:
    """Local copies of the files; those from a store exist only within the context."""
    if all(isinstance(file, Path) for file in files):
        yield tuple(cast(Sequence[Path], files))
        return
    with scratch() as here:
        names = {file.name for file in files}
        targets = [
            here.joinpath(*([] if len(names) == len(files) else [str(number)]), file.name)
            for number, file in enumerate(files)
        ]
        remote = [cast("UPath", file) for file in files]
        remote[0].fs.get([file.path for file in remote], [str(target) for target in targets])
        yield tuple(targets)


@contextmanager
def written_to(folder: Place) -> Iterator[tuple[Path, Callable[[Iterable[str]], None]]]:
    """A local folder for outputs, and a function that puts named outputs in their place."""
    if isinstance(folder, Path):
        yield folder, lambda names: None
        return
    with scratch() as here:

        def put(names: Iterable[str]) -> None:
            for name in names:
                folder.fs.put_file(str(here / name), f"{folder.path}/{name}")

        yield here, put
