"""What the curves of a model are drawn from: its margins in bins, by class, a few hundred at most for any n.

A bin holds all examples between two margins, so every edge is a point of the exact curves: the precision-recall curve,
the ROC curve, the confusion matrix at that threshold. Edges are at each hundredth of the probability, and at quantiles
of the margins of either class. Areas are not computed from bins: they stay exact (pipeline/areas.py).
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.margins import PROBABILITIES
from pipeline.metrics import Scores
from transforms import UserError
from transforms.dataset import UNREADABLE, one_line
from transforms.schema import Mismatch
from transforms.storage import display, explained
from transforms.validation import refuse_nulls, refuse_other_columns

HUNDREDTHS = np.arange(100) / 100  # probabilities that are edges of bins: an example above is called positive
QUANTILES = 75  # of the margins of each class


@dataclass(frozen=True)
class Curve:
    """The bins of a model, the highest margins first. A running sum is what stands at or above `margin`."""

    margin: np.ndarray  # the lowest of the bin
    probability: np.ndarray  # at that margin
    positives: np.ndarray  # the weight of its positive examples; without weights their number
    negatives: np.ndarray
    expected: np.ndarray  # the sum of weight × probability: how many positives the model expects

    @property
    def one_class(self) -> bool:
        return not (self.positives.any() and self.negatives.any())


CURVE_SCHEMA = pa.schema([(name, pa.float64()) for name in ("lambda", *Curve.__dataclass_fields__)])


def curve_of(scores: Scores) -> Curve:
    """The bins of n examples, in O(n) memory."""
    margins = scores.margins[scores.order]
    positive = scores.labels[scores.order] > 0
    probability = PROBABILITIES[scores.loss][0](margins)
    starts = _edges(margins, probability, positive)
    falling = starts[::-1]

    def sums(values: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.add.reduceat(values, starts, dtype=np.float64)
        return found[::-1]

    if scores.weights is None:
        positives, every = sums(positive), np.diff(starts, append=margins.size)[::-1].astype(np.float64)
        expected = sums(probability)
    else:
        weights = scores.weights[scores.order]
        positives, every, expected = sums(weights * positive), sums(weights), sums(weights * probability)
    return Curve(margins[falling], probability[falling], positives, np.maximum(every - positives, 0.0), expected)


def _edges(margins: np.ndarray, probability: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Where bins begin in rising margins: never between equal ones."""
    quantiles = np.concatenate([margins[_spread(np.flatnonzero(of))] for of in (positive, ~positive)])
    hundredths = np.searchsorted(probability, HUNDREDTHS, side="right")
    starts = np.unique(np.concatenate((np.zeros(1, np.int64), np.searchsorted(margins, quantiles), hundredths)))
    return starts[starts < margins.size]


def _spread(places: np.ndarray) -> np.ndarray:
    """Some of the places, evenly."""
    if places.size <= QUANTILES:
        return places
    return places[np.linspace(0, places.size - 1, QUANTILES).astype(np.int64)]


def curve_table(curves: Sequence[Curve], lambdas: Sequence[float]) -> pa.Table:
    """The bins of all models, as they are stored."""
    sizes = [curve.margin.size for curve in curves]
    columns = [np.repeat(lambdas, sizes)]
    columns += [np.concatenate([getattr(one, name) for one in curves]) for name in Curve.__dataclass_fields__]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=CURVE_SCHEMA)


def curves_match(fs: Any, path: str, checksum: str) -> bool:
    """Is the file at `path` there, and is it the one of this checksum?"""
    with explained(display(fs, path)):
        try:
            content = fs.cat_file(path)
        except FileNotFoundError:
            return False
    return hashlib.sha256(content).hexdigest() == checksum


def read_curves(fs: Any, path: str, checksum: str, lambdas: Sequence[float], remedy: str) -> list[Curve | None]:
    """The bins of these λ from the file at `path`; None of a λ that was fitted after the evaluation.

    remedy: the command that writes the file again.
    """
    where = display(fs, path)
    try:
        with explained(where):
            content = fs.cat_file(path)
        if hashlib.sha256(content).hexdigest() != checksum:
            raise Mismatch("its checksum is not that of run.json")
        table = pq.read_table(io.BytesIO(content))
        refuse_other_columns(table.schema, CURVE_SCHEMA)
        refuse_nulls(table)
        columns = [column.to_numpy() for column in table.columns]
        if not all(np.isfinite(column).all() for column in columns):
            raise Mismatch("numbers that are not finite")
    except FileNotFoundError:
        raise UserError(f"{where}: missing. Evaluate again: {remedy}") from None
    except UNREADABLE as error:
        raise UserError(f"{where}: damaged ({one_line(error)}). Evaluate again: {remedy}") from None
    of, *rest = columns
    taken = [np.flatnonzero(of == lam) for lam in lambdas]
    return [Curve(*(column[rows] for column in rest)) if rows.size else None for rows in taken]
