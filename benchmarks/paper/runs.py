"""The runs of the experiment: d-GLMNET's paths, the online learner's grid, and the precautions on and off."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client

from benchmarks.paper.cpu import PAPER_BLOCKS, measure_cpu
from benchmarks.paper.data import Data, by_example
from benchmarks.paper.results import Rows, kept
from benchmarks.paper.settings import Setting, Steps
from pipeline import PathModel, PathOptions, fit_path
from pipeline.placement import list_workers
from pipeline.resident import ExampleOptions
from pipeline.rows import DaskRows
from pipeline.run_record import DatasetIdentity
from solver import (
    ConvergenceWarning,
    DefaultOptions,
    Examples,
    ProblemOptions,
    SolverOptions,
    ThreadBlocks,
    make_problem,
    solve_path,
)
from solver.algorithms.truncated_gradient import learn_together
from solver.rows import cut_examples

MODES: dict[str, Any] = {"paper": SolverOptions.paper(), "default": DefaultOptions()}
NEVER = 1e300  # a relative decrease that no step has
PRECAUTIONS = {
    "both": SolverOptions.paper(),
    "α = 1 first": SolverOptions.paper(back_tol=0.0),
    "back to α = 1": SolverOptions.paper(sufficient_decrease=NEVER),
    "none": SolverOptions.paper(sufficient_decrease=NEVER, back_tol=0.0),
}


APART, FEW = 2.0, 10  # a jump to the right: from FEW nonzeros or more to over APART times as many
HIGHER = 0.05  # a jump upwards, of AUPRC
MORE = 4  # λ that are put into a jump


def on_grid(row: dict[str, Any]) -> bool:
    """Is λ of the paper's grid, and not one that was added?"""
    return float(row["halvings"]).is_integer()


def lambdas_between(grid: Rows) -> list[float]:
    """Further λ where points of a path are sparse, as the paper took four for dna: between neighbours of a jump.

    A curve that is a line between two distant points would be compared with online models that lie between them.
    """
    found: list[float] = []
    for above, below in pairwise(grid):
        few, many = sorted((above["nonzeros"], below["nonzeros"]))
        if (few >= FEW and many > APART * few) or abs(below["auprc"] - above["auprc"]) > HIGHER:
            found += np.geomspace(above["lambda"], below["lambda"], MORE + 2)[1:-1].tolist()
    return found


