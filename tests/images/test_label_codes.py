"""Names of labels as codes: every one is looked up in the dictionaries of pydicom."""

from __future__ import annotations

import pytest
from pydicom.sr.codedict import codes

from caps_med.bundles import ModelRepository
from caps_med.errors import InvalidParameter
from caps_med.images import LabelCode, code_of_name
from caps_med.images.label_codes import _SYNONYMS, TISSUE, Coding, names_a_side


@pytest.mark.parametrize(
    ("name", "keyword", "side"),
    [
        ("left hippocampus", "Hippocampus", "left"),
        ("hippocampus_right", "Hippocampus", "right"),
        ("Left-Cerebral-White-Matter", "CerebralWhiteMatter", "left"),
        ("CSF", "CerebrospinalFluid", None),
        ("grey matter", "GrayMatter", None),
        ("left ventricle", "LeftVentricle", None),
        ("3rd-Ventricle", "ThirdVentricle", None),
        ("both kidneys", "Kidney", "both"),
    ],
)
def test_anatomy_and_its_side(name: str, keyword: str, side: str | None) -> None:
    found, wanted = code_of_name(name), getattr(codes.cid7192, keyword)
    assert (found.type.value, found.type.scheme) == (wanted.value, wanted.scheme_designator)
    assert found.laterality == side
    assert found.category.meaning == "Anatomical Structure"


@pytest.mark.parametrize("name", ["axon", "label 3", "", "background", "left", "left left lung"])
def test_what_is_not_known_is_tissue(name: str) -> None:
    assert code_of_name(name) == TISSUE


def test_every_synonym_leads_to_a_code() -> None:
    assert [name for name in _SYNONYMS if code_of_name(name) == TISSUE] == []


def test_the_labels_of_the_built_in_models() -> None:
    card = ModelRepository(None).find("brain-t1-tissue").card
    found = [code_of_name(name).type.meaning for name in card.labels.values()][1:]
    assert found == ["Cerebrospinal Fluid", "Gray Matter", "White Matter"]


def test_a_code_as_text() -> None:
    assert LabelCode.parse("108369006, SCT, Neoplasm").category.value == "49755003"
    code = LabelCode.parse("A1,99MINE,Axon,both")
    assert (code.type, code.laterality) == (Coding("A1", "99MINE", "Axon"), "both")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5366008", "give VALUE,SCHEME,MEANING, and left, right, both"),
        ("1,SCT,Liver,up", "give VALUE,SCHEME,MEANING"),
        ("1,SCT,", "the meaning of a code must have 1 to 64 printable characters"),
        ("12345678901234567,SCT,x", "the value of a code must have 1 to 16"),
        ("1,S\\T,x", "the scheme of a code"),
    ],
)
def test_other_texts_are_no_code(text: str, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        LabelCode.parse(text)


@pytest.mark.parametrize(
    ("name", "sided"),
    [
        ("left lung", True),
        ("Right-Hippocampus", True),
        ("kidney_left", True),
        ("LeftKidney", True),
        ("lh.cortex", True),
        ("Precentral_L", True),
        ("R hippocampus", True),
        ("bright spot", False),
        ("cleft", False),
        ("L", False),
        ("bilateral ventricles", False),
        ("leftover", False),
        ("", False),
    ],
)
def test_names_of_one_side(name: str, sided: bool) -> None:
    assert names_a_side(name) is sided
