"""L1LogisticRegressionPath: the whole regularisation path (Algorithm 5), by scikit-learn's rules."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d

from pipeline.choice import lowest_bic
from pipeline.estimators.base import SHARED, L1Classifier, dense_or_sparse, is_source, refuse_labels
from pipeline.estimators.single import L1LogisticRegression


class L1LogisticRegressionPath(L1Classifier):
    """L1-regularised logistic regression for two classes at many λ, each begun at the solution of the one before.

    Predictions are those of one λ, `lambda_index_`: choose it by data that were not fitted to, with `select`. Until
    then it is the one with the lowest BIC, 2 · training loss + nonzeros · log n (n: what the examples weigh). For any
    other there is `at`. What L1LogisticRegression says of the objective, of intercepts and of values holds here.

    Parameters
    ----------
    lambdas : sequence of float, default=None
        Solve for these, largest first, each once. By default for λmax · path_ratioⁱ, i = 1..path_length.
    path_length : int, default=20
    path_ratio : float, default=0.5
    lambda_index : int, default=None
        Which λ predicts, until `select` chooses another: counted from the largest λ; -1 is the smallest. By default
        the one with the lowest BIC.
    fit_intercept, l1_ratio, loss, positive, standardize, penalty_factors, class_weight, algorithm, tol, gap, \