@dataclass(frozen=True)
class Bench:
    """A data set, a setting, and a cluster of `workers`: the M of the paper."""

    data: Data
    setting: Setting
    client: Client
    workers: int

    @property
    def folder(self) -> Path:
        return self.data.folder

    def about(self, **more: Any) -> dict[str, Any]:
        """What a file of results is about."""
        return {"data": DatasetIdentity.of(self.data.train).sha256, "workers": self.workers} | more

    def path(self, mode: str) -> Rows:
        """The path of d-GLMNET in a mode, a row for each λ with its AUPRC. halvings: log2 of λmax/λ."""
        run = self.folder / f"run-{mode}"
        extra = self._extra()
        rows, about = self._fit(run, MODES[mode], extra), self.about(mode=mode, extra=extra)
        return kept(self.folder / f"path-{mode}.json", about, lambda: self._judged(run, rows))

    def _extra(self) -> list[float]:
        """Further λ, where the path in paper mode jumps."""
        run = self.folder / "run-paper"
        rows = self._fit(run, MODES["paper"])

        def work() -> Rows:
            grid = [row for row in self._judged(run, rows) if on_grid(row)]
            return [{"lambda": lam} for lam in lambdas_between(grid)]

        return [row["lambda"] for row in kept(self.folder / "extra.json", self.about(apart=[APART, HIGHER]), work)]

    def _fit(self, run: Path, options: Any, extra: Sequence[float] = ()) -> Rows:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # rows say where the limit was hit
            done = fit_path(
                self.data.train,
                str(run),
                options=options,
                problem=ProblemOptions(intercept=False),
                path=PathOptions(length=self.setting.lambdas, extra=tuple(extra)),
                blocks=min(self.workers, len(self.data.train.partitions)),
                client=self.client,
                resume=run.exists(),
            )
        largest = done.record.lambda_max
        assert largest is not None, "it is known once a path is done"
        return [{**row, "halvings": round(math.log2(largest / row["lambda"]), 9)} for row in done.path]

    def _judged(self, run: Path, rows: Rows) -> Rows:
        model = PathModel.load(str(run))
        order = np.argsort(self.data.features)
        betas = np.zeros((self.data.features.size, len(rows)))
        for k, row in enumerate(rows):
            ids, weights = model.coefficients(row["index"])
            betas[order[np.searchsorted(self.data.features, ids, sorter=order)], k] = weights
        return [{**row, "auprc": auprc} for row, auprc in zip(rows, self.data.auprcs(betas), strict=True)]

    def lambdas(self) -> list[float]:
        """The grid, without what was added between."""
        return [row["lambda"] for row in self.path("paper") if on_grid(row)]

    def online(self, grid: list[Steps]) -> dict[Steps, Rows]:
        """The grid of the online learner on all workers: for each kind of steps, a row for each λ and pass."""
        lambdas, done = self.setting.online(self.lambdas()), {}
        how, workers = ExampleOptions(), list_workers(self.client)
        rows: DaskRows | None = None
        try:
            for steps in grid:

                def work(steps: Steps = steps) -> Rows:
                    nonlocal rows
                    if rows is None:
                        cuts = cut_examples(self.data.train.n, self.workers)
                        rows = DaskRows(self.client, self.data.train, cuts, how, workers)
                    return self._learn(rows, steps, lambdas)

                about = self.about(steps=steps, lambdas=lambdas, passes=self.setting.passes)
                done[steps] = kept(self.folder / f"online-{steps.name}.json", about, work)
        finally:
            if rows is not None:
                rows.close()
        return done

    def _learn(self, rows: DaskRows, steps: Steps, lambdas: list[float]) -> Rows:
        """All λ in the same passes over the examples."""
        found: list[Rows] = [[] for _ in lambdas]
        for number, betas in enumerate(learn_together(rows, lambdas, steps.options(self.setting.passes)), 1):
            counts, quality = np.count_nonzero(betas, axis=0).tolist(), self.data.auprcs(betas)
            for k, lam in enumerate(lambdas):
                found[k].append({"lambda": lam, "pass": number, "nonzeros": counts[k], "auprc": quality[k]})
        return [row for models in found for row in models]

    def cpu(self) -> Rows:
        """CPU seconds of the paths, of a pass of the online learner, and of the transposition."""
        lambdas = self.lambdas()

        def work() -> Rows:
            return measure_cpu(self.data, MODES, lambdas, self.workers, self.client)

        return kept(self.folder / "cpu.json", self.about(lambdas=lambdas), work)

    def precautions(self) -> dict[str, Rows]:
        """Nonzeros of paper mode with each precaution of the line search on and off, on as many blocks as the paper."""
        blocks, lambdas = min(PAPER_BLOCKS, self.data.train.p), self.lambdas()
        about = {"data": DatasetIdentity.of(self.data.train).sha256, "blocks": blocks, "lambdas": lambdas}

        def work(options: SolverOptions) -> Rows:
            examples, X = Examples.of(self.data.train.labels()[0]), by_example(self.data.train).tocsc()
            with warnings.catch_warnings(), ThreadBlocks.from_csc(X, examples, blocks, threads=self.workers) as parts:
                warnings.simplefilter("ignore", ConvergenceWarning)
                problem = make_problem(parts, examples, ProblemOptions(intercept=False))
                solutions = solve_path(parts, problem, lambdas, options)
                return [{"lambda": one.lam, "nonzeros": one.nonzeros, "rounds": one.rounds} for one in solutions]

        return {
            name: kept(self.folder / f"precautions-{k}.json", about | {"on": name}, partial(work, options))
            for k, (name, options) in enumerate(PRECAUTIONS.items())
        }
