"""Weights of the two classes: "balanced", or a weight for a label."""

from __future__ import annotations

from collections.abc import Mapping

from transforms import Dataset, UserError

BALANCED = "balanced"
LARGEST = 1e30  # of weights: sums of squares stay numbers


def weights_of_classes(asked: str | None, dataset: Dataset) -> tuple[float, float] | None:
    """What examples of -1 and +1 are weighed by; None where both count as they are."""
    if asked is None:
        return None
    labels, names = dataset.record.labels, dataset.record.label_map
    if names is None:
        raise UserError(
            f"{dataset.name}: its labels are numbers, which have no classes to weigh: leave out class_weight"
        )
    totals = (
        _first_of(labels.weight_of_negatives, labels.negatives),
        _first_of(labels.weight_of_positives, labels.positives),
    )
    try:
        return class_weights(asked, (names.negative, names.positive), totals)
    except ValueError as error:
        raise UserError(f"{dataset.name}: {error}") from None


def _first_of(weight: float | None, count: int | None) -> float:
    """What the examples of a class weigh: as given, or 1 each."""
    return float(weight if weight is not None else count or 0)


def class_weights(
    asked: str | Mapping[float, float], labels: tuple[float, float], totals: tuple[float, float]
) -> tuple[float, float]:
    """The weights of two classes with these labels, whose examples weigh so much in all."""
    if asked == BALANCED:
        if min(totals) <= 0:
            raise ValueError("the weights of a class are all zero: classes cannot be balanced")
        return sum(totals) / (2 * totals[0]), sum(totals) / (2 * totals[1])
    chosen = _parsed(asked) if isinstance(asked, str) else dict(asked)
    unknown = [label for label in chosen if label not in labels]
    if unknown:
        raise ValueError(
            f"class_weight names the label {unknown[0]:g}, but the labels are {labels[0]:g}, {labels[1]:g}"
        )
    first, second = (float(chosen.get(label, 1.0)) for label in labels)
    if not all(0 <= weight <= LARGEST for weight in (first, second)):
        raise ValueError(f"class weights must lie in 0..{LARGEST:g}, got {first:g} and {second:g}")
    return first, second


def _parsed(text: str) -> dict[float, float]:
    """Of 1=10,0=1."""
    try:
        pairs = [piece.split("=") for piece in text.split(",")]
        found = {float(label): float(weight) for label, weight in pairs}
    except ValueError:
        raise ValueError(f"class_weight must be balanced or LABEL=W, as in 1=10,0=1; got {text!r}") from None
    if len(found) < len(pairs):
        raise ValueError(f"class_weight names a label twice: {text!r}")
    return found
