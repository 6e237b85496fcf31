"""How many DICOM files of a folder are read right: ``python -m benchmarks.dicom --folder DIR``.

Every file is read by caps_med, by pydicom (rescaled by functional groups) and by SimpleITK; then
the files of each series together. A file is

- right: all frames have the values, and lie where the reference has them; of files that hold
  several volumes (a 4-D series, a cine), the first, the middle and the last are read;
- refused: with an error that says what to do;
- no picture: it has no Pixel Data;
- wrong: read, and different, or an object that is no image;
- alone: neither reference reads it.

Copies of a file are counted once. It prints the tables and the reasons of refusal; ``--out``
writes them as JSON, ``--page`` into the page of the results.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import SimpleITK

from benchmarks.dicom.judging import Verdict, judge_file, judge_series
from benchmarks.dicom.references import series_of
from benchmarks.dicom.tables import Summary, summary, tables, written
from benchmarks.options import benchmark_parser


def main() -> None:
    """Read everything, print and write what came of it."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--folder", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--page", type=Path, help="write the tables as a page")
    parser.add_argument(
        "--most", type=int, default=0, help="of each series at most so many files are judged alone"
    )
    parser.add_argument("--list", action="store_true", help="print each file that is not right")
    options = parser.parse_args()
    SimpleITK.ProcessObject.SetGlobalWarningDisplay(False)
    found = results(options.folder, options.most, options.list)
    print(tables(found))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    if options.page:
        options.page.write_text(written(options.page.read_text(), found))


def results(folders: Sequence[Path], most: int, listed: bool) -> dict[str, Summary]:
    """Counts of files and of series by collection, and the reasons of refusal."""
    files: dict[str, list[Verdict]] = defaultdict(list)
    series: dict[str, list[Verdict]] = defaultdict(list)
    known: set[bytes] = set()
    for collection in sorted(path for folder in folders for path in folder.iterdir()):
        paths = [collection] if collection.is_file() else _files_below(collection)
        name = collection.parent.name if collection.is_file() else collection.name.replace("+", "/")
        seen: Counter[tuple[str, str]] = Counter()
        groups: dict[tuple[str, str], list[Path]] = defaultdict(list)
        for path in paths:
            if key := series_of(path):
                groups[key].append(path)
                seen[key] += 1
                if most and seen[key] > most:
                    continue
            if _is_copy(path, known):
                continue
            if verdict := judge_file(path):
                files[name].append(verdict)
                _show(path, verdict, listed)
        for group in groups.values():
            if len(group) > 1 and (judged := judge_series(group)):
                series[name].append(judged)
                _show(group[0].parent, judged, listed)
    return {"files": summary(files), "series": summary(series)}


def _is_copy(path: Path, known: set[bytes]) -> bool:
    """Whether a file with the same content was judged before."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    copy = digest in known
    known.add(digest)
    return copy


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _show(path: Path, verdict: Verdict, listed: bool) -> None:
    if listed and verdict.result not in ("right", "no picture"):
        print(
            verdict.result, path, verdict.reason, f"[{verdict.references}]", sep=" | ", flush=True
        )


if __name__ == "__main__":
    main()
