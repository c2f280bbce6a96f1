"""L1LogisticRegression: one λ, by scikit-learn's rules."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from pipeline.estimators.base import L1Classifier, dense_or_sparse


class L1LogisticRegression(L1Classifier):
    """L1-regularised logistic regression for two classes, with a certificate of how good the result is.

    Minimises Σᵢ log(1 + exp(−yᵢ (βᵀxᵢ + b))) + λ‖β‖₁: the *sum* over examples, so λ is 1/C of scikit-learn's
    LogisticRegression(l1_ratio=1, solver="saga"). The intercept b is not penalised. Values of X are rounded to float32;
    those beyond it are refused.

    Parameters
    ----------
    lam : float, default=None
        λ; 1 by default. From `lambda_max_` on, all coefficients are zero.
    C : float, default=None
        1/λ, as in scikit-learn: give either.
    fit_intercept : bool, default=True
    l1_ratio : float, default=1.0
        ρ of the elastic net λ(ρ‖β‖₁ + (1 − ρ)/2 ‖β‖²), above 0 and at most 1.
    loss : {"logistic", "probit"}, default="logistic"
    positive : bool, default=False
        Allow no coefficient below 0.
    standardize : bool, default=False
        Penalise features as if each had standard deviation 1; coefficients stay on the scale of X. Constant features
        are left out.
    penalty_factors : vector of numbers >= 0, one for each feature, default=None
        What the penalty of each feature is multiplied by: 0 leaves it unpenalised, infinity leaves the feature out.
    class_weight : dict or "balanced", default=None
        Weights of the classes; "balanced" lets both weigh the same.
    algorithm : {"default", "paper"}, default="default"
        Subspace search with a certificate, or d-GLMNET exactly as published.
    tol : float, default=1e-4
        Relative suboptimality to reach (an estimate). For "paper", the relative decrease that ends the iteration.
    gap : float, default=None
        Ask for a proof instead: the relative duality gap to reach. For "default" only.
    max_rounds : int, default=None
        Passes over the data, at the most; by default 200, for "paper" 100.
    subspace_memory : int, default=None
        Bytes that the columns of the search may take; by default a quarter of the memory available.
    blocks : int, default=None
        Feature blocks, M of the paper; by default one for each core or thread of the cluster that has enough to do.
    warm_start : bool, default=False
        Begin at the coefficients of the last fit, where X is in memory and has as many columns.
    client : distributed.Client, default=None
        Where to fit. By default arrays in memory are fitted in this process, without a cluster; dask arrays and data
        sets on the current client's cluster or, if there is none, on one embedded in this process for the time of the
        fit. A client is not stored with a model, and does not travel to other processes (GridSearchCV's n_jobs).
    scratch : str, default=None
        URL of a folder for temporary files, which this process and all workers can reach; needed for arrays that are
        fitted on other machines. By default a temporary folder of this machine.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
        Coefficients; sparse after `sparsify()`, and where there are more than 2²⁴ features.
    sparse_coef_ : scipy.sparse.csr_array of shape (1, n_features)
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray of shape (2,)
    objective_ : float
        The sum above at `coef_`.
    gap_, relative_gap_ : float
        The duality gap: no coefficients are better by more than this. Absolute, and as a share of `objective_`.
    converged_ : bool
        Whether the tolerance was met. If not, `fit` warns (ConvergenceWarning).
    n_iter_ : ndarray of shape (1,)
        Passes over the data.
    lambda_max_ : float
        The smallest λ at which all coefficients are zero.
    n_features_in_ : int
    feature_names_in_ : ndarray, only where X had names that are strings

    Examples
    --------
    >>> from pipeline import L1LogisticRegression
    >>> X = [[2.0, 0.0, 1.0], [1.0, 0.5, 0.0], [-1.0, 0.0, 1.0], [-2.0, 0.5, 0.0]]
    >>> model = L1LogisticRegression(C=2, gap=1e-6).fit(X, ["yes", "yes", "no", "no"])
    >>> model.coef_.round(2)
    array([[1.59, 0.  , 0.  ]])
    >>> model.predict([[3.0, 0.0, 0.0]])
    array(['yes'], dtype='<U3')
    """

    intercept_: np.ndarray
    n_iter_: np.ndarray

    def __init__(
        self,
        lam: float | None = None,
        *,
        C: float | None = None,
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
        warm_start: bool = False,
        client: Any = None,
        scratch: str | None = None,
    ) -> None:
        self.lam = lam
        self.C = C
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
        self.warm_start = warm_start
        self.client = client
        self.scratch = scratch

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to X and y.

        Parameters
        ----------
        X : matrix of shape (n_examples, n_features), URL or Dataset
            numpy, scipy sparse; a dask array with blocks of either; or a data set that convert-libsvm or from_arrays
            made (opened by transforms.open_dataset where it needs storage options). Column j of a data set is feature
            j, or j + 1 where ids count from 1. A dask array is not gathered here: its blocks are written under
            `scratch` by the workers that hold them.
        y : vector of two classes, dask or not
            None for a data set, which holds its labels.
        sample_weight : vector of weights ≥ 0, dask or not, default=None
            None for a data set, which holds its weights.
        """
        fitted = self._fit(X, y, sample_weight, lambdas=(self._lambda(),), start=self._start(X))
        return self._take(fitted.rows[0], fitted.coefs)

    def _lambda(self) -> float:
        if self.C is None:
            return 1.0 if self.lam is None else self.lam
        if self.lam is not None:
            raise ValueError("give lam or C, which is 1/lam, not both")
        if not self.C > 0:
            raise ValueError(f"C must be > 0, got {self.C}")
        return 1.0 / self.C

    def _take(self, row: dict[str, Any], coefficients: sp.csr_array) -> Self:
        """The attributes of one λ."""
        self.coef_ = dense_or_sparse(coefficients)
        self.intercept_ = np.array([row["intercept"]])
        self.objective_, self.gap_ = row["objective"], row["gap"]
        self.relative_gap_ = self.gap_ / self.objective_ if self.objective_ else 0.0
        self.converged_ = row["converged"]
        self.n_iter_ = np.array([row["rounds"]], dtype=np.int32)
        self._index = row["index"]
        return self

    def sparsify(self) -> Self:
        """Make coef_ sparse."""
        self.coef_ = sp.csr_matrix(self.coef_)
        return self

    def densify(self) -> Self:
        """Make coef_ dense."""
        self.coef_ = sp.csr_array(self.coef_).toarray()
        return self
