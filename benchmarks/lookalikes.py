"""Data shaped like the sets the paper used, for benchmarks without real data.

As LIBSVM text, for readers. splice: like dna, one-hot nucleotides, values 1, n >> p. imdb: like webspam, power-law
words, values 1, p >> n. news20: the same with real values, rows of unit length. Their labels are noise.

As arrays, for solvers, with labels that follow a sparse model. epsilon: dense, correlated columns, rows of unit length.
webspam: power-law words with real values, p >> n. dna: one-hot nucleotides, n >> p, few positives. Other shapes, which
nothing was tuned for: few: 200 dense rows of 10,000 features, like gene expression. text: 4,000 documents of words.
letters: 13,000 rows of one-hot letters. collinear: 500,000 rows of 120 features that share ten factors.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp


def write_lookalike(name: str, path: Path, scale: float = 1.0) -> None:
    """Write the look-alike of `name` ("splice", "imdb", "news20"), `scale` times its usual number of rows."""
    rng = np.random.default_rng(3)
    with path.open("w") as file:
        if name == "splice":
            for _ in range(int(100_000 * scale)):
                ids = 4 * np.arange(200) + rng.integers(0, 4, 200) + 1
                file.write(f"{_label(rng, 0.04)} {' '.join(f'{i}:1' for i in ids.tolist())}\n")
            return
        rows, features, length = (25_000, 2_000_000, 360) if name == "imdb" else (11_000, 1_500_000, 440)
        for _ in range(int(rows * scale)):
            # A density of 1/x: each octave of ids is as frequent as the next, as words roughly are.
            ids = np.unique(np.exp(rng.random(rng.integers(length // 2, 2 * length)) * np.log(features)).astype(int))
            values = np.ones(ids.size) if name == "imdb" else (1 + np.log(rng.geometric(0.7, ids.size)))
            values = values if name == "imdb" else values / np.linalg.norm(values)
            pairs = " ".join(f"{i}:{v:.6g}" for i, v in zip(ids.tolist(), values.tolist(), strict=True))
            file.write(f"{_label(rng, 0.5)} {pairs}\n")


def _label(rng: np.random.Generator, share: float) -> str:
    return "+1" if rng.random() < share else "-1"


def find_or_make(name: str, data: Path | None, scratch: Path) -> Path:
    """The training text of a data set: from a folder of real ones (NAME.train.svm) if given, else a look-alike."""
    if data is not None:
        return data / f"{name}.train.svm"
    path = scratch / f"{name}.lookalike.svm"
    if not path.exists():
        write_lookalike(name, path)
    return path


ARRAYS = ("epsilon", "webspam", "dna", "few", "text", "letters", "collinear")


def make_arrays(
    name: str, scale: float = 1.0, rng: np.random.Generator | None = None
) -> tuple[sp.csr_matrix, np.ndarray]:
    """X, rows of float32, and y, −1 or +1, of the look-alike of `name`, with `scale` times its usual number of rows.

    The same at every call, unless it is drawn by a generator given.
    """
    rng = np.random.default_rng(7) if rng is None else rng
    made = (_epsilon, _webspam, _dna, _few, _text, _letters, _collinear)[ARRAYS.index(name)]
    X, y = made(rng, scale)
    X.sort_indices()  # which products leave in any order, and some readers of text insist on
    return X, y


def _epsilon(rng: np.random.Generator, scale: float) -> tuple[sp.csr_matrix, np.ndarray]:
    n, p, factors = int(20_000 * scale), 2_000, 40
    shared = rng.normal(size=(n, factors)) @ rng.normal(size=(factors, p)) / np.sqrt(factors)
    X = (0.6 * shared + 0.8 * rng.normal(size=(n, p))).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return sp.csr_matrix(X), _labels(rng, X @ _weights(rng, p, 200), spread=2.0)


def _webspam(rng: np.random.Generator, scale: float) -> tuple[sp.csr_matrix, np.ndarray]:
    return _words(rng, int(20_000 * scale), 500_000, 300)


def _text(rng: np.random.Generator, scale: float) -> tuple[sp.csr_matrix, np.ndarray]:
    return _words(rng, int(4_000 * scale), 60_000, 150)


def _words(rng: np.random.Generator, n: int, p: int, length: int) -> tuple[sp.csr_matrix, np.ndarray]:
    # A density of 1/x: each octave of ids is as frequent as the next, as words roughly are.
    counts = rng.integers(length // 2, 3 * length // 2, n)
    ids = np.exp(rng.random(int(counts.sum())) * np.log(p)).astype(np.int64) - 1
    rows = np.repeat(np.arange(n), counts)
    X = sp.csr_matrix((np.ones(ids.size, np.float32), (rows, ids)), shape=(n, p))
    X.sum_duplicates()
    X.data = 1.0 + np.log(X.data)
    norms = np.sqrt(np.bincount(np.repeat(np.arange(n), np.diff(X.indptr)), X.data.astype(np.float64) ** 2, n))
    X = sp.csr_matrix(sp.diags_array(1.0 / norms) @ X, dtype=np.float32)
    return X, _labels(rng, X @ _weights(rng, p, 2_000, among=20_000), spread=3.0)


def _dna(rng: np.random.Generator, scale: float) -> tuple[sp.csr_matrix, np.ndarray]:
    return _one_hot(rng, int(100_000 * scale), positive=0.05)


def _letters(rng: np.random.Generator, scale: float) -> tuple[sp.csr_matrix, np.ndarray]:
    return _one_hot(rng, int(13_000 * scale), positive=0.3)


def _one_hot(rng: np.random.Generator, n: int, positive: float) -> tuple[sp.csr_matrix, np.ndarray]:
    places = 200
    ids = 4 * np.arange(places) + rng.integers(0, 4, (n, places))
    indptr = np.arange(0, n * places + 1, places)
    X = sp.csr_matrix((np.ones(n * places, np.float32), ids.ravel(), indptr), shape=(n, 4 * places))
    return X, _labels(rng, X @ _weights(rng, 4 * places, 100), spread=1.5, positive=positive)


def _few(rng: np.random.Generator, scale: float) -> tuple[sp.csr_matrix, np.ndarray]:
    return _factors(rng, int(200 * scale), 10_000, factors=20, own=1.0, used=50)


def _collinear(rng: np.random.Generator, scale: float) -> tuple[sp.csr_matrix, np.ndarray]:
    return _factors(rng, int(500_000 * scale), 120, factors=10, own=0.3, used=30)


def _factors(
    rng: np.random.Generator, n: int, p: int, factors: int, own: float, used: int
) -> tuple[sp.csr_matrix, np.ndarray]:
    """Dense columns that share factors; `own` is the deviation of what each has for itself."""
    shared = rng.normal(size=(n, factors)) @ rng.normal(size=(factors, p)) / np.sqrt(factors)
    X = (shared + own * rng.normal(size=(n, p))).astype(np.float32)
    return sp.csr_matrix(X), _labels(rng, X @ _weights(rng, p, used), spread=2.0)


def _weights(rng: np.random.Generator, p: int, used: int, among: int | None = None) -> np.ndarray:
    """A model with `used` weights, all among the first `among` features, which are the frequent ones."""
    weights = np.zeros(p)
    weights[rng.choice(among or p, used, replace=False)] = rng.normal(size=used)
    return weights


def _labels(rng: np.random.Generator, margins: np.ndarray, spread: float, positive: float = 0.5) -> np.ndarray:
    """Labels drawn by the logistic model, its margins scaled to a deviation of `spread` and shifted."""
    scaled = spread * (margins - margins.mean()) / margins.std()
    shift = np.quantile(scaled, 1.0 - positive)
    return np.where(rng.random(margins.size) < 1.0 / (1.0 + np.exp(shift - scaled)), 1.0, -1.0)
