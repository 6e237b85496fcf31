"""Work in parts, with as many threads as PyTorch has."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import torch


def thread_map(work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """The results of `work` for each part, in order, with as many threads as PyTorch has."""
    threads = max(1, min(torch.get_num_threads(), len(parts)))
    return list(map(work, parts) if threads == 1 else _pool(threads).map(work, parts))


@lru_cache(maxsize=8)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="caps-med-native")


if hasattr(os, "register_at_fork"):  # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
