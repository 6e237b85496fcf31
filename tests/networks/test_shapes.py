"""Networks are built without memory and without PyTorch's compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from caps_med.networks import build_network
from caps_med.networks.shapes import shapes_only
from caps_med.networks.single import SINGLE_NETWORKS


@pytest.mark.parametrize("name", SINGLE_NETWORKS)
def test_parameters_have_shapes_and_no_memory(name: str) -> None:
    with shapes_only():
        shapes = build_network(name, {}).state_dict()
    assert {tensor.device.type for tensor in shapes.values()} == {"meta"}
    real = build_network(name, {}).state_dict()
    assert {k: v.shape for k, v in shapes.items()} == {k: v.shape for k, v in real.items()}


def test_the_compiler_is_not_imported() -> None:
    code = (
        "import sys\n"
        "from caps_med.networks import build_network\n"
        "from caps_med.networks.shapes import shapes_only\n"
        "from caps_med.networks.single import SINGLE_NETWORKS\n"
        "with shapes_only():\n"
        "    for name in SINGLE_NETWORKS:\n"
        "        build_network(name, {})\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_tensors_are_initialized_again_behind_the_context() -> None:
    with shapes_only():
        pass
    assert torch.nn.Linear(20, 20).weight.std() > 0
