"""The compose file's container without Docker: its command, mounts and environment.

``unshare --map-root-user --mount python -m benchmarks.siege.container SPEC`` shows this machine's
files read-only under a new root, adds the volumes and tmpfs of the service, and runs its command.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
#: Of ``<sys/mount.h>`` and ``<linux/mount.h>``.
MS_BIND, MS_REC = 4096, 16384
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1


@dataclass(frozen=True)
class Container:
    """What the compose file says about one service, as far as it can be had without Docker.

    Attributes:
        command: what it runs.
        environment: of the image and of the service.
        volumes: folders of this machine, by their paths inside.
        tmpfs: paths of empty folders in memory.
        visible: folders that stay visible even below a tmpfs: the code and its interpreter.
    """

    command: list[str]
    environment: dict[str, str]
    volumes: dict[str, str]
    tmpfs: list[str]
    visible: list[str]


def composed(folder: Path, *arguments: str) -> Container:
    """The service ``caps-med`` of ``docker/compose.yaml`` with its volumes below `folder`.

    Args:
        arguments: added to its command.

    Raises:
        ValueError: the compose file does not ask for a read-only file system.
    """
    import yaml

    text = (REPOSITORY / "docker" / "compose.yaml").read_text()
    service: dict[str, Any] = yaml.safe_load(text)["services"]["caps-med"]
    if service.get("read_only") is not True:
        raise ValueError("the compose file does not ask for a read-only file system")
    volumes = {}
    for volume in service["volumes"]:
        name, _, inside = volume.partition(":")
        (folder / name).mkdir(exist_ok=True)
        volumes[inside] = str(folder / name)
    return Container(
        [*service["command"], *arguments],
        {**_image_environment(), **service["environment"], "PYTHONPATH": str(REPOSITORY)},
        volumes,
        [entry.partition(":")[0] for entry in service["tmpfs"]],
        [str(REPOSITORY), sys.prefix, sys.base_prefix],
    )


def _image_environment() -> dict[str, str]:
    """``ENV`` of the Dockerfile's last stage, with this interpreter's scripts in its path."""
    text = (REPOSITORY / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = re.findall(r"^ENV (.*)$", text.rpartition("\nFROM ")[2], re.MULTILINE)
    pairs = (pair.partition("=") for line in lines for pair in shlex.split(line))
    found = {name: value for name, _, value in pairs}
    scripts = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**found, "PATH": scripts}


def run_command(container: Container, folder: Path) -> list[str]:
    """The command that runs a container with its root at ``folder / "root"``."""
    (folder / "root").mkdir()
    spec = folder / "container.json"
    spec.write_text(json.dumps({"root": str(folder / "root"), **asdict(container)}))
    return [
        "unshare", "--map-root-user", "--mount",
        sys.executable, "-m", "benchmarks.siege.container", str(spec),
    ]  # fmt: skip


def why_not() -> str:
    """Why no container can be run here; empty if it can."""
    probe = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        subprocess.run(probe, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return "no user and mount namespaces here"
    return ""


def enter(root: Path, container: Container) -> None:
    """Build the new root and change into it.

    Raises:
        OSError: the system refuses a mount.
    """
    _mount("tmpfs", root, "tmpfs")
    for entry in Path("/").iterdir():
        inside = root / entry.name
        if entry.is_symlink():
            inside.symlink_to(entry.readlink())
        elif entry.is_dir():
            inside.mkdir()
            _mount(str(entry), inside, flags=MS_BIND | MS_REC)
    for path in (*container.volumes, *container.tmpfs):
        _inside(root, path).mkdir(parents=True, exist_ok=True)
    _make_read_only(root)
    for path in container.tmpfs:
        _mount("tmpfs", _inside(root, path), "tmpfs")
    for path in container.visible:
        if not _inside(root, path).exists():
            _inside(root, path).mkdir(parents=True)
            _mount(path, _inside(root, path), flags=MS_BIND | MS_REC)
            _make_read_only(_inside(root, path))
    for path, folder in container.volumes.items():
        _mount(folder, _inside(root, path), flags=MS_BIND)
    os.chroot(root)
    os.chdir("/")


def _inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _mount(source: str, target: Path, kind: str = "", flags: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), bytes(target), kind.encode() or None, flags, None) != 0:
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}")


def _make_read_only(target: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    where = (ctypes.c_int(AT_FDCWD), bytes(target), ctypes.c_uint(AT_RECURSIVE))
    if libc.syscall(ctypes.c_long(SYS_MOUNT_SETATTR), *where, attributes, size) != 0:
        raise OSError(ctypes.get_errno(), f"make {target} read-only")


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    root = Path(spec.pop("root"))
    container = Container(**spec)
    enter(root, container)
    os.environ.clear()
    os.environ.update(container.environment)
    os.execvpe(container.command[0], container.command, container.environment)  # noqa: S606


if __name__ == "__main__":
    main()
