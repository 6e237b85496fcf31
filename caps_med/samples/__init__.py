"""A real brain slice to try things on, and what its tissues are.

``t1.nii.gz`` and ``tissue.nii.gz`` are one axial slice of the MNI152 template (ICBM 2009a
nonlinear symmetric, 1 mm), which the built-in models never saw, and its tissue labels: see
``NOTICE.md`` beside this file, and ``benchmarks/make_samples.py`` for how they were cut.
"""

from __future__ import annotations

from pathlib import Path

T1 = Path(__file__).parent / "t1.nii.gz"
TISSUE = Path(__file__).parent / "tissue.nii.gz"
