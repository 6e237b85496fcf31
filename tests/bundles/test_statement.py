"""What a card says of a model's licence and of the images that it takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from caps_med.bundles import Bundle, ModelRepository, write_bundle
from caps_med.bundles.metadata import checked_statement
from caps_med.errors import InvalidParameter
from caps_med.inference.provenance import AnswerProvenance
from caps_med.networks import build_network
from tests.conftest import BUILT_IN_NAMES, tiny_card


def written(root: Path, **stated: str) -> Bundle:
    card = tiny_card("segmentation").model_copy(update=stated)
    network = build_network(card.network.name, card.network.arguments)
    return write_bundle(ModelRepository(root), "mine", network, card)


def test_what_nobody_stated_is_not_made_up(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    metadata = json.loads((bundle.path / "configs" / "metadata.json").read_text())
    assert bundle.card.license == metadata["copyright"] == metadata["authors"] == "not stated"
    assert "Apache" not in json.dumps(metadata)
    assert "is not stated" in (bundle.path / "LICENSE").read_text()
    assert "Licence of the weights: not stated." in (bundle.path / "docs/README.md").read_text()
    assert "input_description" not in AnswerProvenance.of(bundle).as_dict()


def test_what_is_stated_is_in_all_texts(tmp_path: Path) -> None:
    bundle = written(tmp_path, license="CC-BY-4.0", input_description="CT of the chest")
    metadata = json.loads((bundle.path / "configs" / "metadata.json").read_text())
    assert metadata["copyright"] == "CC-BY-4.0"
    assert metadata["intended_use"].startswith("Takes CT of the chest. Research only")
    assert "licensed under CC-BY-4.0" in (bundle.path / "LICENSE").read_text()
    assert "Takes CT of the chest." in (bundle.path / "docs/README.md").read_text()
    provenance = AnswerProvenance.of(bundle)
    assert provenance.as_dict()["input_description"] == "CT of the chest"
    assert provenance.headers()["Caps-Med-Input-Description"] == "CT of the chest"


def test_a_header_is_ascii_and_keeps_every_character(tmp_path: Path) -> None:
    provenance = AnswerProvenance.of(written(tmp_path, input_description="1 µm, 100 %, 切片"))
    header = provenance.headers()["Caps-Med-Input-Description"]
    assert header == "1 %C2%B5m, 100 %25, %E5%88%87%E7%89%87"
    others = replace(provenance, input_description=None).headers()
    assert others == {k: v for k, v in provenance.headers().items() if v != header}


def test_a_bundle_from_before_there_were_descriptions_is_read(tmp_path: Path) -> None:
    bundle = written(tmp_path)
    path = bundle.path / "configs" / "metadata.json"
    metadata = json.loads(path.read_text())
    del metadata["caps_med"]["input_description"]
    metadata["caps_med"]["license"] = "Apache-2.0"
    path.write_text(json.dumps(metadata))
    card = ModelRepository(tmp_path).find("mine").card
    assert (card.input_description, card.license) == ("", "Apache-2.0")


@pytest.mark.parametrize("name", BUILT_IN_NAMES)
def test_built_in_models_say_what_they_take(name: str) -> None:
    assert ModelRepository().find(name).card.input_description


def test_codes_of_labels_are_stated_with_their_side() -> None:
    found = checked_statement(codes=["1=5366008,SCT,Hippocampus,left;3=99A,99MINE,Axon"]).codes
    assert {label: code.laterality for label, code in found.items()} == {1: "left", 3: None}
    assert found[3].type.scheme == "99MINE"


@pytest.mark.parametrize("text", ["5366008,SCT,Hippocampus", "x=5366008,SCT,Hippocampus"])
def test_a_code_needs_its_label(text: str) -> None:
    with pytest.raises(InvalidParameter, match="give an id and its code, as 1=5366008,SCT"):
        checked_statement(codes=[text])


@pytest.mark.parametrize("text", ["", "two\nlines", "x" * 301])
def test_a_licence_that_does_not_fit_a_line_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="license: give one line of at most 300 characters"):
        checked_statement(license=text)
