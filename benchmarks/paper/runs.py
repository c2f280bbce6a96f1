"""The runs of the experiment: d-GLMNET's paths, the online learner's grid, and the precautions on and off."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client

from benchmarks.paper.cpu import measure_cpu
from benchmarks.paper.data import Data, by_example
from benchmarks.paper.results import Rows, kept
from benchmarks.paper.settings import Pair, Setting
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
    RoundRecord,
    SolverOptions,
    ThreadBlocks,
    make_problem,
    solve_path,
)
from solver import TruncatedGradientOptions as Online
from solver.arrays import Coefficients
from solver.rows import cut_examples, make_problem_by_example

MODES: dict[str, Any] = {"paper": SolverOptions.paper(), "default": DefaultOptions()}
PAPER_BLOCKS = 16  # its servers
NEVER = 1e300  # a relative decrease that no step has
PRECAUTIONS = {
    "both": SolverOptions.paper(),
    "α = 1 first": SolverOptions.paper(back_tol=0.0),
    "back to α = 1": SolverOptions.paper(sufficient_decrease=NEVER),
    "none": SolverOptions.paper(sufficient_decrease=NEVER, back_tol=0.0),
}


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
        """The path of d-GLMNET in a mode, a row for each λ with its AUPRC."""
        run = self.folder / f"run-{mode}"
        rows = self._fit(run, MODES[mode])
        return kept(self.folder / f"path-{mode}.json", self.about(mode=mode), lambda: self._judged(run, rows))

    def _fit(self, run: Path, options: Any) -> Rows:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # rows say where the limit was hit
            return fit_path(
                self.data.train,
                str(run),
                options=options,
                problem=ProblemOptions(intercept=False),
                path=PathOptions(length=self.setting.lambdas),
                blocks=min(self.workers, len(self.data.train.partitions)),
                client=self.client,
                resume=run.exists(),
            ).path

    def _judged(self, run: Path, rows: Rows) -> Rows:
        model = PathModel.load(str(run))
        order = np.argsort(self.data.features)
        found = []
        for row in rows:
            ids, weights = model.coefficients(row["index"])
            place = order[np.searchsorted(self.data.features, ids, sorter=order)]
            rising = np.argsort(place)
            beta = Coefficients(place[rising], weights[rising])
            found.append({**row, "auprc": self.data.auprc(beta)})
        return found

    def lambdas(self) -> list[float]:
        return [row["lambda"] for row in self.path("paper")]

    def online(self, pairs: list[Pair]) -> dict[Pair, Rows]:
        """The grid of the online learner on all workers: for each pair, a row for each λ and pass."""
        lambdas, done = self.setting.online(self.lambdas()), {}
        how, workers = ExampleOptions(), list_workers(self.client)
        rows: DaskRows | None = None
        try:
            for pair in pairs:

                def work(pair: Pair = pair) -> Rows:
                    nonlocal rows
                    if rows is None:
                        cuts = cut_examples(self.data.train.n, self.workers)
                        rows = DaskRows(self.client, self.data.train, cuts, how, workers)
                    return self._learn(rows, how, pair, lambdas)

                about = self.about(pair=pair, lambdas=lambdas, passes=self.setting.passes)
                done[pair] = kept(self.folder / f"online-{pair[0]:g}-{pair[1]:g}.json", about, work)
        finally:
            if rows is not None:
                rows.close()
        return done

    def _learn(self, rows: DaskRows, how: ExampleOptions, pair: Pair, lambdas: list[float]) -> Rows:
        problem, null = make_problem_by_example(rows, how.examples(self.data.train))
        found: Rows = []

        def on_round(record: RoundRecord) -> None:
            found.append({"lambda": record.lam, "pass": record.round, "seconds": record.seconds})

        def on_pass(index: int, number: int, beta: Coefficients) -> None:
            found[-1] |= {"nonzeros": beta.position.size, "auprc": self.data.auprc(beta)}

        options = Online(pair[0], pair[1], passes=self.setting.passes)
        for _ in solve_path(rows, problem, lambdas, options, null=null, on_round=on_round, on_pass=on_pass):
            pass
        return found

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
