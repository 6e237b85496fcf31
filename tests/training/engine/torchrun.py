"""``torchrun`` with two processes, which need not import anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def torchrun(python: Path, module: str, argument: str, *options: str) -> None:
    """Run a module with an argument by the script of `tests.preloaded`; an error if it fails."""
    two = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    # PYTHON_EXEC is what it starts them by
    environment = {**os.environ, "PYTHON_EXEC": str(python), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [python, *two, *options, "-m", module, argument], env=environment, timeout=300, check=True
    )
