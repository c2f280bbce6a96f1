"""How well margins tell the labels: area under the precision-recall curve, ROC AUC, log-loss, accuracy.

By scikit-learn's definitions, weights as its sample_weight. Ranks are taken from margins, which still differ where
probabilities have become 1; so is the log-loss, which stays finite there.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def _areas(order, margins, labels, weights):  # type: ignore[no-untyped-def]
    """(average precision, ROC AUC) given the order of rising margins; equal margins are one threshold."""
    positives = negatives = 0.0
    for k in range(order.size):
        weight = weights[order[k]] if weights.size > 0 else 1.0
        if labels[order[k]] > 0:
            positives += weight
        else:
            negatives += weight
    true = false = precision_area = roc_area = 0.0
    k = order.size - 1
    while k >= 0:
        threshold = margins[order[k]]
        more_true = more_false = 0.0
        while k >= 0 and margins[order[k]] == threshold:
            weight = weights[order[k]] if weights.size > 0 else 1.0
            if labels[order[k]] > 0:
                more_true += weight
            else:
                more_false += weight
            k -= 1
        roc_area += more_false * (true + 0.5 * more_true)
        true += more_true
        false += more_false
        if more_true > 0:
            precision_area += more_true * true / (true + false)
    precision = precision_area / positives if positives > 0 else np.nan
    roc = roc_area / (positives * negatives) if positives > 0 and negatives > 0 else np.nan
    return precision, roc


def metrics_of(margins: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> dict[str, float | None]:
    """The four metrics of n examples, in O(n) memory; None where one is undefined (examples of one label only)."""
    none = np.empty(0)
    precision, roc = _areas(np.argsort(margins), margins, labels, none if weights is None else weights)
    losses = np.logaddexp(0.0, -labels * margins)
    right = (margins > 0) == (labels > 0)
    return {
        "auprc": None if np.isnan(precision) else float(precision),
        "auc": None if np.isnan(roc) else float(roc),
        "log_loss": float(np.average(losses, weights=weights)),
        "accuracy": float(np.average(right, weights=weights)),
    }
