"""Names and colours of labels, as ITK-SNAP reads them.

Format: the label description file of ITK-SNAP (Yushkevich et al. 2006), lines of
``IDX R G B A VIS MSH "NAME"``; lines that begin with # are comments.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from caps_med.drafts import check_place, write_whole
from caps_med.images.image import Array
from caps_med.images.labels import label_colors, label_palette

_HEADER = """\
################################################
# ITK-SnAP Label Description File
# File format:
# IDX   -R-  -G-  -B-  -A--  VIS MSH  LABEL
################################################
"""


def label_description(names: Mapping[int, str], palette: Array | None = None) -> str:
    """The text of a label description file.

    Args:
        names: label id -> name.
        palette: `[N, 3]` uint8, the colours of the first N ids; None for the default ones.
    """
    colours = label_palette(palette)
    lines = ['    0     0    0    0        0  0  0    "Clear Label"\n']
    for label, name in names.items():
        if label != 0:
            red, green, blue = label_colors(label, colours)
            text = name.replace('"', "'")
            lines.append(f'{label:5} {red:5}{green:5}{blue:5}        1  1  1    "{text}"\n')
    return _HEADER + "".join(lines)


def write_label_description(
    path: str | Path, names: Mapping[int, str], palette: Array | None = None
) -> None:
    """Write a label description file; see `label_description`.

    Raises:
        InvalidParameter: its folder does not exist, it is a folder, or no file can have this name.
    """
    check_place(Path(path))
    write_whole(Path(path), label_description(names, palette).encode())
