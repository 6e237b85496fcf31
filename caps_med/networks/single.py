"""The networks other than ensembles, and how one is built from untrusted arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic_core import to_json

from caps_med.errors import InvalidParameter, InvalidPlugin
from caps_med.networks.base import CapsuleNetwork
from caps_med.networks.baseline import UNet
from caps_med.networks.capsnet import CapsNet
from caps_med.networks.capspix2pix import CapsPix2Pix
from caps_med.networks.convcaps import ConvCaps
from caps_med.networks.convolutional import ConvNet, ResNet
from caps_med.networks.efficient_capsnet import EfficientCapsNet
from caps_med.networks.matrix_capsules import MatrixCapsules
from caps_med.networks.onlycaps import OnlyCaps
from caps_med.networks.pix2pix import Pix2Pix
from caps_med.networks.segcaps import SegCaps
from caps_med.networks.spade import SPADE
from caps_med.networks.transforming import TransformingAutoencoder
from caps_med.networks.ucaps import UCaps
from caps_med.registries import Registry
from caps_med.wording import reason

#: What installed packages add stands alone, too.
SINGLE_NETWORKS: Registry[type[CapsuleNetwork]] = Registry(
    "caps_med.networks",
    {
        "SegCaps": SegCaps,
        "ConvCaps": ConvCaps,
        "UCaps": UCaps,
        "OnlyCaps": OnlyCaps,
        "CapsPix2Pix": CapsPix2Pix,
        "Pix2Pix": Pix2Pix,
        "SPADE": SPADE,
        "UNet": UNet,
        "CapsNet": CapsNet,
        "MatrixCapsules": MatrixCapsules,
        "EfficientCapsNet": EfficientCapsNet,
        "ConvNet": ConvNet,
        "ResNet": ResNet,
        "TransformingAutoencoder": TransformingAutoencoder,
    },
)

#: No argument of a network here is sensibly above this; a hostile file must not ask for terabytes.
_LARGEST_ARGUMENT = 4096


def build_from(
    networks: Mapping[str, type[CapsuleNetwork]], name: str, arguments: Mapping[str, Any]
) -> CapsuleNetwork:
    """Build one of these networks from untrusted arguments.

    Raises:
        InvalidParameter: an unknown name, an unknown argument, or a value of the wrong type or
            out of range.
        InvalidPlugin: the network of an installed package has arguments without types.
    """
    if name not in networks:
        raise InvalidParameter(f"network={name!r}: must be one of {tuple(networks)}")
    network = networks[name]
    given = to_json(dict(arguments), fallback=repr)
    try:
        checked = _argument_model(network).validate_json(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidParameter(f"{name}: argument {where!r}: {reason(first)}") from error
    values = checked.model_dump()
    for key, value in values.items():
        _check_size(name, key, value)
    return network(**values)


def _check_size(network: str, argument: str, value: object) -> None:
    for number in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(number, int) and number > _LARGEST_ARGUMENT:
            raise InvalidParameter(
                f"{network}: argument {argument!r} is {number}: at most {_LARGEST_ARGUMENT}"
            )


def _argument_model(network: type[CapsuleNetwork]) -> TypeAdapter[Any]:
    parameters = inspect.signature(network, eval_str=True).parameters
    for name, one in parameters.items():
        if one.annotation is one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise InvalidPlugin(
                f"{network.__module__}.{network.__name__}: argument {name!r} of its __init__: each "
                "one must be named and have a type, to check the values in a model's card"
            )
    fields: dict[str, Any] = {n: (p.annotation, p.default) for n, p in parameters.items()}
    # strict: other readers of a card take its values as they are; JSON: a list may be a tuple
    config = ConfigDict(extra="forbid", strict=True)
    return TypeAdapter(create_model(f"{network.__name__}Arguments", __config__=config, **fields))
