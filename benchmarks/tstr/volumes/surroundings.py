"""Label maps with and without classes of the surroundings, to train a generator on.

    python -m benchmarks.tstr.volumes.surroundings --data DIR --out DIR --names NAME ...

DIR holds labelled volumes. ``cases.json`` in the other folder lists each of them twice: with its
label map, and with one whose background is divided by intensity into three further classes
(`benchmarks.tstr.volumes.data.divided`). A generator that is trained on the list
(``caps-med train synthesis --data DIR/cases.json``) takes either.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.options import benchmark_parser
from benchmarks.tstr.volumes.data import divided
from training.data import open_dataset

SURROUNDINGS = ("dark surroundings", "grey surroundings", "bright surroundings")


def main() -> None:
    """Write the label maps and the list."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", nargs="+", required=True, help="of the labels 1, 2, ...")
    parser.add_argument("--limit", type=int, help="so many cases only, as a check")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    dataset, listed = open_dataset(options.data), []
    first = len(options.names) + 1
    for case in dataset.cases[: options.limit]:
        image, label = dataset.read(case)
        outside = label.array[0] == 0
        levels = first + divided(image.array[0].astype(np.float32), outside)
        ids = np.where(outside, levels, label.array[0])[None].astype(np.uint8)
        file = options.out / f"{case.name}.nii.gz"
        label.with_array(ids, kind="labels").save(file)
        shared = {"image": str(case.images[0].path.absolute()), "group": case.name}
        listed.append({**shared, "label": str(case.label.path.absolute()), "name": case.name})
        listed.append({**shared, "label": file.name, "name": f"{case.name}-surroundings"})
    names = {"0": "background", **{str(i): n for i, n in enumerate(options.names, 1)}}
    names |= {str(i): name for i, name in enumerate(SURROUNDINGS, first)}
    content = {"labels": names, "training": listed}
    (options.out / "cases.json").write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
