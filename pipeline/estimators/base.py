"""What the scikit-learn estimators share: taking in data of every kind, the fit, and predictions by `coef_`."""

from __future__ import annotations

import copy
import os
import warnings
from abc import ABC, abstractmethod
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from dask import is_dask_collection
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

import solver
from pipeline.class_weights import BALANCED, class_weights
from pipeline.estimators.fit_memory import Ask, Fitted, fit_in_memory
from pipeline.margins import PROBABILITIES, labels_of, margins_of, probabilities_of
from solver import ProblemOptions, find_algorithm
from solver.options import options_of
from transforms import Dataset, UserError, open_dataset
from transforms.matrices import is_dask_array

if TYPE_CHECKING:
    from pipeline.model import PathModel

FLOATS = (np.float64, np.float32)
DENSE_COLUMNS = 1 << 24  # 128 MB of coefficients; past it coef_ is sparse, as `sparsify` makes it


class ConvergenceWarning(solver.ConvergenceWarning, SklearnConvergenceWarning):  # type: ignore[misc]
    """The fit ended before it met its tolerance; scikit-learn's filters for its own warning catch it."""


# What both estimators take beside λ: their names, in the order of their documentation.
SHARED = (
    "fit_intercept",
    "l1_ratio",
    "loss",
    "positive",
    "standardize",
    "penalty_factors",
    "class_weight",
    "algorithm",
    "tol",
    "gap",
    "max_rounds",
    "subspace_memory",
    "blocks",
    "client",
    "scratch",
)


