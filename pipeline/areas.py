"""The areas under the precision-recall curve and the ROC curve of n examples, in one pass over their order.

Both are undefined for examples of one class. The area under the precision-recall curve of positives alone would be 1
for every model, and tell none from another.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def areas(order, margins, labels, weights):  # type: ignore[no-untyped-def]
    """(average precision, ROC AUC), given the order of rising margins. Equal margins are one threshold."""
    positives = negatives = 0.0
    for k in range(order.size):
        weight = weights[order[k]] if weights.size > 0 else 1.0
        if labels[order[k]] > 0:
            positives += weight
        else:
            negatives += weight
    if positives <= 0 or negatives <= 0:
        return np.nan, np.nan
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
    return precision_area / positives, roc_area / (positives * negatives)
