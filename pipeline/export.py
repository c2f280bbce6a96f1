"""Models of a path for other programs: scikit-learn, LIBLINEAR, Vowpal Wabbit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from pipeline.vw_format import CONSTANT, MOST_BITS, bits_for, write_vw
from transforms import UserError

if TYPE_CHECKING:
    from sklearn.linear_model import ElasticNet, LogisticRegression

    from pipeline.model import PathModel

DENSE_COLUMNS = 1 << 24  # 128 MB of coefficients
MAX_INT = 2**31 - 1
VW_BITS = 18  # Vowpal Wabbit's own default


def to_sklearn(model: PathModel, lambda_index: int, n_features: int | None) -> LogisticRegression | ElasticNet:
    """A fitted estimator: LogisticRegression, or Lasso and ElasticNet for squared loss."""
    _refuse_other_losses(model, "scikit-learn", ("logistic", "squared"))
    width = model.width if n_features is None else n_features
    if width < model.width:
        raise UserError(f"n_features is {width}, but the path has a weight in column {model.width - 1}")
    make = _linear if model.record.loss == "squared" else _logistic
    return make(model, model.check_index(lambda_index), width)


def _linear(model: PathModel, lambda_index: int, width: int) -> ElasticNet:
    """A fitted Lasso or ElasticNet, whose alpha is λ/n; of weighted examples, n is their number all the same."""
    from sklearn.linear_model import ElasticNet, Lasso

    if width > DENSE_COLUMNS:
        raise UserError(
            f"{width} columns: scikit-learn's Lasso keeps a coefficient for each, at most {DENSE_COLUMNS} here"
        )
    ratio, n = float(model.record.option("l1_ratio")), max(model.record.dataset.examples, 1)
    row = model.path[lambda_index]
    options = {
        "alpha": row["lambda"] / n,
        "fit_intercept": model.has_intercept,
        "positive": bool(model.record.option("nonnegative")),
    }
    fitted = Lasso(**options) if ratio == 1.0 else ElasticNet(l1_ratio=ratio, **options)
    coefficients = model.coef(lambda_index)
    coefficients.resize((1, width))
    fitted.coef_ = coefficients.toarray()[0]
    fitted.intercept_ = model.intercept(lambda_index)
    fitted.n_features_in_ = width
    fitted.n_iter_ = row["rounds"]
    fitted.dual_gap_ = None if row["gap"] is None else row["gap"] / n
    return fitted


def _logistic(model: PathModel, lambda_index: int, width: int) -> LogisticRegression:
    """A fitted LogisticRegression. Past 2²⁴ columns its coef_ is sparse, as `sparsify` makes it.

    scikit-learn keeps classes_ sorted and lets the second be the positive one, so where the +1 of the run is the
    smaller label its coefficients are ours with the other sign.
    """
    from sklearn.linear_model import LogisticRegression  # slow to import; the commands do without

    classes = model.classes
    sign = 1.0 if model.label_map["+1"] == classes[1] else -1.0
    coefficients = model.coef(lambda_index) * sign
    coefficients.resize((1, width))
    ratio, intercept = float(model.record.option("l1_ratio")), model.has_intercept
    fitted = LogisticRegression(
        C=1.0 / model.lambdas[lambda_index],
        **sklearn_penalty(ratio),
        solver="saga" if intercept or ratio < 1.0 else "liblinear",  # which minimises the same
        fit_intercept=intercept,
    )
    fitted.coef_ = coefficients.toarray() if width <= DENSE_COLUMNS else sp.csr_matrix(coefficients)
    fitted.intercept_ = np.array([sign * model.intercept(lambda_index)])
    fitted.classes_ = classes
    fitted.n_features_in_ = width
    fitted.n_iter_ = np.array([model.path[lambda_index]["rounds"]], dtype=np.int32)
    return fitted


def sklearn_penalty(l1_ratio: float) -> dict[str, Any]:
    """What LogisticRegression is told of the penalty: from version 1.8 on l1_ratio alone, before that its name, too."""
    from sklearn.linear_model import LogisticRegression

    if getattr(LogisticRegression(), "penalty", None) != "l2":
        return {"l1_ratio": l1_ratio}
    return {"penalty": "l1"} if l1_ratio == 1.0 else {"penalty": "elasticnet", "l1_ratio": l1_ratio}


def _refuse_other_losses(model: PathModel, program: str, losses: tuple[str, ...]) -> None:
    if model.record.loss not in losses:
        raise UserError(f"{model.name}: a model with {model.record.loss} loss; {program} knows {', '.join(losses)}")


def to_liblinear(model: PathModel, path: str, lambda_index: int) -> None:
    """Write a LIBLINEAR model: a header, then a weight a line, zeros included; the bias's comes last."""
    _refuse_other_losses(model, "LIBLINEAR", ("logistic",))
    labels = [_whole(model.label_map[side]) for side in ("+1", "-1")]  # the first is what a positive margin means
    if model.width > MAX_INT:
        raise UserError(f"feature id {model.features.max()}: LIBLINEAR holds at most {MAX_INT} features")
    header = ["solver_type L1R_LR", "nr_class 2", f"label {labels[0]} {labels[1]}"]
    header += [f"nr_feature {max(model.width, 1)}", "bias 1" if model.has_intercept else "bias -1", "w"]
    features, weights = model.coefficients(lambda_index)
    columns = features - model.index_base
    with Path(path).open("w") as file:
        file.write("\n".join(header) + "\n")
        at = 0
        for column, weight in zip(columns.tolist(), weights.tolist(), strict=True):
            file.write("0 \n" * (column - at) + f"{weight:.17g} \n")
            at = column + 1
        file.write("0 \n" * (max(model.width, 1) - at))
        if model.has_intercept:
            file.write(f"{model.intercept(lambda_index):.17g} \n")


