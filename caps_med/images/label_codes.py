"""Codes of labels in medical vocabularies: mostly SNOMED CT, as DICOM uses it.

A name is looked up in pydicom's copy of DICOM's context groups (PS3.16): no code is typed in here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from caps_med.errors import InvalidParameter

Laterality = Literal["left", "right", "both"]

_LONGEST = {"value": 16, "scheme": 16, "meaning": 64}  # characters, PS3.3 table 8.8-1
_CAMEL = re.compile("(?<=[a-z])(?=[A-Z])")
_CONTROL = re.compile(r"[\\\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Coding:
    """One concept of a vocabulary, as ``5366008, SCT, Hippocampus``.

    Attributes:
        value: the code itself.
        scheme: the vocabulary: ``SCT`` (SNOMED CT), ``DCM``, ``FMA``, ``NCIt``, or ``99...`` for a
            private one.
        meaning: the meaning in words.

    Raises:
        InvalidParameter: one of them is empty, too long, or holds a control character.
    """

    value: str
    scheme: str
    meaning: str

    def __post_init__(self) -> None:
        """Reject values that a DICOM code sequence cannot hold."""
        for name, most in _LONGEST.items():
            text = getattr(self, name)
            if not text.strip() or len(text) > most or _CONTROL.search(text):
                raise InvalidParameter(
                    f"the {name} of a code must have 1 to {most} printable characters, got {text!r}"
                )


#: Categories of segments (CID 7150).
STRUCTURE = Coding("91723000", "SCT", "Anatomical Structure")
_TISSUE_CATEGORY = Coding("85756007", "SCT", "Tissue")
#: Context groups of what a segment may be, each with its category; the first that knows a name.
_GROUPS: Mapping[str, Coding] = {
    "cid7192": STRUCTURE,
    "cid7197": Coding("91720002", "SCT", "Body Substance"),
    "cid7194": Coding("49755003", "SCT", "Morphologically Abnormal Structure"),
    "cid7191": _TISSUE_CATEGORY,
}


@dataclass(frozen=True)
class LabelCode:
    """What a label stands for.

    Attributes:
        type: the structure, tissue or lesion.
        laterality: the side of the body, if `type` does not include it.
        category: the category of `type`; for a known code, the one that DICOM assigns.
    """

    type: Coding
    laterality: Laterality | None = None
    category: Coding = STRUCTURE

    @classmethod
    def parse(cls, text: str) -> LabelCode:
        """From ``VALUE,SCHEME,MEANING`` or ``VALUE,SCHEME,MEANING,left``.

        >>> LabelCode.parse("5366008,SCT,Hippocampus,left").laterality
        'left'

        Raises:
            InvalidParameter: the text does not have this form.
        """
        parts = [part.strip() for part in text.split(",")]
        sides = get_args(Laterality)
        side = next((s for s in sides if len(parts) > 3 and s == parts[-1]), None)
        if len(parts) < 3 or (len(parts) > 3 and side is None):
            raise InvalidParameter(
                f"code {text!r}: give VALUE,SCHEME,MEANING, and {', '.join(sides)} if it has a "
                "side: 5366008,SCT,Hippocampus,left"
            )
        coding = Coding(*parts[:3])
        return cls(coding, side, _categories().get((coding.value, coding.scheme), STRUCTURE))


#: What a label without a known code is, as 3D Slicer says it.
TISSUE = LabelCode(Coding("85756007", "SCT", "Tissue"), None, _TISSUE_CATEGORY)

#: What people call things -> what the context groups call them.
_SYNONYMS: Mapping[str, str] = {
    "csf": "cerebrospinal fluid", "gm": "gray matter", "wm": "white matter",
    "tumor": "neoplasm", "tumour": "neoplasm", "cancer": "neoplasm", "carcinoma": "neoplasm",
    "metastasis": "neoplasm secondary", "oedema": "edema", "haemorrhage": "hemorrhage",
    "bleeding": "hemorrhage", "clot": "blood clot",
    "enhancing tumor": "enhancing lesion", "enhancing tumour": "enhancing lesion",
    "caudate": "caudate nucleus", "pallidum": "globus pallidus",
    "accumbens": "nucleus accumbens", "accumbens area": "nucleus accumbens",
    "brainstem": "brain stem", "3rd ventricle": "third ventricle",
    "4th ventricle": "fourth ventricle", "cerebellum white matter": "cerebellar white matter",
    "urinary bladder": "bladder", "oesophagus": "esophagus",
    "vessel": "blood vessel", "adipose tissue": "fat",
    "thyroid gland": "thyroid", "lungs": "lung",
    "kidneys": "kidney", "hippocampi": "hippocampus", "bones": "bone", "muscles": "muscle",
}  # fmt: skip
_SIDES: Mapping[str, Laterality] = {
    "left": "left", "lh": "left", "right": "right", "rh": "right", "both": "both",
    "bilateral": "both",
}  # fmt: skip


def code_of_name(name: str) -> LabelCode:
    """The code of a label with this English name; `TISSUE` if no structure has that name.

    >>> code = code_of_name("left hippocampus")
    >>> code.type, code.laterality
    (Coding(value='5366008', scheme='SCT', meaning='Hippocampus'), 'left')
    >>> code_of_name("Right-Lateral-Ventricle").laterality
    'right'
    >>> code_of_name("CSF").type.meaning
    'Cerebrospinal Fluid'
    """
    words = _words(name).split()
    if found := _known(" ".join(words)):
        return found
    for at in (0, -1):
        if len(words) > 1 and words[at] in _SIDES:
            rest = words[1:] if at == 0 else words[:-1]
            if (found := _known(" ".join(rest))) and not _has_a_side(found):
                return LabelCode(found.type, _SIDES[words[at]], found.category)
    return TISSUE


def names_a_side(name: str) -> bool:
    """Whether a label with this English name is on one side of the body.

    >>> names_a_side("Left-Hippocampus"), names_a_side("Lung_R"), names_a_side("bright spot")
    (True, True, False)
    """
    words = _words(_CAMEL.sub(" ", name)).split()
    ends = {words[0], words[-1]} if len(words) > 1 else set()
    return any(_SIDES.get(word) in ("left", "right") for word in words) or bool(ends & {"l", "r"})


def have_sides(names: Iterable[str], codes: Iterable[LabelCode]) -> bool:
    """Whether any label is on one side of the body: mirrored, it would belong to the other."""
    coded = any(code.laterality in ("left", "right") for code in codes)
    return coded or any(map(names_a_side, names))


def _known(words: str) -> LabelCode | None:
    return _table().get(_SYNONYMS.get(words, words))


def _has_a_side(code: LabelCode) -> bool:
    return not {"left", "right"}.isdisjoint(_words(code.type.meaning).split())


def _words(text: str) -> str:
    """Lower case, one space between words, the American spelling of gray."""
    return re.sub(r"[\W_]+", " ", text.lower()).replace("grey", "gray").strip()


@cache
def _table() -> Mapping[str, LabelCode]:
    """Meaning in lower case -> code, for all that `_GROUPS` list."""
    from pydicom.sr.codedict import codes  # takes a while

    table: dict[str, LabelCode] = {}
    for group, category in _GROUPS.items():
        collection = getattr(codes, group)
        for keyword in collection.dir():
            concept = getattr(collection, keyword)
            coding = Coding(concept.value, concept.scheme_designator, concept.meaning)
            table.setdefault(_words(coding.meaning), LabelCode(coding, None, category))
    del table["background"]
    return table


@cache
def _categories() -> Mapping[tuple[str, str], Coding]:
    """Value and scheme of a known code -> its category."""
    return {(code.type.value, code.type.scheme): code.category for code in _table().values()}
