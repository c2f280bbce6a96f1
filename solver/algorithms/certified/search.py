"""The certified mode: subspace search over a working set, and sweeps over all features that prove what was reached.

For each λ
    1. Choose the working set: features with coefficients, and features whose slopes come near their threshold.
    2. Load their columns into the driver's store and minimise f over them (subspace.py). Where that takes less
       time, the blocks do the passes (sharing.py).
    3. Sweep at the new margins: the slope of every feature that can matter. The largest gives the duality gap.
    4. Stop if the certificate is met. Otherwise features that violate |∂L/∂βⱼ| ≤ λ join, and step 2 follows.
A round is a sweep: one pass over the data. A λ far below the last one would have a first working set of nearly all
features. It is reached over stepping stones: steps 1 to 3 at intermediate λ, solved roughly. When the store's budget
does not hold the working set, rounds split by feature (split.py) continue from the current β until the certificate is
met.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import psutil
from numpy.typing import NDArray

from solver.algorithms.certified.certificate import Certificate, warn_unless_met
from solver.algorithms.certified.sharing import SharedStore
from solver.algorithms.certified.split import Iterate, SplitRounds
from solver.algorithms.certified.state import SearchState
from solver.algorithms.certified.subspace import Subspace
from solver.algorithms.certified.tuning import ACCURACY, ESTIMATE, ROUNDING, STEPPING_STONES, WORKING_SET
from solver.arrays import Coefficients, Float64, Int64
from solver.block import Sweep
from solver.blocks import Blocks
from solver.options import DefaultOptions
from solver.path import OnState, PathStart, StateMismatch, StateVectors
from solver.problem import Problem
from solver.records import Log, OnRound, Solution, Stop
from solver.start import NullModel, free_coordinates, restart, split_intercept
from solver.stretches import Part
from solver.threads import Threads

logger = logging.getLogger("dglmnet")


def solve_path(
    blocks: Blocks,
    problem: Problem,
    lambdas: Sequence[float],
    options: DefaultOptions,
    null: NullModel,
    start: PathStart,
    on_round: OnRound | None = None,
    on_state: OnState | None = None,
) -> Iterator[Solution]:
    """Solve each λ, warm-started at the solution of the one before.

    A path that is taken up with a state goes back to it, solves the λ that are done since then again without reporting
    them, and ends with the same bits as if it had never been cut; within the tolerance where blocks share the search.
    Without one it has no slopes and no Gram matrices
    yet: it takes one more sweep, and its models may differ within the tolerance.
    """
    search, first = _take_up(blocks, problem, lambdas, options, null, start)
    for k in range(first, len(lambdas)):
        is_done = k < start.done
        if lambdas[k] >= null.lambda_max:
            solution = null.solution(problem, lambdas[k], k)
        else:
            solution = search.solve(lambdas[k], lambda_index=k, on_round=None if is_done else on_round)
        if is_done:
            continue
        yield solution
        if on_state is not None and lambdas[k] < null.lambda_max and k + 1 < len(lambdas):
            on_state(k + 1, search.state)


def _take_up(
    blocks: Blocks,
    problem: Problem,
    lambdas: Sequence[float],
    options: DefaultOptions,
    null: NullModel,
    start: PathStart,
) -> tuple[CertifiedSearch, int]:
    """The search as it was at the state, or at the last solution, and the λ with which it goes on."""
    done = start.done if start.state is None else start.state_done
    betas = start.betas[: max(len(start.betas) - (start.done - done), 0)]
    below = [(lambdas[k], beta) for k, beta in zip(range(done - len(betas), done), betas, strict=True) if k >= 0]
    solved = [(lam, beta) for lam, beta in below if lam < null.lambda_max][-2:]
    beta = start.beta(null) if start.done == 0 else null.beta
    if start.state is None:
        return CertifiedSearch(blocks, problem, options, beta, last_lambda=null.lambda_max, solved=solved), done
    if not solved:
        raise StateMismatch(f"it was taken after {done} λ, whose coefficients are not there")
    n, support = problem.examples.n, solved[-1][1].position.size
    state = SearchState.from_vectors(start.state, n=n, coordinates=problem.coordinates, support=support)
    if state.earlier is not None and state.earlier[0] <= solved[-1][0]:
        raise StateMismatch("the λ to extrapolate from must be above the last one")
    solved = [*([] if state.earlier is None else [state.earlier]), solved[-1]]
    before = (state.budget, state.threads)
    search = CertifiedSearch(blocks, problem, options, solved=solved, before=before)
    search.restore(state)
    return search, done


def _store_budget(options: DefaultOptions, blocks: Blocks, before: int | None) -> int:
    """Bytes of the store: what the options say, or a share of the free memory; of all, where columns are not copied.

    before: what it was before the path was cut. It stays, even at twice the share.
    """
    if options.subspace_memory is not None:
        return options.subspace_memory
    if blocks.shares_columns:
        return int(psutil.virtual_memory().total)
    share = int(WORKING_SET.memory_share * psutil.virtual_memory().available)
    return before if before is not None and before <= 2 * share else share


class CertifiedSearch:
    """The driver's side of a path: β and the store of columns.

    beta: where to begin. last_lambda: the λ that it solves; λmax when β = 0. With 0 there are no stepping stones.
    solved: λ and β of the last two λ, at most, which take the place of both.
    before: bytes of the store and number of threads before the path was cut. They stay unless options say otherwise.
    """

    def __init__(
        self,
        blocks: Blocks,
        problem: Problem,
        options: DefaultOptions,
        beta: Coefficients | None = None,
        *,
        last_lambda: float = 0.0,
        solved: Sequence[tuple[float, Coefficients]] = (),
        before: tuple[int, int] | None = None,
    ) -> None:
        problem = problem.on(Threads(options.threads))
        self._blocks, self._problem, self._options = blocks, problem, options
        self._free = free_coordinates(blocks, problem)
        self._last_solutions = list(solved)  # λ and β of the last two λ, at most
        begin = Coefficients.empty() if beta is None else beta
        self._last_lambda, self._beta = solved[-1] if solved else (last_lambda, begin)
        self._swept_at: Float64 | None = None  # the margins whose slopes the blocks hold
        # A column of unknown size counts as the largest possible one: an index and a value for every example.
        self._column_bytes = np.full(problem.coordinates, 8 * problem.examples.n, np.int64)
        self._budget = _store_budget(options, blocks, before and before[0])
        # Sums are cut by the number of threads.
        self._threads = Threads(options.threads or (before and before[1]))
        self._store = SharedStore(
            problem.examples.n, problem.coordinates, self._budget, self._threads, blocks, problem.penalty.size
        )
        self._was_cut = False  # did the budget cut the last working set down?
        self._exceeded_budget = self._budget == 0  # did the last λ need split rounds?
        self._store_unpenalised_columns()

    def state(self) -> StateVectors:
        """What the next λ depends on beside the last solution."""
        earlier = self._last_solutions[0] if len(self._last_solutions) == 2 else None
        return SearchState(
            self._budget,
            self._threads.count,
            self._exceeded_budget,
            self._column_bytes[self._beta.position],
            self._store.position,
            earlier,
            self._swept_at,
            self._store.gram,
        ).vectors()

    def restore(self, state: SearchState) -> None:
        """Bring a search that was just made to a state: its columns are loaded, and one sweep finds its slopes."""
        self._exceeded_budget = state.exceeded_budget
        self._column_bytes[self._beta.position] = state.support_bytes
        missing = self._store.missing(state.stored)
        if missing.size:
            self._store.add(missing, self._blocks.columns(missing))
        self._store.gram = state.gram
        if state.dual_margins is not None:
            self._sweep(state.dual_margins, self._last_lambda, 1.0)

    def _store_unpenalised_columns(self) -> None:
        """Put the unpenalised columns into the store. They are not counted in the budget and never dropped."""
        columns = self._free.columns
        self._store.add(self._free.position, [Part(self._problem.coordinates, columns)])
        self._store.budget += self._store.nbytes
        self._column_bytes[self._free.position] = columns.sizes()

    def solve(self, lam: float, *, lambda_index: int = 0, on_round: OnRound | None = None) -> Solution:
        """Minimise f at λ, starting at the last solution."""
        log = Log(lambda_index, float(lam), on_round)
        certificate = None if self._skips_search() else self._search(lam, log)
        self._exceeded_budget = certificate is None
        if certificate is None:
            certificate = self._split_rounds(lam, log)
        self._record_solution(lam)
        stop: Stop = "tolerance" if certificate.met(self._options) else "limit"
        beta, intercept = split_intercept(self._problem, self._beta)
        solution = log.solution(beta, intercept, certificate.objective, certificate.gap, stop)
        warn_unless_met(solution, certificate, self._options)
        return solution

    # --- within the budget --------------------------------------------------------------------------------------

    def _search(self, lam: float, log: Log) -> Certificate | None:
        """Steps 1 to 4. None when the working set exceeds the budget."""
        working = self._first_working_set(lam, log)
        if working is None or not self._load_columns(self._support, working):
            return None
        if self._blocks.others.threads:
            logger.info("λ = %.6g: %s", lam, self._store.describe(self._support))
        margins = self._margins_from_store()
        share, dual, dual_offset = ACCURACY.first_share, -np.inf, None
        while working is not None and self._load_columns(working, working):
            search = self._subspace(lam, working, margins, dual_offset)
            dual_offset = None  # the search's own from here on: a vector over the examples
            is_first = share == ACCURACY.first_share
            sweep = self._search_and_sweep(search, log, *self._search_limits(share), extrapolate=is_first)
            dual = max(dual, search.f.dual_value(search.dual_margins, sweep.violation))
            dual_offset = search.dual_offset
            new = ~np.isin(sweep.position, working, assume_unique=True)
            certificate = self._certify(search, sweep, new, dual)
            log.end(search.objective, self._nonzeros, gap=certificate.gap)
            no_progress = search.stuck and not new.any()
            if certificate.met(self._options) or no_progress or log.rounds >= self._options.max_rounds:
                return certificate
            share = self._next_share(share, certificate, has_new=bool(new.any()))
            working = self._fit_to_budget(working, sweep, least=WORKING_SET.least_new_share)
        return None

    def _first_working_set(self, lam: float, log: Log) -> Int64 | None:
        """Step 1, over stepping stones if λ is far. None when the budget does not hold it."""
        self._ensure_slopes(lam, log)
        entering = self._entering_features(lam)
        while self._needs_stepping_stone(lam, entering) and log.rounds + 1 < self._options.max_rounds:
            if not self._stepping_stone(lam, log):
                return None
            entering = self._entering_features(lam)
        return self._fit_to_budget(self._support, entering, least=0.0)

    def _next_share(self, share: float, certificate: Certificate, *, has_new: bool) -> float:
        """The share of tol that the next search may leave."""
        if has_new:
            return ACCURACY.later_share
        only_gap_lacks = certificate.estimate <= self._options.tol * certificate.objective
        return min(share, ACCURACY.later_share) if only_gap_lacks else ACCURACY.tighten * share

    @property
    def _support(self) -> Int64:
        """The coordinates with coefficients, and all unpenalised coordinates."""
        return np.union1d(self._beta.position, self._free.position)

    @property
    def _nonzeros(self) -> int:
        return int(np.count_nonzero(self._beta.position < self._problem.penalty.size))

    def _subspace(self, lam: float, working: Int64, margins: Float64, dual_offset: Float64 | None = None) -> Subspace:
        return Subspace(self._problem, self._free, self._store, lam, working, self._beta, margins, dual_offset)

    def _search_and_sweep(
        self, search: Subspace, log: Log, tolerance: float, max_gap: float, *, extrapolate: bool, dual: bool = True
    ) -> Sweep:
        """Steps 2 and 3, once the columns are in the store."""
        log.begin(search.objective, search.lam)
        with log.searching():
            if extrapolate:
                self._extrapolate_start(search)
            search.minimise(tolerance, max_gap, dual=dual)
        self._beta = search.coefficients
        return self._sweep(search.dual_margins, search.lam, 1.0)

    def _needs_stepping_stone(self, lam: float, entering: Sweep) -> bool:
        """Is λ far from the last one, and would more features enter than a model can have, or the store can hold?"""
        many = entering.position.size > self._problem.examples.n or int(entering.nbytes.sum()) > self._store.budget
        return many and lam * STEPPING_STONES.max_ratio < self._last_lambda * (1.0 - ROUNDING.lambda_ratio)

    def _stepping_stone(self, lam: float, log: Log) -> bool:
        """Steps 1 to 3 at an intermediate λ, solved roughly. False when the working set exceeds the budget."""
        strides = np.ceil(np.log(self._last_lambda / lam) / np.log(STEPPING_STONES.max_ratio) - ROUNDING.lambda_ratio)
        stone = self._last_lambda * float((lam / self._last_lambda) ** (1.0 / strides))
        working = self._fit_to_budget(self._support, self._entering_features(stone), least=0.0)
        if working is None or not (self._load_columns(self._support, working) and self._load_columns(working, working)):
            return False
        search = self._subspace(stone, working, self._margins_from_store())
        sweep = self._search_and_sweep(
            search, log, STEPPING_STONES.stone_tolerance, np.inf, extrapolate=True, dual=False
        )
        gap = search.objective - search.f.dual_value(search.margins, sweep.violation)
        log.end(search.objective, self._nonzeros, gap=gap)
        self._record_solution(stone)
        return True

    def _record_solution(self, lam: float) -> None:
        self._last_solutions = [*self._last_solutions[-1:], (lam, self._beta)]
        self._last_lambda = lam

    def _entering_features(self, lam: float) -> Sweep:
        """Features whose slopes come near their threshold. If most features do, all of them, if the store has room."""
        near = self._list_again(lam, WORKING_SET.enter_share)
        if near.position.size < WORKING_SET.take_all_share * self._column_bytes.size:
            return near
        everything = self._list_again(lam, 0.0)
        return everything if int(everything.nbytes.sum()) <= self._store.budget else near

    def _ensure_slopes(self, lam: float, log: Log) -> None:
        """Sweep at β unless the blocks hold its slopes."""
        if self._swept_at is not None:
            return
        log.begin(np.nan)
        margins = restart(self._blocks, self._free, self._beta)
        self._fit_unpenalised(margins)
        sweep = self._sweep(margins, lam, WORKING_SET.enter_share)
        f = self._problem.at(lam, self._beta.position)
        objective = f.value(margins, self._beta.value)
        log.end(objective, self._nonzeros, gap=objective - f.dual_value(margins, sweep.violation))

    def _fit_unpenalised(self, margins: Float64) -> None:
        """Bring f to its minimum over the unpenalised coordinates."""
        moved = Coefficients(self._free.position, self._free.refit(margins))
        self._beta = self._beta.moved(moved) if moved.value.any() else self._beta

    def _extrapolate_start(self, search: Subspace) -> None:
        """Start where β arrives when it continues, linearly in log λ, its change between the last two λ.

        On separable data, at small λ, that is nearly the solution.
        """
        if len(self._last_solutions) == 2:
            (first, before), (second, _) = self._last_solutions
            search.extrapolate_start(before, np.log(second / search.lam) / np.log(first / second))

    def _search_limits(self, share: float) -> tuple[float, float]:
        """The remaining gain and the gap of the working set that a search may leave, each relative to f."""
        if self._options.gap is not None:
            return np.inf, share * self._options.gap
        is_first = share == ACCURACY.first_share
        return share * self._options.tol, np.inf if is_first else ACCURACY.max_gap_share * self._options.max_gap

    def _certify(self, search: Subspace, sweep: Sweep, new: NDArray[np.bool_], dual: float) -> Certificate:
        """The gap, and the estimate: what the search left plus what features outside it could gain.

        The single gain of a feature says little when it depends on others, and when the budget left out many features
        that violate a little. Then the gap alone counts.
        """
        slopes, terms = sweep.slope[new], self._problem.at(search.lam, sweep.position[new]).terms
        gains = terms.gains(slopes, sweep.curvature[new], np.zeros(slopes.size))
        gap = max(search.objective - dual, 0.0)  # below 0 only by rounding
        reliable = not terms.above(slopes, 1.0 + ESTIMATE.unseen_violation).any() and not (self._was_cut and new.any())
        remaining = search.remaining + ESTIMATE.outside_factor * float(gains.sum()) if reliable else np.inf
        return Certificate(search.objective, gap, min(gap, remaining))

    def _margins_from_store(self) -> Float64:
        """Xβ, summed in the order of the features."""
        return self._store.product(self._store.slots(self._beta.position), self._beta.value)

    def _fit_to_budget(self, working: Int64, sweep: Sweep, least: float) -> Int64 | None:
        """The working set and the features that the sweep listed, cut down to the budget.

        The support of β comes first, then features by the size of their slopes. None when the support does not fit, or
        less than the share `least` of the new features.
        """
        everything = np.union1d(working, sweep.position)
        self._was_cut = int(self._column_bytes[everything].sum()) > self._store.budget
        if not self._was_cut:
            return everything
        new = ~np.isin(sweep.position, self._support, assume_unique=True)
        room = self._store.budget - int(self._column_bytes[self._support].sum())
        falling_slopes = np.flatnonzero(new)[np.argsort(-np.abs(sweep.slope[new]), kind="stable")]
        fitting = falling_slopes[np.cumsum(sweep.nbytes[falling_slopes]) <= room]
        if room < 0 or fitting.size == 0 or fitting.size < least * falling_slopes.size:
            return None
        return np.union1d(self._support, sweep.position[fitting])

    def _load_columns(self, wanted: Int64, keep: Int64) -> bool:
        """Load the columns of `wanted`. If room is needed, drop all but `keep`. False when they do not fit."""
        missing = self._store.missing(wanted)
        need = int(self._column_bytes[missing].sum())
        if self._store.nbytes + need > self._store.budget:
            self._store.keep(np.union1d(keep, self._free.position))
            if self._store.nbytes + need > self._store.budget:
                return False
        if missing.size:
            self._store.add(missing, self._blocks.columns(missing))
        return True

    def _sweep(self, margins: Float64, lam: float, share: float) -> Sweep:
        """Sweep all blocks. Positions count over all features."""
        self._swept_at = margins
        return self._noted(self._blocks.sweep(margins, lam, share, WORKING_SET.max_proposed))

    def _list_again(self, lam: float, share: float) -> Sweep:
        """The same by the slopes of the last sweep."""
        return self._noted(self._blocks.list_again(lam, share, WORKING_SET.max_proposed))

    def _noted(self, found: Sweep) -> Sweep:
        self._column_bytes[found.position] = found.nbytes
        return found

    # --- beyond the budget ---------------------------------------------------------------------------------------

    def _skips_search(self) -> bool:
        """Did the last λ exceed the budget, with a β whose own columns fill much of it?"""
        own = int(self._column_bytes[self._beta.position].sum())
        return self._exceeded_budget and own >= WORKING_SET.skip_search_share * self._store.budget

    def _split_rounds(self, lam: float, log: Log) -> Certificate:
        """Rounds split by feature, each with a subspace search over the features that fit."""

        def search_part(at: Iterate, sweep: Sweep, dbeta: Coefficients) -> Iterate:
            return self._search_fitting_part(lam, at, sweep, dbeta)

        self._swept_at = None
        rounds = SplitRounds(self._blocks, self._problem, self._free, lam, self._beta, search_part)
        certificate = rounds.run(self._options, log)
        self._beta = rounds.iterate.beta
        return certificate

    def _search_fitting_part(self, lam: float, at: Iterate, sweep: Sweep, dbeta: Coefficients) -> Iterate:
        """Minimise f over the features that are most useful for their bytes, the others held fixed."""
        self._column_bytes[sweep.position] = sweep.nbytes
        chosen = self._most_useful_features(lam, at, sweep, dbeta)
        if chosen.size == 0 or not self._load_columns(chosen, chosen):
            return at
        chosen = np.union1d(chosen, self._free.position)
        held, margins = at.beta.apart_from(chosen), at.margins.copy()
        search = Subspace(self._problem, self._free, self._store, lam, chosen, at.beta.among(chosen), margins)
        search.minimise(ACCURACY.part_share * self._options.tol, np.inf, ACCURACY.part_steps, dual=False)
        penalty = self._problem.at(lam, held.position).terms.value(held.value)
        return Iterate(held.merged(search.coefficients), margins, search.objective + penalty)

    def _most_useful_features(self, lam: float, at: Iterate, sweep: Sweep, dbeta: Coefficients) -> Int64:
        """As many active features as the store holds: those that moved f the most for their bytes."""
        step, beta = dbeta.on(sweep.position), at.beta.on(sweep.position)
        terms = self._problem.at(lam, sweep.position).terms
        worth = sweep.curvature * step**2 + terms.gains(sweep.slope, sweep.curvature, beta - step)
        nbytes = np.maximum(sweep.nbytes, 1)
        order = np.argsort(-worth / nbytes, kind="stable")
        fitting = order[(np.cumsum(nbytes[order]) <= self._store.budget) & (worth[order] > 0.0)]
        return np.sort(sweep.position[fitting])
