"""Compute the regularisation path of a data set on a cluster, and store it as it goes (Algorithm 5 on Dask)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Protocol

from distributed import Client

from pipeline.blocks import DaskBlocks, Placement, list_workers, make_groups, place
from pipeline.cluster import ClusterOptions, open_client
from pipeline.run import Run, open_run
from pipeline.run_record import RunRecord
from solver import (
    DefaultOptions,
    Examples,
    RoundRecord,
    Solution,
    SolverOptions,
    certified_path,
    falling,
    lambda_grid,
    lambda_max,
    solve_path,
)
from transforms import Dataset, UserError, open_dataset
from transforms.storage import StorageOptions

RESIDENCIES = ("auto", "memory", "stream")
ALGORITHMS: dict[str, type[SolverOptions] | type[DefaultOptions]] = {
    "default": DefaultOptions,
    "paper": SolverOptions,
}


class FitWatcher(Protocol):
    """Who is told how a fit goes."""

    def placed(self, placements: Sequence[Placement]) -> None:
        """Where the blocks are, and how."""

    def begin(self, lambdas: Sequence[float], done: int, largest: float) -> None:
        """The path to compute, and how much of it is done already."""

    def round(self, record: RoundRecord) -> None:
        """A round is over."""

    def solution(self, solution: Solution) -> None:
        """A λ is done and stored."""


class NoWatcher:
    """Nobody watches."""

    def placed(self, placements: Sequence[Placement]) -> None:
        pass

    def begin(self, lambdas: Sequence[float], done: int, largest: float) -> None:
        pass

    def round(self, record: RoundRecord) -> None:
        pass

    def solution(self, solution: Solution) -> None:
        pass


@dataclass(frozen=True)
class PathOptions:
    """Which λ to solve for: a grid down from λmax, or an explicit list."""

    length: int = 20
    ratio: float = 0.5
    lambdas: tuple[float, ...] | None = None
    extra: tuple[float, ...] = ()

    def grid(self, largest: float) -> list[float]:
        if self.lambdas is not None:
            return falling([*self.lambdas, *self.extra])
        return lambda_grid(largest, self.length, self.ratio, self.extra)


def fit_path(
    dataset: str | Dataset,
    output: str,
    *,
    algorithm: str | None = None,
    options: SolverOptions | DefaultOptions | None = None,
    path: PathOptions | None = None,
    blocks: int | None = None,
    residency: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    client: Client | None = None,
    storage_options: dict[str, Any] | None = None,
    watcher: FitWatcher | None = None,
    seconds: dict[str, float] | None = None,
) -> Run:
    """Fit the whole path, and store it in the run folder `output`.

    algorithm: "default", subspace search with a certificate, run with DefaultOptions; or "paper", d-GLMNET exactly as
    published, run with SolverOptions. Without it, the one whose options are given.
    client: a Dask client; by default the current one, or else an in-process cluster for the time of the call.
    blocks: M of the paper; by default one for each thread of the cluster.
    residency: keep columns in the workers' memory, or stream them from Parquet in each round; auto chooses memory where
    it suffices.
    seconds: how long stages before this one took, for run.json, which gets the fit's own beside them.
    """
    started = perf_counter()
    storage = StorageOptions(storage_options or {})
    opened = open_dataset(dataset, storage) if isinstance(dataset, str) else dataset
    if algorithm is None:
        algorithm = "paper" if isinstance(options, SolverOptions) else "default"
    options = _options(algorithm, options)
    path, watcher = path or PathOptions(), watcher or NoWatcher()
    _check(opened, path, residency, resume, overwrite, blocks)
    record = RunRecord.begin(opened, _chosen(algorithm, options, path, blocks), seconds or {})
    with ExitStack() as stack:
        run = open_run(output, record, storage, resume=resume, overwrite=overwrite)
        stack.callback(run.release)
        if run.record.complete:
            return run
        if client is None:
            client = _current_client() or stack.enter_context(open_client(ClusterOptions()))
        started -= sum(row["seconds"] for row in run.path)  # those of a run that was cut off
        workers = list_workers(client)
        # A path is taken up with the blocks it was begun with, whatever the cluster looks like now.
        groups = run.record.blocks or make_groups(len(opened.partitions), blocks, workers)
        placements = place(opened, groups, workers, residency)
        watcher.placed(placements)
        resident = stack.enter_context(DaskBlocks(client, opened, placements))
        run.settle(blocks=groups)
        _solve(run, resident, opened, options, path, watcher)
        run.settle(complete=True, seconds=dict(run.record.seconds) | {"fit": perf_counter() - started})
    return run


def _solve(
    run: Run,
    blocks: DaskBlocks,
    dataset: Dataset,
    options: SolverOptions | DefaultOptions,
    path: PathOptions,
    watcher: FitWatcher,
) -> None:
    """Algorithm 5, each λ stored when it is done."""
    examples = Examples.of(*dataset.labels())
    features = blocks.features()
    largest = lambda_max(blocks, examples)
    lambdas = _grid(path, largest)
    run.settle(lambda_max=largest, lambdas=lambdas)
    watcher.begin(lambdas, run.done, largest)

    def on_round(record: RoundRecord) -> None:
        run.add_round(record)
        watcher.round(record)

    beta, before = run.last_beta(features), run.last_beta(features, back=2)
    solutions: Iterator[Solution]
    if isinstance(options, DefaultOptions):
        solutions = certified_path(
            blocks,
            examples,
            lambdas,
            options,
            largest=largest,
            done=run.done,
            beta=beta,
            before=before,
            on_round=on_round,
        )
    else:
        solutions = solve_path(
            blocks, examples, lambdas, options, largest=largest, done=run.done, beta=beta, on_round=on_round
        )
    for solution in solutions:
        run.add_solution(solution, features)
        watcher.solution(solution)


def _options(algorithm: str, options: SolverOptions | DefaultOptions | None) -> SolverOptions | DefaultOptions:
    """The options given, or the algorithm's own."""
    if algorithm not in ALGORITHMS:
        raise UserError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    kind = ALGORITHMS[algorithm]
    if options is None:
        return kind()
    if not isinstance(options, kind):
        raise UserError(f"algorithm {algorithm!r} takes {kind.__name__}, got {type(options).__name__}")
    return options


def _grid(path: PathOptions, largest: float) -> list[float]:
    try:
        return path.grid(largest)
    except ValueError as error:
        raise UserError(str(error)) from None


def _current_client() -> Client | None:
    try:
        return Client.current()
    except ValueError:
        return None


def _check(
    dataset: Dataset, path: PathOptions, residency: str, resume: bool, overwrite: bool, blocks: int | None
) -> None:
    """Refuse what cannot work before anything is begun."""
    if residency not in RESIDENCIES:
        raise UserError(f"residency must be one of {', '.join(RESIDENCIES)}, got {residency!r}")
    if resume and overwrite:
        raise UserError("resume and overwrite exclude each other: continue what is there, or start over")
    if blocks is not None and not 1 <= blocks <= len(dataset.partitions):
        raise UserError(f"blocks must lie in 1..{len(dataset.partitions)}, the number of partitions, got {blocks}")
    if dataset.nnz == 0:
        raise UserError(f"{dataset.name}: no feature has a nonzero, so there is nothing to learn from")
    _grid(path, 1.0)


def _chosen(
    algorithm: str, options: SolverOptions | DefaultOptions, path: PathOptions, blocks: int | None
) -> dict[str, Any]:
    """The options of run.json."""
    chosen = {"algorithm": algorithm, "blocks": blocks} | asdict(options)
    return chosen | {f"path_{name}": value for name, value in asdict(path).items()}
