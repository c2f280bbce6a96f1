"""A fitted path, read back from its run folder: coefficients by λ, predictions in memory, models for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from pipeline import export
from pipeline.margins import labels_of, margins_of, probabilities_of
from pipeline.metrics import BINARY, NUMBER, find_metric, metric_names
from pipeline.run_record import RunRecord, read_run_record
from pipeline.stored import PATH, read_path_rows, read_weights
from transforms import UserError
from transforms.storage import StorageOptions, display, open_storage, redact

if TYPE_CHECKING:
    from sklearn.linear_model import ElasticNet, LogisticRegression


@dataclass(frozen=True, repr=False)
class PathModel:
    """The models of a path, one for each λ, falling. Open one with `PathModel.load`.

    Features keep the ids of the training data. Where a matrix is concerned, column j is feature j + index_base:
    feature j of data that count from 0 (as `from_arrays` does), feature j + 1 of data that count from 1, which is
    what scikit-learn's load_svmlight_file makes of either.
    """

    url: str  # may hold a password: show `name` instead
    record: RunRecord  # run.json
    path: list[dict[str, Any]]  # path.parquet, a row per λ
    starts: np.ndarray  # coefficients of λ k are starts[k] to starts[k + 1]
    features: np.ndarray  # int64, rising within a λ
    weights: np.ndarray  # float64

    @classmethod
    def load(cls, url: str, storage_options: dict[str, Any] | None = None) -> PathModel:
        """Read the run folder at `url`. Raises UserError if it is missing, damaged, or of another version."""
        fs, path = open_storage(url, StorageOptions(storage_options or {}))
        record = read_run_record(fs, path)
        rows = read_path_rows(fs, path)
        if not rows:
            raise UserError(f"{display(fs, path)}/{PATH}: no λ is done yet: continue the run or fit again")
        found = read_weights(fs, path, rows, record.dataset.index_base)
        return cls(url, record, rows, found.starts, found.features, found.weights)

    def __repr__(self) -> str:
        return f"PathModel({self.name!r}: {len(self)} models, up to {max(np.diff(self.starts)):,} nonzeros)"

    def __len__(self) -> int:
        return len(self.path)

    @property
    def name(self) -> str:
        """Where it is, for people."""
        return redact(self.url)

    @property
    def about(self) -> dict[str, Any]:
        """run.json as it is stored."""
        return self.record.to_json()

    @property
    def lambdas(self) -> np.ndarray:
        return np.array([row["lambda"] for row in self.path])

    @property
    def index_base(self) -> int:
        """Whether feature ids count from 0 or from 1."""
        return int(self.record.dataset.index_base)

    @property
    def label_map(self) -> dict[str, float]:
        """The labels of the input that stand for "-1" and "+1"; empty where labels are numbers."""
        names = self.record.dataset.label_map
        return {} if names is None else names.to_json()

    @property
    def classes(self) -> np.ndarray:
        """The two labels, rising: the columns of predict_proba."""
        self._refuse_numbers("classes")
        return np.sort(np.array([self.label_map["-1"], self.label_map["+1"]]))

    @property
    def width(self) -> int:
        """Columns up to the last that has a weight at any λ."""
        return int(self.features.max(initial=self.index_base - 1)) - self.index_base + 1

    def best(self, metric: str | None = None) -> int | None:
        """The index of the λ that an evaluation found best, the first of equals; None if there was none.

        metric: by default the one that the evaluation was asked for. Data of one class find none best.
        """
        judged = self.record.evaluation
        if metric is None and judged is not None and judged.best is None:
            return None
        return best_of(self.path, metric or self.metric, self.label_kind)

    @property
    def label_kind(self) -> str:
        """What the labels are: "binary" or "number"."""
        return self.record.label_kind

    @property
    def metric(self) -> str:
        """What an evaluation was asked to find the best by, or would be by default."""
        judged = self.record.evaluation
        return judged.metric if judged else metric_names(self.label_kind)[0]

    def coefficients(self, lambda_index: int) -> tuple[np.ndarray, np.ndarray]:
        """Feature ids, rising, and their weights."""
        k = self.check_index(lambda_index)
        mine = slice(self.starts[k], self.starts[k + 1])
        return self.features[mine], self.weights[mine]

    @property
    def intercepts(self) -> np.ndarray:
        """Of each λ; 0 where the model has none."""
        return np.array([row["intercept"] or 0.0 for row in self.path])

    @property
    def has_intercept(self) -> bool:
        return bool(self.record.option("intercept"))

    def intercept(self, lambda_index: int) -> float:
        return float(self.intercepts[self.check_index(lambda_index)])

    def coef(self, lambda_index: int) -> sp.csr_array:
        """The coefficients as a sparse row, 1 × width; column j is feature j + index_base."""
        features, weights = self.coefficients(lambda_index)
        ends = np.array([0, features.size])
        return sp.csr_array((weights, features - self.index_base, ends), shape=(1, self.width))

    def decision_function(self, X: Any, lambda_index: int) -> Any:
        """Margins of the rows of X (numpy, scipy sparse, dask array); > 0 speaks for the label that is +1.

        X may have any number of columns: those the model does not know have no weight, those that are missing are 0.
        Of a dask array this and the next two are lazy dask arrays, with the chunks of its rows.
        """
        features, weights = self.coefficients(lambda_index)
        return margins_of(X, features - self.index_base, weights, self.intercept(lambda_index))

    def predict_proba(self, X: Any, lambda_index: int) -> Any:
        """Probabilities, examples × 2, a column for each of `classes`."""
        self._refuse_numbers("probabilities")
        margins = self.decision_function(X, lambda_index)
        signed = margins if self.label_map["+1"] > self.label_map["-1"] else -margins
        return probabilities_of(signed, self.record.loss)

    def predict(self, X: Any, lambda_index: int) -> Any:
        """The likelier label of each row; of a model with squared loss, the number itself."""
        margins = self.decision_function(X, lambda_index)
        if self.label_kind == NUMBER:
            return margins
        return labels_of(margins, np.array([self.label_map["-1"], self.label_map["+1"]]))

    def _refuse_numbers(self, what: str) -> None:
        if self.label_kind == NUMBER:
            raise UserError(f"{self.name}: a model with {self.record.loss} loss predicts numbers, not {what}")

    def to_sklearn(self, lambda_index: int, n_features: int | None = None) -> LogisticRegression | ElasticNet:
        """A fitted scikit-learn LogisticRegression; n_features: columns of the X it will see. [default: width]

        Of a model with squared loss, a Lasso, or an ElasticNet.
        """
        return export.to_sklearn(self, lambda_index, n_features)

    def to_liblinear(self, path: str, lambda_index: int) -> None:
        """Write a model file for LIBLINEAR's `predict`. It has no feature 0: ids from 0 on become one higher."""
        export.to_liblinear(self, path, lambda_index)

    def to_vw(self, path: str, lambda_index: int, bits: int | None = None) -> None:
        """Write a model that Vowpal Wabbit reads: `vw -t -i PATH` gives the probability of +1 for `| id:value ...`.

        bits: its -b. By default 18, or as many as the largest id with a weight needs. Vowpal Wabbit takes ids from
        2^bits on for lower ones, so where data to be predicted have such ids, give more bits.
        """
        export.to_vw(self, path, lambda_index, bits)

    def check_index(self, lambda_index: int) -> int:
        """The index as one counted from the front (-1 is the last λ)."""
        if not -len(self) <= lambda_index < len(self):
            raise UserError(f"{self.name}: λ index {lambda_index}, but the run has {len(self)}: 0 to {len(self) - 1}")
        return lambda_index % len(self)


def best_of(rows: Sequence[dict[str, Any]], metric: str, kind: str = BINARY) -> int | None:
    """The row with the best value of a metric, the first of equals: the sparsest. None if no row has one."""
    names = metric_names(kind)
    if metric not in names:
        raise UserError(f"metric must be one of {', '.join(names)}, got {metric!r}")
    sign = 1 if find_metric(metric).higher_is_better else -1
    values = [(sign * row[metric], -k) for k, row in enumerate(rows) if row.get(metric) is not None]
    return -max(values)[1] if values else None
