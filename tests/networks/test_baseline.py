"""The U-Net and the ensemble stand behind the same face as SegCaps."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from caps_med.errors import InvalidParameter
from caps_med.networks import Ensemble, SegCaps, UNet, build_network
from caps_med.networks.shapes import shapes_only

SMALL = (4, 4, 8, 8, 8, 4)


@pytest.mark.parametrize("size", [(32, 48), (32, 16, 32)])
@pytest.mark.parametrize("classes", [1, 3])
def test_unet_answers_with_probabilities(size: tuple[int, ...], classes: int) -> None:
    network = UNet(len(size), out_channels=classes, features=SMALL).eval()
    with torch.no_grad():
        answer = network(torch.rand(2, 1, *size))
    assert answer.shape == (2, classes, *size)
    assert answer.min() >= 0 and answer.max() <= 1
    if classes > 1:
        torch.testing.assert_close(answer.sum(1), torch.ones(2, *size))


def test_unet_has_no_capsules_and_takes_multiples_of_sixteen() -> None:
    network = UNet(features=SMALL)
    assert network.layers == ()
    with pytest.raises(InvalidParameter, match="UNet has no capsules to show"):
        network.capsules(torch.zeros(1, 1, 16, 16))
    with pytest.raises(InvalidParameter, match=r"multiple of 16; pad to \(32, 16\)"):
        network(torch.zeros(1, 1, 17, 16))


def test_features_are_those_of_the_image_while_another_one_is_computed() -> None:
    """As by another thread."""
    network = UNet(features=SMALL).eval()
    image, other = torch.rand(2, 1, 1, 32, 48)

    def meanwhile(*_: object) -> None:
        handle.remove()
        network.features(other)

    with torch.no_grad():
        expected = network.features(image)
        handle = network.unet.get_submodule("down_1").register_forward_hook(meanwhile)
        torch.testing.assert_close(network.features(image), expected, atol=0, rtol=0)


@pytest.mark.parametrize("size", [(16, 16), (16, 16, 16)])
def test_unet_refuses_an_image_of_one_coarsest_position(size: tuple[int, ...]) -> None:
    network = UNet(len(size), features=SMALL)
    wider = (*size[:-1], 32)
    with pytest.raises(InvalidParameter, match=re.escape(f"spatial size {size}")) as refused:
        network(torch.zeros(1, 1, *size))
    assert str(refused.value).endswith(f"pad to {wider}")
    assert network(torch.zeros(1, 1, *wider)).shape[2:] == wider


@pytest.mark.parametrize(
    ("network", "arguments", "millions"),
    [
        ("UNet", {}, 2.0),
        ("UNet", {"features": (64, 128, 256, 512, 1024, 64)}, 31.1),
        ("ConvCaps", {"out_channels": 3}, 1.1),
        ("ConvCaps", {"out_channels": 3, "spatial_dims": 3}, 3.0),
    ],
)
def test_it_has_as_many_parameters_as_it_says(
    network: str, arguments: dict[str, Any], millions: float
) -> None:
    with shapes_only():
        built = build_network(network, arguments)
    assert round(sum(p.numel() for p in built.parameters()) / 1e6, 1) == millions


def test_an_ensemble_answers_with_the_mean_of_its_members() -> None:
    torch.manual_seed(0)
    arguments = {"atoms": 4, "out_channels": 3}
    ensemble = build_network("Ensemble", {"network": "SegCaps", "members": 2,
                                          "arguments": arguments}).eval()  # fmt: skip
    assert isinstance(ensemble, Ensemble)
    image = torch.rand(2, 1, 16, 24)
    with torch.no_grad():
        answers = [member(image) for member in ensemble.members]
        torch.testing.assert_close(ensemble(image), torch.stack(answers).mean(0))
        first = ensemble.capsules(image)["seg_caps"]
    assert ensemble.layers == SegCaps(atoms=4, out_channels=3).layers
    assert first.shape == (2, 3, 4, 16, 24)


def test_members_of_an_ensemble_may_differ_in_their_arguments() -> None:
    torch.manual_seed(0)
    given = {"network": "SegCaps", "members": 2, "arguments": {"atoms": 2, "variant": "r1"},
             "own": [{}, {"normalize": True}]}  # fmt: skip
    ensemble = build_network("Ensemble", given).eval()
    assert isinstance(ensemble, Ensemble)
    plain, normalized = ensemble.networks
    assert set(normalized.state_dict()) > set(plain.state_dict())
    image = torch.rand(1, 1, 16, 16)
    with torch.no_grad():
        mean = (plain(image) + normalized(image)) / 2
        torch.testing.assert_close(ensemble(image), mean)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ([{}], "own: 1 entries for 2 members"),
        ([{}, {"out_channels": 3}], "own: the members must have the same out_channels"),
        ([{}, {"atoms": 5000}], "argument 'atoms' is 5000: at most 4096"),
        ([{}, 1], "argument 'own.1': "),
    ],
)
def test_members_that_cannot_be_averaged_are_refused(own: list[object], message: str) -> None:
    given = {"network": "SegCaps", "members": 2, "arguments": {"atoms": 2}, "own": own}
    with pytest.raises(InvalidParameter, match=message):
        build_network("Ensemble", given)


@pytest.mark.parametrize(
    ("network", "members", "arguments", "message"),
    [
        ("SegCaps", 0, {}, "members=0: must be 1 to 32"),
        ("SegCaps", 33, {}, "members=33: must be 1 to 32"),
        ("Ensemble", 2, {}, "an ensemble of ensembles"),
        ("CapsPix2Pix", 2, {"atoms": 2}, "members must be segmentation networks"),
        ("SegCaps", 2, {"atoms": 5000}, "argument 'atoms' is 5000: at most 4096"),
        ("os.system", 2, {}, "must be one of"),
    ],
)
def test_an_ensemble_of_anything_else_is_refused(
    network: str, members: int, arguments: dict[str, object], message: str
) -> None:
    values = {"network": network, "members": members, "arguments": arguments}
    with pytest.raises(InvalidParameter, match=message):
        build_network("Ensemble", values)
