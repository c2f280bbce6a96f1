"""LIBSVM text shaped like the data sets the paper used, for benchmarks without real data.

splice: like dna, one-hot nucleotides, values 1, n >> p. imdb: like webspam, power-law words, values 1, p >> n.
news20: the same with real values, rows of unit length.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np


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
