"""One problem for all peers: X, y, the λ, and the best certified objective for each, in one .npz file.

Read inside the peers' environments, so it needs nothing but numpy and scipy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Problem:
    """Minimise f(β) = Σ log(1 + exp(−y xβ)) + λ‖β‖₁, without intercept, for each λ.

    X: rows of float32. y: −1 or +1. largest: λmax. best: the certified objectives, and gap: the duality gaps that
    certify them, relative. dense: do peers get a dense matrix?
    """

    X: sp.csr_matrix
    y: np.ndarray
    largest: float
    lambdas: np.ndarray
    best: np.ndarray
    gap: np.ndarray
    dense: bool

    @property
    def n(self) -> int:
        return int(self.X.shape[0])

    def rows(self) -> Any:
        """X in float64, by rows: sparse, or dense where the data are."""
        X = self.X.astype(np.float64)
        return X.toarray() if self.dense else X

    def columns(self) -> Any:
        """X in float64, by columns: sparse, or dense where the data are."""
        X = self.X.astype(np.float64)
        return X.toarray(order="F") if self.dense else X.tocsc()

    def objective(self, beta: np.ndarray, lam: float) -> float:
        """f(β), in float64 whatever the peer worked in."""
        weights = np.asarray(beta, dtype=np.float64).ravel()
        used = np.flatnonzero(weights)
        margins = self.y * (self.X[:, used].astype(np.float64) @ weights[used])
        return float(np.logaddexp(0.0, -margins).sum() + lam * np.abs(weights).sum())

    def small(self, rows: int = 300, features: int = 50) -> Problem:
        """A corner of the problem, of the same types: what peers compile their code on."""
        y = self.y.copy()
        some = np.sort(np.concatenate([np.flatnonzero(y > 0)[:rows], np.flatnonzero(y < 0)[:rows]]))
        X = self.X[some]
        used = np.argsort(-np.bincount(X.indices, minlength=X.shape[1]), kind="stable")[:features]
        X, y = X[:, np.sort(used)].tocsr(), y[some]
        largest = float(np.abs(X.T.astype(np.float64) @ y).max()) / 2
        none = np.full(2, np.nan)
        return Problem(X, y, largest, largest / np.array([2.0, 8.0]), none, none, self.dense)

    def save(self, path: Path) -> None:
        arrays = {"data": self.X.data, "indices": self.X.indices, "indptr": self.X.indptr}
        rest = {name: getattr(self, name) for name in ("y", "largest", "lambdas", "best", "gap", "dense")}
        np.savez(path, shape=np.array(self.X.shape), **arrays, **rest)

    @classmethod
    def load(cls, path: Path) -> Problem:
        with np.load(path) as file:
            X = sp.csr_matrix((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
            lambdas, best, gap = (file[name] for name in ("lambdas", "best", "gap"))
            return cls(X, file["y"], float(file["largest"]), lambdas, best, gap, bool(file["dense"]))
