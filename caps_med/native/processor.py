"""Capabilities of the processor."""

from __future__ import annotations

import platform
from functools import cache

#: Machines that all have fused multiply-additions.
_FUSED = ("aarch64", "arm64", "ppc64le")


@cache
def has_fused_additions() -> bool:
    """Whether it multiplies and adds in one instruction; otherwise each would be a call."""
    return platform.machine().lower() in _FUSED or _has("fma")


@cache
def has_long_vectors() -> bool:
    """Whether 32 vectors of sixteen numbers fit into its registers."""
    return _has("avx512f")


def _has(feature: str) -> bool:
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get(feature))