max_rounds, subspace_memory, blocks, client, scratch
        As for L1LogisticRegression; max_rounds is for each λ.

    Attributes
    ----------
    lambdas_ : ndarray of shape (n_lambdas,)
        Falling.
    coefs_ : scipy.sparse.csr_array of shape (n_lambdas, n_features)
    intercepts_ : ndarray of shape (n_lambdas,)
    objectives_, gaps_, relative_gaps_, n_nonzeros_ : ndarray of shape (n_lambdas,)
    n_iter_ : ndarray of shape (n_lambdas,)
        Passes over the data.
    path_ : list of dict
        A row for each λ, as path.parquet of a run: index, lambda, objective, gap, nonzeros, rounds, seconds, ...
    lambda_index_ : int
    coef_, intercept_ : those of `lambda_index_`
    lambda_max_, classes_, n_features_in_, feature_names_in_
        As for L1LogisticRegression.

    Examples
    --------
    >>> from pipeline import L1LogisticRegressionPath
    >>> X = [[2.0, 0.0, 1.0], [1.0, 0.5, 0.0], [-1.0, 0.0, 1.0], [-2.0, 0.5, 0.0]]
    >>> path = L1LogisticRegressionPath(path_length=3).fit(X, [1, 1, 0, 0])
    >>> path.lambdas_
    array([1.5  , 0.75 , 0.375])
    >>> path.n_nonzeros_
    array([1, 1, 1])
    >>> path.select(X, [1, 1, 0, 0], metric="log_loss").lambda_index_
    2
    """

    def __init__(
        self,
        lambdas: Sequence[float] | None = None,
        *,
        path_length: int = 20,
        path_ratio: float = 0.5,
        lambda_index: int | None = None,
        fit_intercept: bool = True,
        l1_ratio: float = 1.0,
        loss: str = "logistic",
        positive: bool = False,
        standardize: bool = False,
        penalty_factors: Any = None,
        class_weight: Any = None,
        algorithm: str = "default",
        tol: float = 1e-4,
        gap: float | None = None,
        max_rounds: int | None = None,
        subspace_memory: int | None = None,
        blocks: int | None = None,
        client: Any = None,
        scratch: str | None = None,
    ) -> None:
        self.lambdas = lambdas
        self.path_length = path_length
        self.path_ratio = path_ratio
        self.lambda_index = lambda_index
        self.fit_intercept = fit_intercept
        self.l1_ratio = l1_ratio
        self.loss = loss
        self.positive = positive
        self.standardize = standardize
        self.penalty_factors = penalty_factors
        self.class_weight = class_weight
        self.algorithm = algorithm
        self.tol = tol
        self.gap = gap
        self.max_rounds = max_rounds
        self.subspace_memory = subspace_memory
        self.blocks = blocks
        self.client = client
        self.scratch = scratch

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the whole path; arguments as for L1LogisticRegression.fit."""
        lambdas = None if self.lambdas is None else tuple(float(lam) for lam in self.lambdas)
        if lambdas is not None and self.lambda_index is not None:
            self._counted(self.lambda_index, len(set(lambdas)))
        path = {"lambdas": lambdas, "length": self.path_length, "ratio": self.path_ratio}
        fitted = self._fit(X, y, sample_weight, **path)
        self.path_ = fitted.rows
        self.coefs_ = fitted.coefs
        self.intercepts_ = np.array([row["intercept"] for row in self.path_])
        self.lambdas_, self.objectives_, self.gaps_ = (
            np.array([row[name] for row in self.path_]) for name in ("lambda", "objective", "gap")
        )
        self.n_nonzeros_, self.n_iter_ = (
            np.array([row[name] for row in self.path_]) for name in ("nonzeros", "rounds")
        )
        index = lowest_bic(self.path_) if self.lambda_index is None else self.lambda_index
        assert index is not None  # rows that were made here tell it
        return self._choose(index)

    @property
    def relative_gaps_(self) -> np.ndarray:
        """The duality gaps as shares of the objectives."""
        shares: np.ndarray = self.gaps_ / self.objectives_
        return shares

    def at(self, lambda_index: int) -> L1LogisticRegression:
        """The model of one λ, fitted."""
        check_is_fitted(self)
        k = self._counted(lambda_index, len(self.path_))
        shared = {name: value for name, value in self.get_params().items() if name in SHARED}
        model = L1LogisticRegression(float(self.lambdas_[k]), **shared)
        for name in ("classes_", "n_features_in_", "feature_names_in_", "lambda_max_", "_model"):
            if hasattr(self, name):
                setattr(model, name, copy.copy(getattr(self, name)))
        return model._take(self.path_[k], self.coefs_[[k]])

    def select(self, X: Any, y: Any = None, *, sample_weight: Any = None, metric: str = "auprc") -> Self:
        """Choose the λ that does best on these data, the largest of equals: sets `lambda_index_`.

        metric: auprc, auc, log_loss or accuracy. The values found are added to the rows of `path_`.
        Not for the data that the path was fitted to: there the smallest λ nearly always wins.
        """
        from pipeline.metrics import metrics_of
        from pipeline.model import best_of

        check_is_fitted(self)
        margins, labels, weights = self._margins_of_all(X, y, sample_weight)
        strange = set(np.unique(labels).tolist()) - set(self.classes_.tolist())
        if strange:
            raise ValueError(f"y has labels {sorted(strange)}, but the classes are {self.classes_.tolist()}")
        signs = np.where(labels == self.classes_[1], 1.0, -1.0)
        for row, of_one in zip(self.path_, margins, strict=True):
            row |= metrics_of(np.asarray(of_one), signs, weights, loss=self.loss)
        best = best_of(self.path_, metric)
        if best is None:
            raise ValueError(f"{metric} is not defined on these data: they have one class only")
        return self._choose(best)

    def _margins_of_all(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[Sequence[np.ndarray], np.ndarray, np.ndarray | None]:
        """Margins for each λ, labels, weights. A dask array or data set is gone through once."""
        count = len(self.path_)
        if is_source(X):
            refuse_labels(y, sample_weight)
            margins, labels, weights = self._score_source(X, list(range(count)))
            return list(margins.T), labels, weights
        lazy = [self.at(k).decision_function(X) for k in range(count)]
        *found, y, weights = self._in_memory([*lazy, y, sample_weight])
        weights = None if weights is None else np.asarray(weights, dtype=np.float64)
        return found, column_or_1d(y), weights

    def _choose(self, lambda_index: int) -> Self:
        self.lambda_index_ = self._index = self._counted(lambda_index, len(self.path_))
        self.coef_, self.intercept_ = dense_or_sparse(self.coefs_[[self._index]]), self.intercepts_[[self._index]]
        return self

    @staticmethod
    def _counted(lambda_index: int, length: int) -> int:
        """The index as one counted from the front."""
        if not -length <= lambda_index < length:
            raise ValueError(f"λ index {lambda_index}, but the path has {length}: 0 to {length - 1}")
        return int(lambda_index) % length
