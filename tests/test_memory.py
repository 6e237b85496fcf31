"""Memory of the machine and of containers: cgroups as the kernel shows them, in a folder."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from caps_med import memory

GIB = 2**30


@pytest.fixture
def cgroups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A process without containers; files under this folder make some."""
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN", tmp_path / "own")
    return tmp_path


def container(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_the_memory_of_the_machine_or_container_is_known() -> None:
    assert GIB // 4 <= memory.memory_limit() < 2**50


def test_without_containers_it_is_that_of_the_machine(cgroups: Path) -> None:
    assert memory.memory_limit() == psutil.virtual_memory().total
    assert 0 < memory.free_memory() <= memory.memory_limit()


def test_the_smallest_container_counts_without_the_files_it_has_read(cgroups: Path) -> None:
    (cgroups / "own").write_text("0::/pod/run\n")
    full = {"memory__current": str(GIB), "memory__stat": f"anon 1\ninactive_file {GIB // 4}"}
    container(cgroups / "pod", memory__max=str(2 * GIB), **full)
    container(cgroups / "pod" / "run", memory__max="max", memory__current="5")
    assert memory.memory_limit() == 2 * GIB
    assert memory.free_memory() == GIB + GIB // 4


def test_version_1_and_a_container_that_is_full(cgroups: Path) -> None:
    (cgroups / "own").write_text("3:cpu:/other\n2:memory:/pod\n")
    full = {"memory__usage_in_bytes": str(3 * GIB)}
    container(cgroups / "memory" / "pod", memory__limit_in_bytes=str(2 * GIB), **full)
    assert (memory.memory_limit(), memory.free_memory()) == (2 * GIB, 0)
