"""A folder in, a folder out: apply one model to many images, with a table of the results.

>>> from caps_med.batch import SegmentFiles, run_batch
>>> run = run_batch(SegmentFiles("brain-t1-tissue"), ["scans"], "tissues")  # doctest: +SKIP
>>> [result.error for result in run.failed]  # doctest: +SKIP
"""

from caps_med.batch.actions import (
    Action,
    ClassifyFiles,
    FeatureFiles,
    SegmentFiles,
    SynthesizeFiles,
)
from caps_med.batch.cases import Case
from caps_med.batch.cluster import Cluster
from caps_med.batch.inputs import Found, Skipped, find_cases
from caps_med.batch.run import BatchRun, Listener, run_batch
from caps_med.batch.table import CaseResult

__all__ = [
    "Action",
    "BatchRun",
    "Case",
    "CaseResult",
    "ClassifyFiles",
    "Cluster",
    "FeatureFiles",
    "Found",
    "Listener",
    "SegmentFiles",
    "Skipped",
    "SynthesizeFiles",
    "find_cases",
    "run_batch",
]
