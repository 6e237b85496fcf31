"""Write a network into the model repository as a new version, atomically."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from caps_med.bundles.bundle import CANDIDATE, Bundle
from caps_med.bundles.drafts import new_draft
from caps_med.bundles.loading import channels_problem, labels_problem
from caps_med.bundles.metadata import NOT_STATED, ModelCard, WeightsSpec
from caps_med.bundles.monai_metadata import intended_use, monai_metadata
from caps_med.bundles.repository import ModelRepository
from caps_med.bundles.seeded import SEEDED
from caps_med.bundles.weights import save_weights
from caps_med.drafts import sync
from caps_med.errors import InvalidParameter
from caps_med.networks import NETWORKS, CapsuleNetwork


def write_bundle(
    repository: ModelRepository,
    name: str,
    network: CapsuleNetwork,
    card: ModelCard,
    half: bool = False,
    candidate: bool = False,
) -> Bundle:
    """Write the next version of ``name``; a crash leaves the repository as it was.

    Args:
        half: write weights as float16, half the size; check beforehand that the results hold up.
        candidate: whether the bare name keeps referring to an earlier version until this one is
            promoted.

    Raises:
        InvalidParameter: the name is invalid, or the card's labels or channels do not match the
            network.
    """
    repository.check_name(name)
    if problem := labels_problem(card, network):
        raise InvalidParameter(f"labels: {problem}")
    if problem := channels_problem(card, network):
        raise InvalidParameter(f"channel_names: {problem}")
    home = repository.root / name
    home.mkdir(parents=True, exist_ok=True)
    draft = new_draft(home)
    try:
        for folder in ("configs", "models", "docs"):
            (draft / folder).mkdir()
        digest = save_weights(network, draft / "models" / "model.safetensors", half)
        sync(draft / "models" / "model.safetensors")
        weights = WeightsSpec(sha256=digest, dtype="float16" if half else "float32")
        if candidate:
            (draft / CANDIDATE).touch()
        draft.chmod(0o755)
        return _publish(repository, name, draft, card, weights, network)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _publish(
    repository: ModelRepository,
    name: str,
    draft: Path,
    card: ModelCard,
    weights: WeightsSpec,
    network: CapsuleNetwork,
) -> Bundle:
    """Number the draft and rename it, skipping versions that another writer took."""
    version = max(repository.versions(name), default=0) + 1
    while True:
        _write_texts(draft, name, version, card, weights, network)
        target = draft.parent / str(version)
        try:
            if target.exists():
                raise FileExistsError
            os.rename(draft, target)  # noqa: PTH104 - fails if another writer's folder is there
        except OSError:
            if not target.exists():
                raise
            version += 1
            continue
        sync(draft.parent)
        return Bundle(name, version, target)


def _write_texts(
    draft: Path,
    name: str,
    version: int,
    card: ModelCard,
    weights: WeightsSpec,
    network: CapsuleNetwork,
) -> None:
    metadata = monai_metadata(name, version, card, weights, network)
    _write(draft / "configs" / "metadata.json", json.dumps(metadata, indent=2))
    _write(draft / "configs" / "inference.json", json.dumps(inference_config(card), indent=2))
    _write(draft / "LICENSE", _license(card.license))
    _write(draft / "docs" / "README.md", _readme(name, version, card))


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text.rstrip() + "\n")
    sync(path)


def _license(name: str) -> str:
    if name == NOT_STATED:
        return "The licence of the weights of this model is not stated.\n"
    return f"The weights of this model are licensed under {name}.\n"


def inference_config(card: ModelCard) -> dict[str, Any]:
    """A config for MONAI's bundle commands; the service never reads it.

    They give a network only one input, so generators appear there with a fixed seed.
    """
    return {
        "imports": ["$from safetensors.torch import load_file"],
        "bundle_root": ".",
        "device": "$torch.device('cpu')",
        "network_def": {"_target_": _target(card.network.name), **card.network.arguments},
        "network": "$@network_def.to(@device)",
        "weights": "$load_file(@bundle_root + '/models/model.safetensors')",
        "initialize": ["$@network.load_state_dict(@weights)"],
        "run": ["$@network.eval()"],
    }


def _target(name: str) -> str:
    """The import path of the network's class, which may be in another package."""
    if name in SEEDED:
        return f"caps_med.bundles.seeded.{SEEDED[name].__name__}"
    if name in NETWORKS.builtin:
        return f"caps_med.networks.{name}"
    network = NETWORKS[name]
    return f"{network.__module__}.{network.__qualname__}"


def _readme(name: str, version: int, card: ModelCard) -> str:
    labels = "\n".join(f"- {i}: {label}" for i, label in card.labels.items())
    scores = "\n".join(f"- {k}: {v}" for k, v in card.shown_scores) or "- none recorded"
    return f"""# {name} {version}

{card.description or f"{card.network.name} for {card.task}."}

{intended_use(card)} Licence of the weights: {card.license}.

## Labels

{labels}

## Scores

{scores}

## Where it comes from

Data: {card.provenance.data}

Command: `{card.provenance.command}`, seed {card.provenance.seed}, caps_med
{card.provenance.caps_med_version}.
"""
