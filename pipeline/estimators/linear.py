"""L1LinearRegression: the lasso and the elastic net at one λ, by scikit-learn's rules."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from pipeline.estimators.base import L1Estimator, dense_or_sparse, is_source, refuse_labels
from solver import ProblemOptions
from transforms.parser import are_labels


class L1LinearRegression(RegressorMixin, L1Estimator):  # type: ignore[misc]
    """L1-regularised linear regression, the lasso, with a certificate of how good the result is.

    Minimises ½ Σᵢ (yᵢ − βᵀxᵢ − b)² + λ(ρ‖β‖₁ + (1 − ρ)/2 ‖β‖²): the *sum* over examples, so λ is n · alpha of
    scikit-learn's Lasso and ElasticNet, n being the number of examples, or the sum of their weights. The intercept b is
    not penalised. Values of X are rounded to float32; those beyond it are refused, as are such y.

    Parameters
    ----------
    lam : float, default=1.0
        λ. From `lambda_max_` on, all coefficients are zero.
    fit_intercept, l1_ratio, positive, standardize, penalty_factors, algorithm, tol, gap, max_rounds, \
subspace_memory, blocks, warm_start, client, scratch
        As for L1LogisticRegression.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients; where there are more than 2²⁴ features, a sparse row.
    sparse_coef_ : scipy.sparse.csr_array of shape (1, n_features)
    intercept_ : float
    objective_ : float
        The sum above at `coef_`.
    gap_, relative_gap_ : float
        The duality gap: no coefficients are better by more than this. Absolute, and as a share of `objective_`.
    converged_ : bool
        Whether the tolerance was met. If not, `fit` warns (ConvergenceWarning).
    n_iter_ : int
        Passes over the data.
    lambda_max_ : float
        The smallest λ at which all coefficients are zero.
    n_features_in_ : int
    feature_names_in_ : ndarray, only where X had names that are strings

    Examples
    --------
    >>> from pipeline import L1LinearRegression
    >>> X = [[2.0, 0.0, 1.0], [1.0, 0.5, 0.0], [-1.0, 0.0, 1.0], [-2.0, 0.5, 0.0]]
    >>> model = L1LinearRegression(1.0).fit(X, [7.0, 5.0, 1.0, -1.0])
    >>> model.coef_.round(2), round(model.intercept_, 2)
    (array([1.9, 0. , 0. ]), 3.0)
    >>> model.predict([[3.0, 0.0, 0.0]]).round(2)
    array([8.7])
    """

    _numeric = True
    intercept_: float
    n_iter_: int

    def __init__(
        self,
        lam: float = 1.0,
        *,
        fit_intercept: bool = True,
        l1_ratio: float = 1.0,
        positive: bool = False,
        standardize: bool = False,
        penalty_factors: Any = None,
        algorithm: str = "default",
        tol: float = 1e-4,
        gap: float | None = None,
        max_rounds: int | None = None,
        subspace_memory: int | None = None,
        blocks: int | None = None,
        warm_start: bool = False,
        client: Any = None,
        scratch: str | None = None,
    ) -> None:
        self.lam = lam
        self.fit_intercept = fit_intercept
        self.l1_ratio = l1_ratio
        self.positive = positive
        self.standardize = standardize
        self.penalty_factors = penalty_factors
        self.algorithm = algorithm
        self.tol = tol
        self.gap = gap
        self.max_rounds = max_rounds
        self.subspace_memory = subspace_memory
        self.blocks = blocks
        self.warm_start = warm_start
        self.client = client
        self.scratch = scratch

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to X and y, as L1LogisticRegression.fit does; y holds numbers."""
        fitted = self._fit(X, y, sample_weight, lambdas=(self.lam,), start=self._start(X))
        return self._take(fitted.rows[0], fitted.coefs)

    def predict(self, X: Any) -> Any:
        """The number that is expected for each row of X: a matrix, dask or not, or what the model was fitted to."""
        return self._margins(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R². Of a data set or text, by the labels and weights in it."""
        if is_source(X):
            refuse_labels(y, sample_weight)
            margins, y, sample_weight = self._score_source(X, [self._index])
            predicted = margins[:, 0]
        else:
            predicted, y, sample_weight = self._in_memory([self.predict(X), y, sample_weight])
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def _problem(self) -> ProblemOptions:
        return self._problem_with("squared")

    def _encode(self, y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """y and the weights as float64, checked."""
        targets = np.asarray(y, dtype=np.float64)
        if not are_labels(targets):
            raise ValueError("y has values that are nan, inf, or beyond 3.4e38")
        if sample_weight is None:
            return targets, None
        weights = np.array(sample_weight, dtype=np.float64)
        if weights.shape != targets.shape:
            raise ValueError(f"sample_weight must be a vector of {targets.size} weights, got shape {weights.shape}")
        if not weights.any():
            raise ValueError("the weights of the examples are all zero: there is nothing to fit to")
        return targets, weights

    def _take(self, row: dict[str, Any], coefficients: sp.csr_array) -> Self:
        """The attributes of the fit."""
        coef = dense_or_sparse(coefficients)
        self.coef_ = coef if sp.issparse(coef) else coef[0]
        self.intercept_ = float(row["intercept"])
        self.objective_, self.gap_ = row["objective"], row["gap"]
        self.relative_gap_ = self.gap_ / self.objective_ if self.objective_ else 0.0
        self.converged_ = row["converged"]
        self.n_iter_ = int(row["rounds"])
        self._index = row["index"]
        return self
