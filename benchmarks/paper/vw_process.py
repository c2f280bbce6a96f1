"""Vowpal Wabbit on one machine, in its own environment: it needs numpy and scipy, nothing of ours but benchmarks.text.

    python -m benchmarks.paper.vw_process FOLDER

FOLDER has rows.npz (X and y) and asked.json: a list of λ/n and the online learner's options. After each λ, NUMBER.npz:
the weights after each pass, and the seconds of all passes. Rows are turned into VW's cache once, outside the clock.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.text import write_vw


def options(folder: Path, features: int) -> str:
    bits = max(features.bit_length(), 10)
    return f"--quiet --noconstant --loss_function logistic -b {bits} --cache_file {folder / 'rows.cache'}"


def make_cache(folder: Path) -> int:
    """Turn rows.npz into VW's cache. Returns the number of features."""
    from vowpalwabbit import Workspace

    with np.load(folder / "rows.npz") as file:
        X = sp.csr_matrix((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
        labels = file["y"].astype(int)
    text = folder / "rows.vw"
    if not (folder / "rows.cache").exists():
        write_vw(text, X, labels)
        Workspace(f"{options(folder, X.shape[1])} -d {text}").finish()
        text.unlink()
    return int(X.shape[1])


def learn(folder: Path, features: int, asked: dict[str, Any]) -> dict[str, np.ndarray]:
    """The weights after each pass, end to end, and where each pass's begin; seconds of a run that saves none."""
    from vowpalwabbit import Workspace

    told = f"{options(folder, features)} --sgd -l {asked['learning_rate']!r} --decay_learning_rate {asked['decay']!r}"
    told += f" --power_t {asked['power_t']!r} --passes {asked['passes']} --holdout_off --l1 {asked['l1']!r}"
    wall, cpu = time.perf_counter(), time.process_time()
    Workspace(told).finish()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    positions, values = [], []
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "model"
        Workspace(f"{told} -f {model} --save_per_pass --predict_only_model").finish()
        for number in range(1, asked["passes"] + 1):
            readable = Path(scratch) / "weights.txt"
            Workspace(f"--quiet -t -i {model}.{number} --readable_model {readable}").finish()
            position, value = read_weights(readable)
            positions.append(position)
            values.append(value)
    starts = np.cumsum([0, *(one.size for one in positions)])
    return {
        "starts": starts,
        "positions": np.concatenate(positions),
        "values": np.concatenate(values),
        "seconds": np.array([wall, cpu]),
    }


def read_weights(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The lines `place:weight` of a readable model."""
    position, value = [], []
    for line in path.read_text().splitlines():
        place, _, weight = line.partition(":")
        if place.isdigit() and weight:
            position.append(int(place))
            value.append(float(weight.split()[0]))
    found, weights = np.array(position, np.int64), np.array(value)
    kept = np.flatnonzero(weights)
    return found[kept], weights[kept]


def main(folder: Path) -> None:
    features = make_cache(folder)
    for number, asked in enumerate(json.loads((folder / "asked.json").read_text())):
        np.savez(folder / "part.npz", **learn(folder, features, asked))  # type: ignore[arg-type]
        (folder / "part.npz").replace(folder / f"{number}.npz")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
