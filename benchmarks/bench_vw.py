"""Vowpal Wabbit: stochastic gradient steps with truncation, more and more passes, every λ from a cold start."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.measure import Peer, Rung, run
from benchmarks.problem import Problem
from benchmarks.text import write_vw


@dataclass
class Ready:
    """Rows in VW's own cache file. A feature's id is its place in the table of weights: none share one."""

    features: int
    n: int
    folder: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)

    @property
    def cache(self) -> Path:
        return Path(self.folder.name) / "rows.cache"

    @property
    def options(self) -> str:
        bits = max(self.features.bit_length(), 10)
        return f"--quiet --noconstant --loss_function logistic -b {bits} --cache_file {self.cache}"


def prepare(problem: Problem) -> Ready:
    from vowpalwabbit import Workspace

    data = Ready(problem.X.shape[1], problem.n)
    text = Path(data.folder.name) / "rows.vw"
    write_vw(text, problem.X, problem.y.astype(int))
    Workspace(f"{data.options} -d {text}").finish()
    text.unlink()
    return data


def path(data: Ready, lambdas: Sequence[float], rung: Rung) -> Iterator[np.ndarray]:
    from vowpalwabbit import Workspace

    weights = Path(data.folder.name) / "weights.txt"
    for lam in lambdas:
        # Plain steps: its adaptive ones shrink, what the penalty takes off does not, and all weights end at zero.
        # Holding out examples would make the sum of losses another one; a model to resume from has untruncated weights.
        steps = f"--sgd -l {rung['rate']!r} --passes {rung['passes']} --holdout_off"
        model = f"--predict_only_model --readable_model {weights}"
        Workspace(f"{data.options} {steps} --l1 {lam / data.n!r} {model}").finish()
        yield _read(weights, data.features)


def _read(path: Path, features: int) -> np.ndarray:
    """The weights, of the lines `place:weight` that end the file."""
    beta = np.zeros(features)
    for line in path.read_text().splitlines():
        place, _, weight = line.partition(":")
        if place.isdigit() and weight:
            beta[int(place)] = float(weight.split()[0])
    return beta


PEER = Peer(
    name="vw",
    label="Vowpal Wabbit",
    package="vowpalwabbit",
    requirements=("vowpalwabbit==9.11.9",),
    prepare=prepare,
    path=path,
    ladder=[{"passes": count, "rate": rate} for count in (1, 10, 100) for rate in (10.0, 1.0, 0.1)],
)

if __name__ == "__main__":
    run(PEER)
