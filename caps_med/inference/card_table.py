"""The model card as a table for notebooks."""

from __future__ import annotations

from html import escape

from caps_med.bundles import ModelCard
from caps_med.networks import CapsuleNetwork

_LEFT = "style='text-align:left'"


def card_table(reference: str, card: ModelCard, network: CapsuleNetwork) -> str:
    """An HTML table with the model's task, network, labels, preprocessing, scores and licence."""
    parameters = sum(parameter.numel() for parameter in network.parameters())
    rows = {
        "task": escape(card.task),
        "network": f"{escape(card.network.name)}, {parameters:,} parameters",
        "labels": ", ".join(
            f'<span style="color:rgb{color}">&#9632;</span> {label} {escape(card.labels[label])}'
            for label, color in card.shown_colors.items()
        ),
        "preprocessing": escape(card.preprocessing_text),
        "scores": ", ".join(f"{escape(name)} {score:g}" for name, score in card.shown_scores),
        "temperature": f"{card.fitted_temperature:g}" if card.fitted_temperature else "",
        "licence": escape(card.license or ""),
    }
    body = "".join(
        f"<tr><th {_LEFT}>{heading}</th><td {_LEFT}>{cell}</td></tr>"
        for heading, cell in rows.items()
        if cell
    )
    return f"<table><caption>{escape(reference)}</caption>{body}</table>"
