"""Kernels over examples, for learning online: a row is the features of an example and their values.

A part of the examples is a CSR matrix: indptr, features (positions), values (empty where every value is 1), and the
vector s·y of the logistic loss. Weights are float32, as the data are; sums are float64.

Truncation is lazy, as in Vowpal Wabbit: `gravity` is what the penalty has taken off every weight since the pass began.
A weight counts as its value less gravity, or 0 where that changes its sign, and is written down so when the pass ends.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from solver.arrays import Float32, Float64, Int64
from solver.kernels.compiled import exact, in_order, inlined

LARGEST_MARGIN = 50.0  # margins are cut off here
LEAST_STEP = 1e-8  # a step that is smaller leaves gravity as it is


@inlined
def _truncated(weight: Any, gravity: Any) -> Any:
    # np.sign(weight) * max(abs(weight) - gravity, 0)
    return max(weight - gravity, 0.0) if weight > 0.0 else min(weight + gravity, 0.0)


@in_order
def learn(
    indptr: Int64,
    features: Any,
    values: Float32,
    signed: Float64,
    rate: float,
    seen: float,
    power: float,
    l1: float,
    weights: Float32,
) -> None:
    # For each example, in order: seen += s; step = rate * s / seen**power; m = truncated(weights[features]) @ values;
    # update = step * y / (1 + exp(y * m)); weights[features] += update * values; gravity += step * l1, unless the
    # update is next to nothing.
    gravity, valued = 0.0, values.size > 0
    for i in range(signed.size):
        s = abs(signed[i])
        if s == 0.0:
            continue
        y = 1.0 if signed[i] > 0.0 else -1.0
        seen += s
        step = rate * s * seen**-power
        margin = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            weight = _truncated(np.float64(weights[features[k]]), gravity)
            margin += weight * values[k] if valued else weight
        margin = min(max(margin, -LARGEST_MARGIN), LARGEST_MARGIN)
        update = y * step / (1.0 + math.exp(y * margin))
        for k in range(indptr[i], indptr[i + 1]):
            weights[features[k]] += np.float32(update * values[k] if valued else update)
        if abs(update) > LEAST_STEP:
            gravity += step * l1
    for j in range(weights.size):
        weights[j] = np.float32(_truncated(np.float64(weights[j]), gravity))


@in_order
def learn_together(
    indptr: Int64,
    features: Any,
    values: Float32,
    signed: Float64,
    rate: float,
    seen: float,
    power: float,
    l1: Float64,
    weights: Float32,
) -> None:
    # `learn` for every column of weights with its own l1, in one pass over the examples: the same bits for each.
    models, valued = l1.size, values.size > 0
    gravity, margin, update = np.zeros(models), np.empty(models), np.empty(models)
    for i in range(signed.size):
        s, y = abs(signed[i]), 1.0 if signed[i] > 0.0 else -1.0
        if s == 0.0:
            continue
        seen += s
        step = rate * s * seen**-power
        margin[:] = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            x, row = np.float64(values[k]) if valued else 1.0, weights[features[k]]
            for m in range(models):
                margin[m] += _truncated(np.float64(row[m]), gravity[m]) * x
        for m in range(models):
            bounded = min(max(margin[m], -LARGEST_MARGIN), LARGEST_MARGIN)
            update[m] = y * step / (1.0 + math.exp(y * bounded))
            if abs(update[m]) > LEAST_STEP:
                gravity[m] += step * l1[m]
        for k in range(indptr[i], indptr[i + 1]):
            x, row = np.float64(values[k]) if valued else 1.0, weights[features[k]]
            for m in range(models):
                row[m] += np.float32(update[m] * x)
    for j in range(weights.shape[0]):
        for m in range(models):
            weights[j, m] = np.float32(_truncated(np.float64(weights[j, m]), gravity[m]))


@in_order
def margins(indptr: Int64, features: Any, values: Float32, beta: Float64, out: Float64) -> None:
    # out = X @ beta
    valued = values.size > 0
    for i in range(out.size):
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            total += beta[features[k]] * values[k] if valued else beta[features[k]]
        out[i] = total


@exact
def add_slopes(indptr: Int64, features: Any, values: Float32, residuals: Float64, slopes: Float64) -> None:
    # slopes += X.T @ residuals
    valued = values.size > 0
    for i in range(residuals.size):
        for k in range(indptr[i], indptr[i + 1]):
            slopes[features[k]] += residuals[i] * values[k] if valued else residuals[i]
