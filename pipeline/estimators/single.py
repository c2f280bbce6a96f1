"""L1LogisticRegression: one λ, by scikit-learn's rules."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from pipeline.estimators.base import L1Classifier, dense_or_sparse


class L1LogisticRegression(L1Classifier):
    """L1-regularised logistic regression for two classes, with a certificate of how good the result is.

    Minimises Σᵢ log(1 + exp(−yᵢ βᵀxᵢ)) + λ‖β‖₁: the *sum* over examples, so λ is 1/C of scikit-learn's
    LogisticRegression(l1_ratio=1, solver="liblinear", fit_intercept=False).

    There is no intercept. A constant column stands in for one, penalised as any other column is; a large constant
    (say 100) makes the penalty on it small. Values of X are rounded to float32; those beyond it are refused.

    Parameters
    ----------
    lam : float, default=1.0
        λ. From `lambda_max_` on, all coefficients are zero.
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
    class_weight : dict or "balanced", default=None
        Weights of the classes; "balanced" lets both weigh the same.
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
        Always 0.
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
    >>> model = L1LogisticRegression(lam=0.5, gap=1e-6).fit(X, ["yes", "yes", "no", "no"])
    >>> model.coef_.round(2)
    array([[1.59, 0.  , 0.  ]])
    >>> model.predict([[3.0, 0.0, 0.0]])
    array(['yes'], dtype='<U3')
    """

    intercept_: np.ndarray
    n_iter_: np.ndarray

    def __init__(
        self,
        lam: float = 1.0,
        *,
        algorithm: str = "default",
        tol: float = 1e-4,
        gap: float | None = None,
        max_rounds: int | None = None,
        subspace_memory: int | None = None,
        blocks: int | None = None,
        class_weight: Any = None,
        client: Any = None,
        scratch: str | None = None,
    ) -> None:
        self.lam = lam
        self.algorithm = algorithm
        self.tol = tol
        self.gap = gap
        self.max_rounds = max_rounds
        self.subspace_memory = subspace_memory
        self.blocks = blocks
        self.class_weight = class_weight
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
        fitted = self._fit(X, y, sample_weight, lambdas=(self.lam,))
        return self._take(fitted.rows[0], fitted.coefs)

    def _take(self, row: dict[str, Any], coefficients: sp.csr_array) -> Self:
        """The attributes of one λ."""
        self.coef_ = dense_or_sparse(coefficients)
        self.intercept_ = np.zeros(1)
        self.objective_, self.gap_ = row["objective"], row["gap"]
        self.relative_gap_ = self.gap_ / self.objective_ if self.objective_ else 0.0
        self.converged_ = row["converged"]
        self.n_iter_ = np.array([row["rounds"]], dtype=np.int32)
        self._index = row["index"]
        return self

    @property
    def sparse_coef_(self) -> sp.csr_array:
        """The coefficients as a sparse row, whatever coef_ is."""
        return sp.csr_array(self.coef_)

    def sparsify(self) -> Self:
        """Make coef_ sparse."""
        self.coef_ = sp.csr_matrix(self.coef_)
        return self

    def densify(self) -> Self:
        """Make coef_ dense."""
        self.coef_ = sp.csr_array(self.coef_).toarray()
        return self
