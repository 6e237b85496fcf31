"""Work of the Triton kernels that route votes, as machine code; see `benchmarks.gpu.compiled`."""

from __future__ import annotations

import itertools

import torch

from benchmarks.gpu.compiled import compiled, layers

#: A layer with more output types than one thread takes, one with few, one of the generator.
LAYERS = ("8 x 4 x 16 outputs", "3 x 1 x 16 outputs", "4 x 8 x 32 inputs")


def compiled_counts() -> dict[str, int]:
    """Instructions per thousand votes, and bytes that do not fit into the registers of a thread."""
    found, known = {}, layers()
    for name, work in itertools.product(LAYERS, ("forward", "backward")):
        kernel = compiled(known[name], torch.float32, work)
        found[f"routing {name} {work}: instructions"] = round(1000 * kernel.per_vote)
        found[f"routing {name} {work}: bytes spilled"] = kernel.spilled
    return found
