"""The network of a bundle, with verified weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from torch import Tensor

from caps_med.bundles.bundle import Bundle
from caps_med.bundles.metadata import ModelCard
from caps_med.bundles.weights import fill, parse_weights, read_weights
from caps_med.errors import InvalidBundle, InvalidParameter
from caps_med.networks import (
    CapsuleNetwork,
    ClassificationNetwork,
    SegmentationNetwork,
    SynthesisNetwork,
    build_network,
)
from caps_med.networks.shapes import shapes_only, without_draws
from caps_med.wording import counted


def load_network(bundle: Bundle) -> CapsuleNetwork:
    """See `Bundle.load_network`."""
    needed = _needed(bundle)
    state = parse_weights(_verified(bundle, needed), bundle.weights.name, needed)
    with without_draws():
        network = _network(bundle).float()  # whatever PyTorch's default type is
    fill(network, state)
    return network.eval()


def verify(bundle: Bundle) -> None:
    """See `Bundle.verify`."""
    _verified(bundle, _needed(bundle))


def _needed(bundle: Bundle) -> Mapping[str, Tensor]:
    """Names and shapes of the network's tensors, without values."""
    with shapes_only():
        return _network(bundle).state_dict()


def _network(bundle: Bundle) -> CapsuleNetwork:
    """The network without its weights."""
    spec = bundle.card.network
    try:
        network = build_network(spec.name, spec.arguments)
    except InvalidParameter as error:
        raise InvalidBundle(f"{bundle.reference}: {error}") from error
    problem = labels_problem(bundle.card, network) or channels_problem(bundle.card, network)
    if problem:
        raise InvalidBundle(f"{bundle.reference}: {problem}")
    return network


def _verified(bundle: Bundle, needed: Mapping[str, Tensor]) -> bytes:
    """The content of the weights file, checked against the recorded checksum."""
    recorded = bundle.metadata.weights
    if not bundle.weights.is_file():
        raise InvalidBundle(f"{bundle.reference}: {recorded.file} is missing")
    content = read_weights(bundle.weights, needed)
    found = hashlib.sha256(content).hexdigest()
    if found != recorded.sha256:
        raise InvalidBundle(
            f"{bundle.reference}: the weights have sha256 {found}, but the metadata say "
            f"{recorded.sha256}: the file was changed or damaged; get a new copy of it"
        )
    return content


def labels_problem(card: ModelCard, network: CapsuleNetwork) -> str:
    """How the card's labels differ from the network's classes; empty if they do not."""
    if isinstance(network, ClassificationNetwork):
        wanted, which = network.out_channels, ""
    elif isinstance(network, SegmentationNetwork):
        wanted, which = max(2, network.out_channels), ", background included"
    elif isinstance(network, SynthesisNetwork):
        wanted, which = max(2, network.label_channels), ", background included"
    else:
        return ""
    if len(card.labels) == wanted:
        return ""
    return f"{counted(len(card.labels), 'label')}, the network has {wanted} classes{which}"


def channels_problem(card: ModelCard, network: CapsuleNetwork) -> str:
    """How the card's channel names differ from the network's input; empty if they do not."""
    if not card.channel_names or not isinstance(network, SegmentationNetwork):
        return ""
    wanted = network.in_channels // (2 * card.neighbours + 1)
    if len(card.channel_names) == wanted:
        return ""
    return f"{counted(len(card.channel_names), 'name')} of channels, the network takes {wanted}"
