"""The part of a classification report on changed and attacked images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from training.evaluation.robustness.summary import AttackRates, ModelRobustness, RobustnessSummary
from training.evaluation.statistics import Estimate
from training.pictures.robustness import Line, curve_panels
from training.reports.page import Measure

_GRADIENTS = "share of pixels with a gradient of exactly zero; if high, gradients are hidden"


def robustness_measures(summary: RobustnessSummary) -> Iterator[Measure]:
    """One row for each family and attack, one cell for each model."""
    scores = summary.scores
    cells = [each.accuracy.text() for each in scores]
    yield Measure(f"accuracy on the {summary.cases} images to change", cells)
    for number, curve in enumerate(scores[0].curves):
        cells = [each.curves[number].mean.text() for each in scores]
        yield Measure(
            f"{curve.name}: mean accuracy", cells, _strengths(curve.strengths, curve.unit)
        )
    for name, source in attack_names(scores):
        cells = [_rate(found_attack(each, name, source)) for each in scores]
        made = f"made for {source}" if source else "0 is best; of images classified correctly"
        yield Measure(f"{attack_title(name, source)}: success", cells, made)
    cells = ["–" if s.zero_gradients is None else f"{s.zero_gradients:.3f}" for s in scores]
    yield Measure("zero gradients", cells, _GRADIENTS)
    cells = ["–" if s.gradient_size is None else f"{s.gradient_size:.2g}" for s in scores]
    yield Measure("size of gradients", cells, "median over images, mean over pixels")


def robustness_figures(summary: RobustnessSummary) -> str:
    """Accuracy over strength, and success of attacks over ε, as SVG elements."""
    changes = {
        (curve.name, curve.unit): {
            each.model: _line(
                (0.0, *each.curves[number].strengths),
                (each.accuracy, *each.curves[number].accuracy),
            )
            for each in summary.scores
        }
        for number, curve in enumerate(summary.scores[0].curves)
    }
    attacks = {
        (attack_title(name, source), "ε"): {
            each.model: _line((0.0, *summary.epsilons), (Estimate(value=0.0), *attack.rates))
            for each in summary.scores
            if (attack := found_attack(each, name, source)) is not None
        }
        for name, source in attack_names(summary.scores)
    }
    return curve_panels(changes, "Accuracy on changed images") + curve_panels(
        attacks, "Success of attacks on images classified correctly"
    )


def attack_names(scores: Sequence[ModelRobustness]) -> list[tuple[str, str]]:
    """Name and source of every attack on any of the models, each once."""
    return list(dict.fromkeys((a.name, a.source) for each in scores for a in each.attacks))


def attack_title(name: str, source: str) -> str:
    """Such as ``PGD`` or ``PGD from other@1``."""
    return f"{name} from {source}" if source else name


def found_attack(scores: ModelRobustness, name: str, source: str) -> AttackRates | None:
    """That attack on a model, if it was tried."""
    return next((a for a in scores.attacks if (a.name, a.source) == (name, source)), None)


def _rate(attack: AttackRates | None) -> str:
    if attack is None:
        return "–"
    return " / ".join(f"{r.value:.2f}" if r.value is not None else "–" for r in attack.rates)


def _strengths(strengths: Sequence[float], unit: str) -> str:
    return f"at {', '.join(f'{s:g}' for s in strengths)}; {unit}"


def _line(strengths: Sequence[float], found: Sequence[Estimate]) -> Line:
    known = [(s, e) for s, e in zip(strengths, found, strict=True) if e.value is not None]
    return Line(
        [s for s, _ in known],
        [e.value for _, e in known if e.value is not None],
        [e.interval for _, e in known],
    )
