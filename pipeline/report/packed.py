"""What the page's script needs: the bins of every model, all features with their weights, the models' rows.

JSON, compressed and in base64: small, and whatever a name holds, nothing of it is markup or script.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from typing import Any

import numpy as np

from pipeline.curves import HUNDREDTHS, Curve
from pipeline.metrics import metrics_in
from pipeline.report.data import Judgement, RunData
from pipeline.report.format import lambda_hint, metric, number
from pipeline.report.words import judged_by, lambda_text

FEATURES = 100_000  # in the table, at most
FEATURE_BYTES = 1_100_000  # of the page: bokeh takes 1.3 MB of the 3 MB that a page may have
LARGEST_NUMBER = 2**53  # up to here a script's numbers are exact
DIGITS = 4  # of a weight; coefficients.parquet has all


def pack(content: Any) -> str:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def packed_models(data: RunData) -> str:
    """A row for each model, the judgements, and the model that is shown first."""
    columns = list(data.rows[0])
    return pack(
        {
            "shown": data.featured,
            "models": [_model_text(data, row) for row in data.rows],
            "columns": columns,
            "rows": [[_finite(row.get(name)) for name in columns] for row in data.rows],
            "judgements": [_judgement(data, one) for one in data.judgements],
        }
    )


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _model_text(data: RunData, row: dict[str, Any]) -> str:
    hint = lambda_hint(row["lambda"], data.lambda_max)
    size = f"{row['nonzeros']:,} feature{'' if row['nonzeros'] == 1 else 's'}"
    return f"λ = {number(row['lambda'])}{f' ({hint})' if hint else ''}, {size}"


def _judgement(data: RunData, judged: Judgement) -> dict[str, Any]:
    figures = metrics_in(data.rows, judged.prefix)
    return {
        "label": judged_by(judged),
        "weighted": judged.record.weighted,
        "figures": [
            ", ".join(f"{one.label} {metric(row[judged.prefix + one.name])}" for one in figures) for row in data.rows
        ],
        "curves": [None if curve is None else _bins(curve) for curve in judged.curves],
    }


def _bins(curve: Curve) -> dict[str, list[float]]:
    """`above` counts the hundredths below the bin's lowest probability: it is called positive at those thresholds."""
    return {
        "above": np.searchsorted(HUNDREDTHS, curve.probability).tolist(),
        "probability": _rounded(curve.probability),
        "positives": _rounded(curve.positives),
        "negatives": _rounded(curve.negatives),
        "expected": _rounded(curve.expected),
    }


def _rounded(values: np.ndarray, digits: int = 6) -> list[float]:
    """A few digits, whole numbers as such."""
    found = [value if value == int(value) else float(f"{value:.{digits}g}") for value in values.tolist()]
    return [int(value) if value == int(value) else value for value in found]


# Features.


def packed_features(data: RunData) -> str:
    """All features that have a weight in a model, with the weights of all models: less of it, if it would be too much.

    First the weights of other models than the featured go, then the weakest features.
    """
    count, every = FEATURES, True
    while True:
        packed = pack(_features(data, count, every=every))
        if len(packed) <= FEATURE_BYTES or count < 100:
            return packed
        count, every = count if every else count // 2, False


def _features(data: RunData, count: int, *, every: bool) -> dict[str, Any]:
    """Places in lists that rise, features and models, are told by their differences."""
    ids = _taken(data, count)
    shown = range(len(data.rows)) if every else [data.featured]
    weights = {}
    for k in shown:
        features, values = data.model.coefficients(k)
        mine = np.isin(features, ids)
        places = np.searchsorted(ids, features[mine])
        weights[k] = [np.diff(places, prepend=0).tolist(), _rounded(values[mine], DIGITS)]
    return {
        "shown": data.featured,
        "all": int(np.unique(data.model.features).size),
        "ids": _plain_ids(ids),
        "names": [data.names.get(feature, "") for feature in ids.tolist()] if data.names else None,
        "first": _first(data, ids).tolist(),
        "lambdas": [lambda_text(data, row) for row in data.rows],
        "weights": weights,
    }


def _plain_ids(ids: np.ndarray) -> list[int] | list[str]:
    """By their differences; as text where a script's numbers would lose digits."""
    if ids.size and ids[-1] > LARGEST_NUMBER:
        return [str(one) for one in ids.tolist()]
    return [int(one) for one in np.diff(ids, prepend=0)]


def _taken(data: RunData, count: int) -> np.ndarray:
    """The features that have a weight, by id; if too many, those with the largest weight in any model."""
    ids, place = np.unique(data.model.features, return_inverse=True)
    if ids.size <= count:
        return ids
    largest = np.zeros(ids.size)
    np.maximum.at(largest, place, np.abs(data.model.weights))
    return np.sort(ids[np.argsort(-largest, kind="stable")[:count]])


def _first(data: RunData, ids: np.ndarray) -> np.ndarray:
    """The first model in which each feature has a weight."""
    first = np.full(ids.size, len(data.rows))
    for k in reversed(range(len(data.rows))):
        first[np.isin(ids, data.model.coefficients(k)[0])] = k
    return first