def to_vw(model: PathModel, path: str, lambda_index: int, bits: int | None) -> None:
    """Write a Vowpal Wabbit model: weights as float32, at the indices that are the features' ids."""
    _refuse_other_losses(model, "Vowpal Wabbit", ("logistic",))
    largest = int(model.features.max(initial=0))
    needed = bits_for(CONSTANT) if model.has_intercept else VW_BITS
    bits = max(bits_for(largest), needed) if bits is None else bits
    if largest >= 1 << min(bits, MOST_BITS) or not 1 <= bits <= MOST_BITS:
        remedy = f"bits must lie in {bits_for(largest)}..{MOST_BITS}"
        too_large = f"Vowpal Wabbit holds ids below 2^{MOST_BITS}"
        raise UserError(f"feature id {largest}, bits {bits}: {remedy if largest >> MOST_BITS == 0 else too_large}")
    features, weights = model.coefficients(lambda_index)
    if model.has_intercept:
        features, weights = _with_constant(features, weights, model.intercept(lambda_index), bits)
    with Path(path).open("wb") as file:
        write_vw(file, features, weights, bits, constant=model.has_intercept)


def _with_constant(
    features: np.ndarray, weights: np.ndarray, intercept: float, bits: int
) -> tuple[np.ndarray, np.ndarray]:
    """The intercept as the weight of Vowpal Wabbit's constant, whose index must be no feature's."""
    place = CONSTANT & ((1 << bits) - 1)
    if place in features:
        raise UserError(
            f"feature id {place}: with {bits} bits Vowpal Wabbit's constant, the intercept, has the same index: "
            f"{'give more bits' if bits < bits_for(CONSTANT) else 'fit without this feature or without intercept'}"
        )
    at = int(np.searchsorted(features, place))
    return np.insert(features, at, place), np.insert(weights, at, intercept)


def _whole(label: float) -> int:
    if not float(label).is_integer() or abs(label) > MAX_INT:
        raise UserError(f"label {label:g}: LIBLINEAR knows whole numbers as labels only")
    return int(label)
