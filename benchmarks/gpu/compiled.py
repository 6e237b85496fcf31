"""Routing's Triton kernels as machine code, without a GPU: ``python -m benchmarks.gpu.compiled``.

They are compiled for compute capability 9.0 (H100), as for the votes of every layer of SegCaps and
the CapsPix2Pix generator at 512 x 512 pixels, four images at once. The table shows instructions
that a thread executes per vote (moving a vote to the GPU's processors at the full rate of an H100's
memory takes as long as 38 of them in float32 and 19 in bfloat16), shuffles among them, registers of
a thread, and bytes that do not fit into them.
"""

from __future__ import annotations

import itertools
import re
import statistics
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.layers import Votes, cast_votes
from benchmarks.options import benchmark_parser
from caps_med.networks import CapsPix2Pix, SegCaps
from caps_med.routing.layout import empty_capsules, positions_last_but_two

_CAPABILITY = 90
#: Positions and images of the layers; the kernels depend on whether there are many of them.
_POSITIONS, _BATCH, _SIZE = 512 * 512, 4, 64
_TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d\s+)?([A-Z][A-Z0-9_]*)")


@dataclass(frozen=True)
class Compiled:
    """A kernel as machine code.

    Attributes:
        instructions: by name, of one thread; the kernels have no loops.
        per_vote: instructions of all threads, by the votes that they route.
        registers: of a thread.
        spilled: bytes of a thread that lie in memory instead.
    """

    instructions: Counter[str]
    per_vote: float
    registers: int
    spilled: int

    @property
    def shuffles_per_vote(self) -> float:
        """Numbers that threads hand to each other, among `per_vote`."""
        found: float = self.per_vote * self.instructions["SHFL"] / self.instructions.total()
        return found


def layers() -> dict[str, Votes]:
    """A layer of each shape and competition of both networks."""
    networks = (SegCaps(atoms=16), CapsPix2Pix(atoms=16))
    found = [v for network in networks for v in cast_votes(network, _SIZE, 1, torch.device("cpu"))]
    return {f"{_shape(votes)} {votes.routing.competition}": votes for votes in found}


def compiled(layer: Votes, dtype: torch.dtype, work: str) -> Compiled:
    """The kernel that routes a layer's votes: work is ``"forward"`` or ``"backward"``."""
    from caps_med.routing import triton_backend as backend  # triton is not everywhere

    kernel = backend._forward if work == "forward" else backend._backward
    held = backend.FORWARD_THREAD_VOTES if work == "forward" else backend.BACKWARD_THREAD_VOTES
    votes = layer.votes.to(dtype)
    flat = positions_last_but_two(votes)
    capsules = positions_last_but_two(empty_capsules(votes).unsqueeze(1))
    shape = torch.Size((_BATCH, flat.shape[1], _POSITIONS, *flat.shape[3:]))
    many = flat.new_empty(1).expand(shape)
    _, constants = backend._launch(many, layer.bias, layer.routing, held)
    read = {**_strided(flat, "v"), "N": _POSITIONS, "votes_at": flat, "bias_at": layer.bias}
    if work == "forward":
        given = {**read, **_strided(capsules, "o"), "out_at": flat}
    else:
        given = {**read, **_strided(capsules, "a"), **_strided(flat, "g"), "above_at": flat}
        given |= {"grad_at": flat, "sums_at": flat.float()}
    if layer.bias is None:
        given["bias_at"] = flat
    together = constants["J"] if constants["OUTPUTS"] else 1
    routed = constants["I"] * together * constants["A"] * constants["BLOCK"]
    threads = 32 * constants["num_warps"]
    return _counted(_machine_code(kernel, given, constants), threads / routed)


def _shape(votes: Votes) -> str:
    _, I, J, A = votes.votes.shape[:4]
    return f"{I} x {J} x {A}"


def _strided(flat: Tensor, name: str) -> dict[str, Any]:
    """Strides of ``[B, I, N, J, A]`` by the names of the kernels' arguments."""
    return {name + axis: step for axis, step in zip("binja", flat.stride(), strict=True)}


def _machine_code(kernel: Any, given: dict[str, Any], constants: dict[str, Any]) -> bytes:  # noqa: ANN401 - Triton's
    """As Triton specializes a launch: a stride of one is a constant, multiples of 16 are known."""
    import triton
    from triton.backends.compiler import GPUTarget

    options = {"num_warps": constants["num_warps"]}
    fixed = {name: value for name, value in constants.items() if name not in options}
    signature, known = {}, {}
    for number, name in enumerate(kernel.arg_names):
        value = given.get(name)
        if isinstance(value, Tensor):
            signature[name] = _TYPES[value.dtype]
            known[(number,)] = [["tt.divisibility", 16]]
        elif name in constants or value == 1:
            signature[name] = "constexpr"
            fixed.setdefault(name, 1)
        else:
            signature[name] = "i32"
            if given[name] % 16 == 0:
                known[(number,)] = [["tt.divisibility", 16]]
    source = triton.compiler.ASTSource(kernel, signature, constexprs=fixed, attrs=known)
    target = GPUTarget("cuda", _CAPABILITY, 32)
    code: bytes = triton.compile(source, target=target, options=options).asm["cubin"]
    return code


def _counted(code: bytes, threads_per_vote: float) -> Compiled:
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        told = [
            subprocess.run(
                [knobs.nvidia.cuobjdump.path, option, file.name],
                capture_output=True, text=True, check=True,
            ).stdout
            for option in ("-sass", "-res-usage")
        ]  # fmt: skip
    names = (found.group(1) for found in map(_INSTRUCTION.search, told[0].splitlines()) if found)
    instructions = Counter(name for name in names if name != "NOP")
    registers, stack, local = (
        int(re.findall(rf"{name}:(\d+)", told[1])[0]) for name in ("REG", "STACK", "LOCAL")
    )
    per_vote = instructions.total() * threads_per_vote
    return Compiled(instructions, per_vote, registers, stack + local)


def main() -> None:
    """Print the table, and geometric means over the shapes."""
    benchmark_parser(__doc__).parse_args()
    print(f"{'votes':22}{'':19}{'instructions':>14}{'shuffles':>10}{'registers':>11}{'spilled':>9}")
    for dtype, work in itertools.product(_TYPES, ("forward", "backward")):
        found = {name: compiled(layer, dtype, work) for name, layer in layers().items()}
        kind = f"{work} {str(dtype).removeprefix('torch.')}"
        for name, kernel in found.items():
            print(
                f"{name:22}{kind:19}{kernel.per_vote:14.1f}{kernel.shuffles_per_vote:10.2f}"
                f"{kernel.registers:11}{kernel.spilled:9}",
                flush=True,
            )
        mean = statistics.geometric_mean(kernel.per_vote for kernel in found.values())
        print(f"{'geometric mean':22}{kind:19}{mean:14.1f}")


if __name__ == "__main__":
    main()
