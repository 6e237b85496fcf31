import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from caps_med.drafts import draft_of, filling, scratch
from caps_med.images import MedicalImage
from training.atomic import write_text


def test_a_name_as_long_as_the_file_system_takes_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 125 + "b.png")
    assert len(path.name.encode()) == 255
    MedicalImage(np.zeros((1, 4, 4), np.uint8)).save(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_text_of_training_is_written_so_too(tmp_path: Path) -> None:
    path = tmp_path / "new" / ("b" * 250 + ".json")
    write_text(path, "whole")
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        write_text(path, "\ud800")
    assert path.read_text() == "whole" and [*path.parent.iterdir()] == [path]


def test_what_is_there_is_replaced_whole_or_stays(tmp_path: Path) -> None:
    path = tmp_path / "result"
    for text in ("old", "new"):
        with draft_of(path) as draft:
            draft.write_text(text)
    with pytest.raises(OSError, match="disk is full"), draft_of(path) as draft:
        draft.write_text("half")
        raise OSError("disk is full")
    assert [file.name for file in tmp_path.iterdir()] == ["result"]
    assert path.read_text() == "new"


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as told, draft_of(tmp_path / "result.png"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert told.value.filename == str(tmp_path / "result.png")


@pytest.mark.parametrize("there", [True, False])
def test_after_an_error_only_what_was_added_to_a_folder_is_gone(
    tmp_path: Path, there: bool
) -> None:
    folder = tmp_path / "out"
    if there:
        (folder / "mine").mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt), filling(folder):
        (folder / "new").mkdir()
        (folder / "new" / "file").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.rglob("*")) == ([folder, folder / "mine"] if there else [])


#: Says where it keeps a scan, and waits.
HOLDING = """
import sys
from caps_med.drafts import scratch
with scratch() as folder:
    (folder / "scan.nii").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no locks of this kind")
def test_what_killed_processes_left_goes_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    processes, folders = [], []
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDING], env={**os.environ, "TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        processes.append(process)
        folders.append(Path(process.stdout.readline().strip()))
    killed, new, used = folders
    for process in processes[:2]:
        process.kill()
        process.communicate()
    for folder in (killed, used):
        os.utime(folder, (0, 0))
    with scratch() as mine:
        assert {*tmp_path.iterdir()} == {new, used, mine}
    assert (used / "scan.nii").exists()
    processes[2].communicate()
    assert [*tmp_path.iterdir()] == [new]
