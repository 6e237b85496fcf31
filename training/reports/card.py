"""The data card in words, for reports and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from caps_med.wording import counted, size_text
from training.data.check.card import DataCard, Extent, Intensities
from training.data.classified.check import ClassCard


def card_rows(card: DataCard, channels: Sequence[str] = ()) -> dict[str, str]:
    """Name -> value of what a data set holds.

    Args:
        card: of the data set.
        channels: names of the image channels, as far as they are known.
    """
    rows = {"cases": _cases(card)}
    rows["size"] = _extent(card.sizes, "pixels" if card.kind == "pictures" else "voxels")
    if card.spacing_mm is not None:
        rows["spacing"] = _extent(card.spacing_mm, "mm")
    for number, channel in enumerate(card.channels):
        name = channels[number] if number < len(channels) else f"channel {number}"
        rows[f"intensities, {name}"] = _intensities(channel.all)
        if channel.foreground is not None:
            rows[f"intensities, {name}, under labels"] = _intensities(channel.foreground)
    if card.empty:
        rows["without labels"] = str(card.empty)
    if card.unlabelled:
        rows["unlabelled"] = f"{card.unlabelled:.1%}"
    return rows


def class_rows(card: DataCard, labels: Mapping[int, str]) -> list[tuple[str, str, str, str]]:
    """Name, share, voxels and cases of every class; `labels` are the names that are known."""
    names = {0: "background", **labels}
    return [
        (names.get(one.label, f"label {one.label}"), f"{one.share:.3%}", f"{one.voxels:,}",
         str(one.cases))
        for one in card.classes
    ]  # fmt: skip


def _cases(card: DataCard) -> str:
    what = "case" if card.kind == "mixed" else card.kind.removesuffix("s")
    return f"{counted(card.cases, what)} in {counted(card.groups, 'group')}"


def _extent(extent: Extent, unit: str) -> str:
    """The range of sizes or spacings, x × y × z."""
    low, middle, high = (
        size_text(sizes, unit) for sizes in (extent.smallest, extent.median, extent.largest)
    )
    if extent.different == 1:
        return low
    return f"{low} to {high}, median {middle}, {extent.different} different"


def _intensities(found: Intensities) -> str:
    return (
        f"{found.minimum:g} to {found.maximum:g}, 0.5 % {found.p0_5:g}, median {found.median:g}, "
        f"99.5 % {found.p99_5:g}, mean {found.mean:.4g} ± {found.std:.4g}"
    )


def class_card_rows(card: ClassCard) -> dict[str, str]:
    """Name -> value of what a data set of classified images holds."""
    rows = {"images": counted(card.images, "image")}
    if len(card.parts) > 1:
        rows["parts"] = ", ".join(f"{part} {count}" for part, count in card.parts.items())
    if card.patients:
        rows["patients"] = str(card.patients)
    rows["size"] = _extent(card.sizes, "pixels")
    kinds = {1: "grey", 3: "colour"}
    rows["channels"] = ", ".join(
        f"{kinds.get(count, count)}: {counted(images, 'image')}"
        for count, images in card.channels.items()
    )
    rows["intensities"] = f"{card.minimum:g} to {card.maximum:g}"
    rows["classes per image"] = "one" if card.exclusive else "any number"
    rows["largest to smallest class"] = f"{card.imbalance:g}"
    return rows
