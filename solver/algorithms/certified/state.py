"""What a search knows beside the solutions, so that a path that was cut goes on as if it had not been.

β alone says where a path is, but not what the next λ begins with: slopes at the last dual point, Gram matrices, columns
in the store. Found anew they are slightly different ones, and models differ within the tolerance. Kept, none does.

A state travels as named vectors of floats, which any format can hold. Integers below 2⁵³ are exact in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from solver.algorithms.certified.store import Gram, Rows
from solver.algorithms.certified.tuning import STORE
from solver.arrays import Coefficients, Float64, Int64
from solver.path import StateMismatch, StateVectors


@dataclass(frozen=True)
class SearchState:
    """A search between two λ.

    budget: bytes of the store. threads: parts that sums are cut into.
    exceeded_budget: did the last λ need split rounds?
    earlier: λ and β before the last solution, to extrapolate from.
    dual_margins: where the blocks' slopes belong to, if they hold any.
    stored: the features whose columns are in the store. support_bytes: the sizes of the columns of β.
    gram: that of the store.
    """

    budget: int
    threads: int
    exceeded_budget: bool
    support_bytes: Int64 = field(repr=False)
    stored: Int64 = field(repr=False)
    earlier: tuple[float, Coefficients] | None = field(default=None, repr=False)
    dual_margins: Float64 | None = field(default=None, repr=False)
    gram: Gram | None = field(default=None, repr=False)

    def vectors(self) -> StateVectors:
        found = {
            "settings": np.array([self.budget, self.threads, self.exceeded_budget], np.float64),
            "support_bytes": self.support_bytes.astype(np.float64),
            "stored": self.stored.astype(np.float64),
        }
        if self.earlier is not None:
            lam, beta = self.earlier
            found |= {"earlier": np.concatenate(([lam], beta.value)), "earlier_at": beta.position.astype(np.float64)}
        if self.dual_margins is not None:
            found["dual_margins"] = self.dual_margins
        if self.gram is not None:
            at, G = self.gram.position.astype(np.float64), self.gram.G.ravel()
            found |= {"gram": G, "gram_at": at, "gram_w": self.gram.w}
            if self.gram.sample is not None:
                example, weight = self.gram.sample
                found |= {"sample": weight, "sample_at": example.astype(np.float64)}
                found["drawn"] = np.array([self.gram.drawn])
        return found

    @classmethod
    def from_vectors(cls, found: StateVectors, *, n: int, coordinates: int, support: int) -> SearchState:
        """StateMismatch where vectors are missing, or do not fit the problem."""
        read = _Reader(found, coordinates)
        budget, threads, exceeded_budget = read.counts("settings", 3).tolist()
        if not 1 <= threads <= STORE.max_threads:
            raise StateMismatch(f"settings must have 1 to {STORE.max_threads} threads")
        return cls(
            budget,
            threads,
            bool(exceeded_budget),
            read.counts("support_bytes", support),
            read.positions("stored"),
            read.earlier(),
            read.floats("dual_margins", n) if "dual_margins" in found else None,
            read.gram(n),
        )


@dataclass(frozen=True)
class _Reader:
    """Vectors that may be anything, and what they must be."""

    found: Mapping[str, Float64]
    coordinates: int

    def floats(self, name: str, size: int | None = None) -> Float64:
        vector = self.found.get(name)
        if vector is None or not np.isfinite(vector).all() or size not in (None, vector.size):
            raise StateMismatch(f"{name} must have {'some' if size is None else size} finite numbers")
        return vector

    def counts(self, name: str, size: int | None = None) -> Int64:
        vector = self.floats(name, size)
        if (vector < 0).any() or (vector >= 2**53).any() or (vector != np.floor(vector)).any():
            raise StateMismatch(f"{name} must have whole numbers of at least 0")
        return vector.astype(np.int64)

    def positions(self, name: str) -> Int64:
        return self.rising(name, self.coordinates)

    def rising(self, name: str, below: int) -> Int64:
        vector = self.counts(name)
        if (np.diff(vector) <= 0).any() or (vector >= below).any():
            raise StateMismatch(f"{name} must rise and stay below {below}")
        return vector

    def earlier(self) -> tuple[float, Coefficients] | None:
        if "earlier" not in self.found:
            return None
        at = self.positions("earlier_at")
        vector = self.floats("earlier", at.size + 1)
        return float(vector[0]), Coefficients(at, vector[1:])

    def gram(self, n: int) -> Gram | None:
        if "gram" not in self.found:
            return None
        at, w = self.positions("gram_at"), self.floats("gram_w", n)
        gram = Gram(at, self.floats("gram", at.size**2).reshape(at.size, at.size), w)
        if "sample" not in self.found:
            return gram
        example = self.rising("sample_at", n)
        sample = Rows(example, self.floats("sample", example.size))
        drawn = float(self.floats("drawn", 1)[0])
        if drawn <= 0.0 or (sample.weight <= 0.0).any():
            raise StateMismatch("a sample and its weights must be above 0")
        return replace(gram, sample=sample, drawn=drawn)
