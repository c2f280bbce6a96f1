"""Compute the regularisation path of a data set on a cluster, and store it as it goes (Algorithm 5 on Dask)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from distributed import Client

from pipeline.blocks import DaskBlocks
from pipeline.choice import Bic
from pipeline.class_weights import weights_of_classes
from pipeline.cluster import ClusterOptions, open_client
from pipeline.events import Watcher
from pipeline.factors import fingerprint, in_order
from pipeline.fit_options import DEFAULT, RESIDENCIES, PathOptions
from pipeline.placement import check_driver, list_workers, make_groups
from pipeline.resident import ExampleOptions
from pipeline.rows import DaskRows
from pipeline.run import PATH_OPTIONS, Run, open_run
from pipeline.run_record import RunRecord, plain_options, spent
from pipeline.stored import LARGEST_LAMBDA, RUN_JSON, STATE, WITHOUT_STATE
from solver import (
    Algorithm,
    Coefficients,
    Examples,
    NullModel,
    PathStart,
    Problem,
    ProblemOptions,
    RoundRecord,
    algorithm_of,
    falling,
    find_algorithm,
    make_problem,
    null_model,
    solve_path,
)
from solver.arrays import Int64
from solver.compiling import COMPILING, working_seconds
from solver.free import NoMinimum
from solver.losses import find_loss
from solver.path import StateMismatch
from solver.rows import check_problem, cut_examples, make_problem_by_example
from transforms import Dataset, UserError, open_dataset
from transforms.storage import StorageOptions

LONGEST_PATH = 10**6  # λ that run.json may ask for
SAME_LAMBDA = 1e-9  # how far apart, relatively, two λ are when they are one


@dataclass(frozen=True)
class Fit:
    """What a fit is asked for: by which algorithm, for which problem, at which λ. Equal values make equal models."""

    algorithm: Algorithm
    options: Any  # the algorithm's own
    problem: ProblemOptions
    factors: Mapping[int, float] | None  # of the penalty, by feature id
    path: PathOptions | None  # None: those that a run was begun with
    blocks: int | None

    @classmethod
    def of(
        cls,
        algorithm: str | None,
        options: Any,
        problem: ProblemOptions | None,
        factors: Mapping[int, float] | None,
        path: PathOptions | None,
        blocks: int | None,
    ) -> Fit:
        try:
            chosen = find_algorithm(algorithm or DEFAULT) if algorithm or options is None else algorithm_of(options)
        except ValueError as error:
            raise UserError(str(error)) from None
        options = chosen.Options() if options is None else options
        if not isinstance(options, chosen.Options):
            takes = chosen.Options.__name__
            raise UserError(f"algorithm {chosen.NAME!r} takes {takes}, got {type(options).__name__}")
        problem = problem or ProblemOptions()
        problem = replace(problem, intercept=chosen.INTERCEPT if problem.intercept is None else problem.intercept)
        return cls(chosen, options, problem, factors, path, blocks)

    @property
    def by_example(self) -> bool:
        return self.algorithm.NEEDS == "rows"

    def recorded(self) -> dict[str, Any]:
        """The options of run.json."""
        chosen = {"algorithm": self.algorithm.NAME, "blocks": self.blocks} | asdict(self.options)
        chosen.pop("threads", None)  # how many cores work on it is no part of what is fitted
        chosen |= asdict(self.problem) | {"penalty_factors": fingerprint(self.factors)}
        return chosen | {f"path_{name}": value for name, value in asdict(self.path or PathOptions()).items()}


def fit_path(
    dataset: str | Dataset,
    output: str,
    *,
    algorithm: str | None = None,
    options: Any = None,
    problem: ProblemOptions | None = None,
    penalty_factors: Mapping[int, float] | None = None,
    path: PathOptions | None = None,
    blocks: int | None = None,
    residency: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    client: Client | None = None,
    storage_options: dict[str, Any] | None = None,
    watcher: Watcher | None = None,
    seconds: dict[str, float] | None = None,
) -> Run:
    """Fit the whole path, and store it in the run folder `output`.

    algorithm: "default", subspace search with a certificate, run with DefaultOptions; or "paper", d-GLMNET exactly as
    published, run with SolverOptions; or "truncated-gradient", the online learner that the paper compares it with, run
    with TruncatedGradientOptions. Without it, the one whose options are given.
    problem: loss, penalty, intercept. penalty_factors: for feature ids, what their penalty is multiplied by; 0 leaves a
    feature unpenalised, infinity excludes it.
    client: a Dask client; by default the current one, or else an in-process cluster for the time of the call.
    blocks: M of the paper; by default one for each thread of the cluster. By example, the parts of the examples.
    residency: keep columns in the workers' memory, or stream them from Parquet in each round; auto chooses memory where
    it suffices.
    path: which λ; by default a grid of twenty, or those that a run which is resumed was begun with.
    resume: continue what was cut off. A run that is asked for λ that it does not have gets these; what is done stays.
    seconds: how long stages before this one took, for run.json, which gets the fit's own beside them.
    """
    started, compiled = working_seconds(), COMPILING.seconds
    storage = StorageOptions(storage_options or {})
    opened = open_dataset(dataset, storage) if isinstance(dataset, str) else dataset
    asked, watcher = Fit.of(algorithm, options, problem, penalty_factors, path, blocks), watcher or Watcher()
    _check(opened, asked, residency, resume, overwrite)
    how = ExampleOptions(asked.problem.loss, weights_of_classes(asked.problem.class_weight, opened))
    record = RunRecord.begin(opened, asked.recorded(), seconds or {})
    with ExitStack() as stack:
        run = open_run(output, record, storage, resume=resume, overwrite=overwrite)
        stack.callback(run.release)
        if run.record.complete and not run.missing(_planned(run, asked.path, run.record.lambda_max)):
            return run
        if client is None:
            client = _current_client() or stack.enter_context(open_client(ClusterOptions()))
        started -= sum(row["seconds"] for row in run.path)  # those of a run that was cut off
        check_driver(opened)
        hold: Callable[..., Held] = _hold_rows if asked.by_example else _hold_blocks
        resident, dealt = hold(run, client, opened, asked, residency, how, watcher)
        stack.callback(resident.close)
        run.settle(**dealt)
        _solve(run, resident, opened, how, asked, watcher)
        run.finish(spent(run.record.seconds, "fit", working_seconds() - started, COMPILING.seconds - compiled))
    return run


# What lives on workers, and how it was dealt out, for run.json.
Held: TypeAlias = tuple[DaskBlocks | DaskRows, dict[str, Any]]


def _hold_blocks(
    run: Run, client: Client, dataset: Dataset, asked: Fit, residency: str, how: ExampleOptions, watcher: Watcher
) -> Held:
    """Columns on workers. A path is taken up with the blocks it was begun with, whatever the cluster looks like now."""
    workers = list_workers(client)
    groups = run.record.blocks or make_groups(len(dataset.partitions), asked.blocks, workers)
    resident = DaskBlocks(client, dataset, groups, residency, how, workers, on_placed=watcher.placed)
    return resident, {"blocks": groups}


def _hold_rows(
    run: Run, client: Client, dataset: Dataset, asked: Fit, residency: str, how: ExampleOptions, watcher: Watcher
) -> Held:
    """Examples on workers, in the parts that the run was begun with: by default one for each thread of the cluster."""
    workers = list_workers(client)
    parts = asked.blocks or min(sum(worker.threads for worker in workers), dataset.n)
    cuts = run.record.example_cuts or cut_examples(dataset.n, parts)
    resident = DaskRows(client, dataset, cuts, how, workers)
    return resident, {"example_cuts": cuts}


def _pose(
    resident: DaskBlocks | DaskRows, examples: Examples, asked: Fit, features: Int64
) -> tuple[Problem, NullModel]:
    """The problem, and its model at λmax."""
    if isinstance(resident, DaskRows):
        return make_problem_by_example(resident, examples)
    factors = in_order(asked.factors, features)
    problem = make_problem(resident, examples, asked.problem, factors=factors)
    return problem, null_model(resident, problem)


def _solve(
    run: Run, blocks: DaskBlocks | DaskRows, dataset: Dataset, how: ExampleOptions, asked: Fit, watcher: Watcher
) -> None:
    """Algorithm 5, each λ stored when it is done."""
    features = blocks.features()
    try:
        problem, null = _pose(blocks, how.examples(dataset), asked, features)
    except (ValueError, NoMinimum) as error:
        raise UserError(f"{dataset.name}: {error}") from None
    bic = Bic(problem)
    largest = run.record.lambda_max or null.lambda_max
    lambdas = _planned(run, asked.path, largest)
    gaps = run.missing(lambdas)
    between = bool(gaps[:-1] or (gaps and gaps[0][0] < run.done))
    if between and asked.by_example:
        raise UserError(
            f"{run.url}: its passes are named by the place of their λ: only λ below those can be added to it"
        )
    chosen = {name: value for name, value in asked.recorded().items() if name in PATH_OPTIONS and asked.path}
    run.settle(
        complete=False, lambda_max=largest, lambdas=lambdas, options={**run.record.options, **plain_options(chosen)}
    )
    watcher.begin(lambdas, run.done, null.lambda_max)

    def on_round(record: RoundRecord) -> None:
        run.add_round(record)
        watcher.round(record)

    def on_pass(index: int, number: int, beta: Coefficients) -> None:
        if asked.options.save_every and number % asked.options.save_every == 0:
            run.add_pass(index, number, beta, features)

    run.betas(features, problem)  # weights of features that the data do not have are refused, also if no λ is missing
    if between:
        run.forget_state()
    for first, stop in gaps:
        start = PathStart(first, tuple(run.betas(features, problem)[:first]), run.state, run.state_done)
        # A state is stored where all λ above are done: a run that is cut off goes on from there.
        on_state = run.add_state if first == run.done else None
        hooks: dict[str, Any] = {"on_round": on_round, "on_state": on_state, "on_pass": on_pass}
        solutions = solve_path(blocks, problem, lambdas[:stop], asked.options, null=null, start=start, **hooks)
        try:
            for solution in solutions:
                run.add_solution(solution, features, bic.of(solution))
                watcher.solution(solution)
                if solution.lambda_index + 1 < len(lambdas):
                    blocks.rebalance()
        except StateMismatch as error:
            raise UserError(f"{run.url}/{STATE}: damaged ({error}): {WITHOUT_STATE}") from None


def _planned(run: Run, path: PathOptions | None, largest: float | None) -> list[float]:
    """All λ that the run is to have: those that it has, those that were planned, and those that are asked for now.

    A λ that differs from one of them by rounding is that one.
    """
    known = [*(row["lambda"] for row in run.path), *(run.record.lambdas or ())]
    if largest is None or (path is None and known):
        return falling(known) if known else []
    asked = _grid(_begun_with(run) if path is None else path, largest)
    more = [lam for lam in asked if not any(abs(lam - one) <= SAME_LAMBDA * one for one in known)]
    return falling([*known, *more])


def _begun_with(run: Run) -> PathOptions:
    """The λ that a run was begun with, by its run.json."""
    stored: dict[str, Any] = {
        name.removeprefix("path_"): tuple(value) if isinstance(value, list) else value
        for name, value in run.record.options.items()
        if name in PATH_OPTIONS
    }
    try:
        own = PathOptions(**stored)
        if not 1 <= own.length <= LONGEST_PATH:
            raise ValueError(f"path_length must be from 1 to {LONGEST_PATH}")
        own.grid(1.0)
    except (TypeError, ValueError) as error:
        raise UserError(f"{run.url}/{RUN_JSON}: damaged ({error}): start over with --overwrite") from None
    return own


def _grid(path: PathOptions, largest: float) -> list[float]:
    try:
        lambdas = path.grid(largest)
    except ValueError as error:
        raise UserError(str(error)) from None
    for lam in lambdas:
        if not 1 / LARGEST_LAMBDA < lam < LARGEST_LAMBDA:  # path.parquet would be taken for damaged
            raise UserError(f"λ must lie between {1 / LARGEST_LAMBDA:g} and {LARGEST_LAMBDA:g}, got {lam:g}")
    return lambdas


def _current_client() -> Client | None:
    try:
        return Client.current()
    except ValueError:
        return None


def _check(dataset: Dataset, asked: Fit, residency: str, resume: bool, overwrite: bool) -> None:
    """Refuse what cannot work before anything is begun."""
    if residency not in RESIDENCIES:
        raise UserError(f"residency must be one of {', '.join(RESIDENCIES)}, got {residency!r}")
    if resume and overwrite:
        raise UserError("resume and overwrite exclude each other: continue what is there, or start over")
    if asked.by_example:
        _check_by_example(dataset, asked, residency)
    elif asked.blocks is not None and not 1 <= asked.blocks <= len(dataset.partitions):
        raise UserError(
            f"blocks must lie in 1..{len(dataset.partitions)}, the number of partitions, got {asked.blocks}"
        )
    if dataset.numeric and find_loss(asked.problem.loss).LABELS != "number":
        raise UserError(
            f"{dataset.name}: its labels are numbers, but {asked.problem.loss} loss is for two classes: fit with "
            "--loss squared, or convert without --numeric-labels"
        )
    if dataset.nnz == 0:
        raise UserError(f"{dataset.name}: no feature has a nonzero, so there is nothing to learn from")
    if asked.path is not None:
        _grid(asked.path, 1.0)


def _check_by_example(dataset: Dataset, asked: Fit, residency: str) -> None:
    name = asked.algorithm.NAME
    if residency == "stream":
        raise UserError(f"algorithm {name!r} keeps examples in the workers' memory: --residency stream is for columns")
    try:
        check_problem(name, asked.problem, factored=asked.factors is not None)
        cut_examples(dataset.n, asked.blocks or 1)
    except ValueError as error:
        raise UserError(str(error)) from None