class L1Estimator(BaseEstimator, ABC):  # type: ignore[misc]
    """A linear model. Subclasses give the parameters, the problem, what y means, `fit`, `coef_` and `intercept_`."""

    fit_intercept: bool
    l1_ratio: float
    positive: bool
    standardize: bool
    penalty_factors: Any
    algorithm: str
    tol: float
    gap: float | None
    max_rounds: int | None
    subspace_memory: int | None
    blocks: int | None
    client: Any
    scratch: str | None

    _numeric = False  # is y of numbers, not of classes?
    n_features_in_: int
    coef_: Any
    intercept_: Any

    @abstractmethod
    def _problem(self) -> ProblemOptions:
        """What is minimised."""

    @abstractmethod
    def _encode(self, y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Targets as the loss wants them, and the weights of examples."""

    def _start(self, X: Any) -> tuple[np.ndarray, float] | None:
        """Where a warm start begins: at the last fit, if X has as many columns. None without one."""
        known = hasattr(self, "coef_") and getattr(X, "shape", (0, 0))[1:] == (self.n_features_in_,)
        if not (getattr(self, "warm_start", False) and known):
            return None
        return self.sparse_coef_.toarray()[0], float(np.ravel(self.intercept_)[0])

    # --- predictions ------------------------------------------------------------------------------------------------

    def _margins(self, X: Any) -> Any:
        """β·x + b for the rows of X."""
        check_is_fitted(self)
        if is_source(X):
            return self._score_source(X, [self._index])[0][:, 0]
        if is_dask_array(X):
            validate_data(self, X, skip_check_array=True, reset=False)
        else:
            _refuse_collections(X)
            X = validate_data(self, X, accept_sparse=("csr", "csc"), dtype=FLOATS, reset=False)
        row = self.sparse_coef_
        return margins_of(X, row.indices, row.data, float(np.ravel(self.intercept_)[0]))

    @property
    def sparse_coef_(self) -> sp.csr_array:
        """The coefficients as a sparse row, whatever coef_ is."""
        return sp.csr_array(self.coef_ if sp.issparse(self.coef_) else np.atleast_2d(self.coef_))

    def _in_memory(self, values: list[Any]) -> list[Any]:
        """Dask arrays among these computed, all at once."""
        if not any(is_dask_array(one) for one in values):
            return values
        from dask import compute

        with nullcontext() if self.client is None else self.client.as_current():
            return list(compute(*values))

    def _score_source(self, X: Any, indices: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Margins of a data set or text, examples × λ; labels; weights."""
        from pipeline.estimators.fit_dask import score_source

        check_is_fitted(self)
        if self._model is None:
            raise UserError("this model was fitted to arrays, whose columns have no feature ids: give X as an array")
        source = X if isinstance(X, Dataset) else os.fspath(X)
        return score_source(self._model, indices, source, self.client)

    # --- the fit ----------------------------------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, sample_weight: Any, **path: Any) -> Fitted:
        """Solve wherever the data are; sets n_features_in_ and what predictions from storage need."""
        ask = Ask(self._options(), self._problem(), blocks=self.blocks, factors=self._factors(), **path)
        self._model: PathModel | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", solver.ConvergenceWarning)  # said below, of any place the solver ran
            if is_source(X):
                fitted = self._fit_source(X, y, sample_weight, ask)
            elif is_dask_array(X):
                fitted = self._fit_dask(X, y, sample_weight, ask)
            else:
                fitted = self._fit_memory(X, y, sample_weight, ask)
        self._warn_unless_converged(fitted)
        self.lambda_max_ = fitted.lambda_max
        return fitted

    def _options(self) -> Any:
        """The algorithm's options; those that it does not have must be left alone."""
        algorithm = find_algorithm(self.algorithm)
        if algorithm.NEEDS != "columns":
            raise ValueError(f"algorithm={self.algorithm!r} learns by example, which estimators do not: use fit_path")
        kind = algorithm.Options
        known = {field.name for field in options_of(kind)}
        asked = {name: getattr(self, name) for name in ("tol", "gap", "max_rounds", "subspace_memory")}
        given = {name: value for name, value in asked.items() if value is not None}
        for name in given:
            if name not in known:
                raise ValueError(f"{name} does not go with algorithm={self.algorithm!r}")
        return kind(**given)

    def _problem_with(self, loss: str) -> ProblemOptions:
        return ProblemOptions(
            loss, bool(self.fit_intercept), self.l1_ratio, bool(self.positive), bool(self.standardize)
        )

    def _factors(self) -> np.ndarray | None:
        if self.penalty_factors is None:
            return None
        factors = np.asarray(self.penalty_factors, dtype=np.float64)
        if factors.ndim != 1 or not (factors >= 0).all():
            raise ValueError("penalty_factors must be a vector of numbers >= 0, one for each feature")
        return factors

    def _check_factors(self, width: int) -> None:
        if self.penalty_factors is not None and len(self.penalty_factors) != width:
            raise ValueError(f"penalty_factors has {len(self.penalty_factors)} entries, but there are {width} features")

    def _fit_memory(self, X: Any, y: Any, sample_weight: Any, ask: Ask) -> Fitted:
        _refuse_collections(X)
        X, y = validate_data(self, X, y, accept_sparse=("csc", "csr"), dtype=FLOATS, y_numeric=self._numeric)
        targets, weights = self._encode(y, sample_weight)
        self._check_factors(X.shape[1])
        try:
            if self.client is None:
                return fit_in_memory(X, targets, weights, ask)
            from pipeline.estimators.fit_dask import fit_arrays

            return fit_arrays(X, targets, weights, ask, self.client, self.scratch)
        except UserError as error:
            raise ValueError(str(error)) from error

    def _fit_dask(self, X: Any, y: Any, sample_weight: Any, ask: Ask) -> Fitted:
        from pipeline.estimators.fit_dask import cut, fit_arrays, gather
        from pipeline.scoring import client_for

        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if X.ndim != 2 or np.isnan(X.shape[1]):
            raise UserError("X must be a matrix whose number of columns is known")
        self._check_factors(int(X.shape[1]))
        with client_for(self.client) as client:
            y, sizes = gather(X, y, client)
            sample_weight = None if sample_weight is None else gather(X, sample_weight, client)[0]
            targets, weights = self._encode(column_or_1d(y, warn=True), sample_weight)
            validate_data(self, X, skip_check_array=True)
            weights = None if weights is None else cut(weights, sizes)
            return fit_arrays(X, cut(targets, sizes), weights, ask, client, self.scratch)

    def _fit_source(self, X: str | Dataset, y: Any, sample_weight: Any, ask: Ask) -> Fitted:
        from pipeline.estimators.fit_dask import fit_dataset, fitted_of, width_of
        from pipeline.scoring import client_for

        refuse_labels(y, sample_weight)
        dataset = X if isinstance(X, Dataset) else open_dataset(os.fspath(X))
        self._check_factors(width_of(dataset))
        with client_for(self.client) as client:
            self._model = fit_dataset(dataset, ask, client)
        self.n_features_in_ = width_of(dataset)
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        return fitted_of(self._model, self.n_features_in_)

    def _warn_unless_converged(self, fitted: Fitted) -> None:
        for row in fitted.rows:
            if not row["converged"]:
                asked = f"tol = {self.tol:g}" if self.gap is None else f"a relative gap of {self.gap:g}"
                warnings.warn(
                    f"λ = {row['lambda']:g}: after {row['rounds']} rounds the relative duality gap is "
                    f"{row['gap'] / row['objective']:.2g}; {asked} was asked for and not reached. "
                    "Raise max_rounds, or ask for less.",
                    ConvergenceWarning,
                    stacklevel=4,
                )

    # --- scikit-learn's protocols -----------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """A client belongs to a process: it is not stored, and does not travel to others."""
        return {**super().__getstate__(), "client": None}

    def __sklearn_clone__(self) -> Any:
        """A client cannot be copied: a clone has the same one."""
        twin = super(L1Estimator, copy.copy(self)).__sklearn_clone__()
        twin.client = self.client
        return twin


class L1Classifier(ClassifierMixin, L1Estimator):  # type: ignore[misc]
    """Two classes."""

    loss: str
    class_weight: Any
    classes_: np.ndarray
    intercept_: np.ndarray

    # --- predictions ------------------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> Any:
        """Margins of the rows of X; > 0 speaks for classes_[1].

        Of a dask array, a lazy dask array with the chunks of its rows; the same holds for the methods below. Where the
        model was fitted to a data set, X may be one, too (a URL or a Dataset), or LIBSVM text.
        """
        return self._margins(X)

    def predict(self, X: Any) -> Any:
        """The likelier class of each row."""
        return labels_of(self.decision_function(X), self.classes_)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities, a row for each example, a column for each of classes_."""
        return probabilities_of(self.decision_function(X), self.loss)

    def predict_log_proba(self, X: Any) -> Any:
        """Their logarithms, which stay finite where a probability is too small for a float."""
        return probabilities_of(self.decision_function(X), self.loss, log=True)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The accuracy. Of a data set or text, by the labels and weights in it."""
        if is_source(X):
            refuse_labels(y, sample_weight)
            margins, y, sample_weight = self._score_source(X, [self._index])
            predicted = labels_of(margins[:, 0], self.classes_)
        else:
            predicted, y, sample_weight = self._in_memory([self.predict(X), y, sample_weight])
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def _score_source(self, X: Any, indices: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        margins, labels, weights = super()._score_source(X, indices)
        names = self._model.label_map if self._model else {}
        return -margins if names["+1"] < names["-1"] else margins, labels, weights

    # --- the fit ----------------------------------------------------------------------------------------------------

    def _problem(self) -> ProblemOptions:
        if self.loss not in PROBABILITIES:
            raise ValueError(f"loss must be one of {', '.join(PROBABILITIES)} for two classes, got {self.loss!r}")
        return self._problem_with(self.loss)

    def _fit_source(self, X: str | Dataset, y: Any, sample_weight: Any, ask: Ask) -> Fitted:
        refuse_labels(self.class_weight)
        fitted = super()._fit_source(X, y, sample_weight, ask)
        assert self._model is not None
        self.classes_ = self._model.classes
        return fitted

    def _encode(self, y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Labels as -1/+1 and the weights of examples, those of their classes included; sets classes_."""
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(f"y has one class only ({self.classes_.tolist()[0]!r}); two classes are needed")
        signs = (2 * codes - 1).astype(np.int8)
        if sample_weight is None and self.class_weight is None:
            return signs, None
        weights = np.ones(codes.size) if sample_weight is None else np.array(sample_weight, dtype=np.float64)
        if weights.shape != codes.shape:
            raise ValueError(f"sample_weight must be a vector of {codes.size} weights, got shape {weights.shape}")
        totals = np.bincount(codes, weights, 2)
        if not (totals > 0).all():
            raise ValueError("the weights of a class are all zero; two classes are needed")
        return signs, weights * self._class_weights(totals)[codes]

    def _class_weights(self, totals: np.ndarray) -> np.ndarray:
        """The weight of either class: 1, as given, or such that both weigh the same."""
        asked = self.class_weight
        if asked is None:
            return np.ones(2)
        if asked != BALANCED and not isinstance(asked, dict):
            raise ValueError(f"class_weight must be None, 'balanced' or a dict, got {asked!r}")
        if isinstance(asked, dict):
            unknown = set(asked) - set(self.classes_.tolist())
            if unknown:
                raise ValueError(f"class_weight names {unknown}, but the classes are {self.classes_.tolist()}")
            asked = {k: asked[label] for k, label in enumerate(self.classes_.tolist()) if label in asked}
        return np.array(class_weights(asked, (0.0, 1.0), (float(totals[0]), float(totals[1]))))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def is_source(X: Any) -> bool:
    """Data that lie in storage: a URL or an opened data set."""
    return isinstance(X, (str, os.PathLike, Dataset))


def _refuse_collections(X: Any) -> None:
    """A dask collection that is no array would be gathered here without a word."""
    if is_dask_collection(X):
        raise TypeError(f"X is a {type(X).__name__}: make it a dask array, a data frame with X.to_dask_array()")


def refuse_labels(*given: Any) -> None:
    if any(one is not None for one in given):
        raise UserError("labels and weights are in the data set: leave out y, sample_weight and class_weight")


def dense_or_sparse(row: sp.csr_array) -> Any:
    """coef_: a row, dense by scikit-learn's convention, unless it were enormous."""
    return row.toarray() if row.shape[1] <= DENSE_COLUMNS else sp.csr_matrix(row)
