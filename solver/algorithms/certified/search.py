"""The certified mode: subspace search over a working set, and sweeps over all features that prove what was reached.

For each λ
    1. working set: the features with coefficients, and those whose slopes come near λ
    2. their columns come to the driver, if they are not in its store, and f is minimised over them (subspace.py)
    3. a sweep at the new margins: the slope of every feature that can matter, and with the largest the duality gap
    4. done? If not, features that violate |∂L/∂βⱼ| ≤ λ join the working set, and on with 2
A λ far below the last one, where a first working set would be all but everything, is reached over stepping stones:
steps 1 to 3, roughly, at λ between. A round is a sweep, a pass over the data. Where the budget of the store does not
hold the working set, rounds split by feature (split.py) carry on from where the search stands, ended by the same
certificate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import psutil
from numpy.typing import NDArray

from solver.algorithms.certified.certificate import Certificate, warn_unless_met
from solver.algorithms.certified.split import Iterate, SplitRounds
from solver.algorithms.certified.store import Store
from solver.algorithms.certified.subspace import Subspace
from solver.algorithms.certified.threads import Threads
from solver.algorithms.certified.tuning import ACCURACY, ESTIMATE, ROUNDING, STEPPING_STONES, WORKING_SET
from solver.arrays import Coefficients, Float64, Int64
from solver.block import Sweep
from solver.blocks import Blocks
from solver.columns import Columns
from solver.options import DefaultOptions
from solver.path import PathStart
from solver.problem import Problem
from solver.records import Log, OnRound, Solution, Stop
from solver.start import NullModel, free_coordinates, restart, split_intercept


def solve_path(
    blocks: Blocks,
    problem: Problem,
    lambdas: Sequence[float],
    options: DefaultOptions,
    null: NullModel,
    start: PathStart,
    on_round: OnRound | None = None,
) -> Iterator[Solution]:
    """Each λ from the solution of the last.

    A path taken up again goes on from the last two solutions stored. It has to find slopes and Gram matrices anew that
    the run that was cut had at hand: it costs a sweep more, and its models are others within the tolerance.
    """
    done = start.done
    last = lambdas[done - 1] if done else null.lambda_max
    search = CertifiedSearch(blocks, problem, options, start.beta(null), last=last)
    if len(start.betas) > 1 and lambdas[done - 2] < null.lambda_max:
        search.solved = list(zip(lambdas[done - 2 : done], start.betas[-2:], strict=True))
    for k in range(done, len(lambdas)):
        if lambdas[k] >= null.lambda_max:
            yield null.solution(problem, lambdas[k], k)
        else:
            yield search.solve(lambdas[k], lambda_index=k, on_round=on_round)


class CertifiedSearch:
    """The driver's side of a path: β, the margins, and the store of columns.

    last: the λ that β is a solution at; λmax where there is no β. If none is given, there are no stepping stones.
    """

    def __init__(
        self,
        blocks: Blocks,
        problem: Problem,
        options: DefaultOptions,
        beta: Coefficients | None = None,
        *,
        last: float = 0.0,
    ) -> None:
        self._blocks, self._problem, self._options = blocks, problem, options
        self._free = free_coordinates(blocks, problem)
        self._beta = Coefficients.empty() if beta is None else beta
        self.solved: list[tuple[float, Coefficients]] = []  # the last two λ, with their β; or fewer
        self._last = last
        self._swept = False  # do the blocks know the slopes at β?
        # What is not known yet is taken to be as large as a column can be.
        self._nbytes = np.full(problem.coordinates, 8 * problem.examples.n, np.int64)
        memory = options.subspace_memory
        budget = int(WORKING_SET.memory_share * psutil.virtual_memory().available) if memory is None else memory
        self._store = Store(problem.examples.n, problem.coordinates, budget, Threads(options.threads))
        self._cut = False  # is the working set less than was wanted?
        self._beyond = budget == 0  # was the last one beyond the budget?
        self._keep_free()

    def _keep_free(self) -> None:
        """The unpenalised columns are here already. They are not counted in the budget, and never dropped."""
        rows = self._free.columns
        self._store.add(self._free.position, Columns.from_rows(rows))
        self._store.budget += rows.nbytes
        self._nbytes[self._free.position] = 4 * rows.shape[1]

    def solve(self, lam: float, *, lambda_index: int = 0, on_round: OnRound | None = None) -> Solution:
        """Minimise f at λ from the last solution."""
        log = Log(lambda_index, float(lam), on_round)
        certificate = None if self._well_beyond() else self._search(lam, log)
        self._beyond = certificate is None
        if certificate is None:
            certificate = self._split_rounds(lam, log)
        self._passed(lam)
        stop: Stop = "tolerance" if certificate.met(self._options) else "limit"
        beta, intercept = split_intercept(self._problem, self._beta)
        solution = log.solution(beta, intercept, certificate.objective, certificate.gap, stop)
        warn_unless_met(solution, certificate, self._options)
        return solution

    # --- within the budget --------------------------------------------------------------------------------------

    def _search(self, lam: float, log: Log) -> Certificate | None:
        """Steps 1 to 4; None where the working set is beyond the budget."""
        self._prepare(lam, log)
        first = self._entering(lam)
        while self._too_far(lam, first) and log.rounds + 1 < self._options.max_rounds:
            if not self._stepping_stone(lam, log):
                return None
            first = self._entering(lam)
        working = self._affordable(self._own, first, least=0.0)
        if working is None or not self._fetch(self._own, working):
            return None
        margins = self._margins()
        share, dual = ACCURACY.first_share, -np.inf
        while self._fetch(working, working):
            search = self._subspace(lam, working, margins)
            sweep = self._improve(search, log, *self._asked(share), go_on=share == ACCURACY.first_share)
            dual = max(dual, search.f.dual_value(search.dual_margins, sweep.violation))
            new = ~np.isin(sweep.position, working, assume_unique=True)
            certificate = self._certify(search, sweep, new, dual)
            log.end(search.objective, self._nonzeros, gap=certificate.gap)
            no_way = search.stuck and not new.any()
            if certificate.met(self._options) or no_way or log.rounds >= self._options.max_rounds:
                return certificate
            enough = certificate.estimate <= self._options.tol * certificate.objective  # then the gap alone is lacking
            share = (
                ACCURACY.later_share
                if new.any()
                else min(share, ACCURACY.later_share)
                if enough
                else ACCURACY.tighten * share
            )
            wider = self._affordable(working, sweep, least=WORKING_SET.least_new_share)
            if wider is None:
                return None
            working = wider
        return None

    @property
    def _own(self) -> Int64:
        """The coordinates of β, and those that are not penalised, whatever their coefficients."""
        return np.union1d(self._beta.position, self._free.position)

    @property
    def _nonzeros(self) -> int:
        return int(np.count_nonzero(self._beta.position < self._problem.penalty.size))

    def _subspace(self, lam: float, working: Int64, margins: Float64) -> Subspace:
        return Subspace(self._problem, self._free, self._store, lam, working, self._beta, margins)

    def _improve(
        self, search: Subspace, log: Log, enough: float, max_gap: float, *, go_on: bool, dual: bool = True
    ) -> Sweep:
        """Steps 2 and 3, the columns being in the store."""
        log.begin(search.objective, search.lam)
        with log.searching():
            if go_on:
                self._go_on(search)
            search.minimise(enough, max_gap, dual=dual)
        self._beta = search.coefficients
        return self._sweep(search.dual_margins, search.lam, 1.0)

    def _too_far(self, lam: float, entering: Sweep) -> bool:
        """Is λ so far from the last that slopes there let in more features than there can be in a model, or room?"""
        many = entering.position.size > self._problem.examples.n or int(entering.nbytes.sum()) > self._store.budget
        return many and lam * STEPPING_STONES.max_ratio < self._last * (1.0 - ROUNDING.lambda_ratio)

    def _stepping_stone(self, lam: float, log: Log) -> bool:
        """Steps 1 to 3 at a λ on the way to this one, roughly; False where the working set is beyond the budget."""
        strides = np.ceil(np.log(self._last / lam) / np.log(STEPPING_STONES.max_ratio) - ROUNDING.lambda_ratio)
        stone = self._last * float((lam / self._last) ** (1.0 / strides))
        working = self._affordable(self._own, self._entering(stone), least=0.0)
        if working is None or not (self._fetch(self._own, working) and self._fetch(working, working)):
            return False
        search = self._subspace(stone, working, self._margins())
        sweep = self._improve(search, log, STEPPING_STONES.stone_tolerance, np.inf, go_on=True, dual=False)
        gap = search.objective - search.f.dual_value(search.margins, sweep.violation)
        log.end(search.objective, self._nonzeros, gap=gap)
        self._passed(stone)
        return True

    def _passed(self, lam: float) -> None:
        self.solved = [*self.solved[-1:], (lam, self._beta)]
        self._last = lam

    def _entering(self, lam: float) -> Sweep:
        """Features with slopes that come near λ; where these are most of all, all, if there is room."""
        near = self._sweep(None, lam, WORKING_SET.enter_share)
        if near.position.size < WORKING_SET.take_all_share * self._nbytes.size:
            return near
        everything = self._sweep(None, lam, 0.0)
        return everything if int(everything.nbytes.sum()) <= self._store.budget else near

    def _prepare(self, lam: float, log: Log) -> None:
        """See to it that the blocks know the slopes at β."""
        if self._swept:
            return
        log.begin(np.nan)
        margins = restart(self._blocks, self._free, self._beta)
        self._fit_free(margins)
        sweep = self._sweep(margins, lam, WORKING_SET.enter_share)
        f = self._problem.at(lam, self._beta.position)
        objective = f.value(margins, self._beta.value)
        log.end(objective, self._nonzeros, gap=objective - f.dual_value(margins, sweep.violation))

    def _fit_free(self, margins: Float64) -> None:
        """Bring f to its minimum over the unpenalised coordinates."""
        moved = Coefficients(self._free.position, self._free.refit(margins))
        self._beta = self._beta.moved(moved) if moved.value.any() else self._beta

    def _go_on(self, search: Subspace) -> None:
        """Begin where β gets to if it goes on, in log λ, as it went from the λ before the last to the last.

        On separable data, at small λ, that is nearly the solution.
        """
        if len(self.solved) == 2:
            (first, before), (second, _) = self.solved
            search.go_on(before, np.log(second / search.lam) / np.log(first / second))

    def _asked(self, share: float) -> tuple[float, float]:
        """What a search may leave, relative to f: to gain, and of the gap of its working set."""
        if self._options.gap is not None:
            return np.inf, share * self._options.gap
        return (
            share * self._options.tol,
            np.inf if share == ACCURACY.first_share else ACCURACY.max_gap_share * self._options.max_gap,
        )

    def _certify(self, search: Subspace, sweep: Sweep, new: NDArray[np.bool_], dual: float) -> Certificate:
        """The gap of the swept iterate, and what the search left plus what features outside it could gain.

        Single gains say too little of what a feature gains together with others that it depends on, or many features
        that violate a little where the budget cut the working set down: then the gap alone counts.
        """
        slopes, terms = sweep.slope[new], self._problem.at(search.lam, sweep.position[new]).terms
        gains = terms.gains(slopes, sweep.curvature[new], np.zeros(slopes.size))
        gap = max(search.objective - dual, 0.0)  # rounding aside, it is
        reliable = not terms.above(slopes, 1.0 + ESTIMATE.unseen_violation).any() and not (self._cut and new.any())
        left = search.remaining + ESTIMATE.outside_factor * float(gains.sum()) if reliable else np.inf
        return Certificate(search.objective, gap, min(gap, left))

    def _margins(self) -> Float64:
        """Xβ from the store, in the order of the features whatever the order of the slots."""
        return self._store.product(self._store.slots(self._beta.position), self._beta.value)

    def _affordable(self, working: Int64, sweep: Sweep, least: float) -> Int64 | None:
        """The working set with what the sweep listed, cut down to the budget.

        Coefficients that are not zero come first, then features by their slopes. None where that leaves out β's own,
        or more than a share of 1 − least of those that are new.
        """
        everything = np.union1d(working, sweep.position)
        self._cut = int(self._nbytes[everything].sum()) > self._store.budget
        if not self._cut:
            return everything
        new = ~np.isin(sweep.position, self._own, assume_unique=True)
        room = self._store.budget - int(self._nbytes[self._own].sum())
        falling_slopes = np.flatnonzero(new)[np.argsort(-np.abs(sweep.slope[new]), kind="stable")]
        fitting = falling_slopes[np.cumsum(sweep.nbytes[falling_slopes]) <= room]
        if room < 0 or fitting.size == 0 or fitting.size < least * falling_slopes.size:
            return None
        return np.union1d(self._own, sweep.position[fitting])

    def _fetch(self, wanted: Int64, keep: Int64) -> bool:
        """Bring the columns of `wanted` into the store, dropping others than `keep` if it must; False if too many."""
        missing = self._store.missing(wanted)
        need = int(self._nbytes[missing].sum())
        if self._store.nbytes + need > self._store.budget:
            self._store.keep(np.union1d(keep, self._free.position))
            if self._store.nbytes + need > self._store.budget:
                return False
        if missing.size:
            self._store.add(missing, self._blocks.columns(missing))
        return True

    def _sweep(self, margins: Float64 | None, lam: float, share: float) -> Sweep:
        """One sweep over all blocks; positions count over all of them."""
        found = self._blocks.sweep(margins, lam, share, WORKING_SET.max_proposed)
        self._swept = True
        self._nbytes[found.position] = found.nbytes
        return found

    # --- beyond it ----------------------------------------------------------------------------------------------

    def _well_beyond(self) -> bool:
        """Is it clear from the last λ that the search over everything has no room?"""
        own = int(self._nbytes[self._beta.position].sum())
        return self._beyond and own >= WORKING_SET.skip_search_share * self._store.budget

    def _split_rounds(self, lam: float, log: Log) -> Certificate:
        """Rounds split by feature, with the subspace search over what fits."""

        def search_part(at: Iterate, sweep: Sweep, dbeta: Coefficients) -> Iterate:
            return self._search_part(lam, at, sweep, dbeta)

        self._swept = False
        rounds = SplitRounds(self._blocks, self._problem, self._free, lam, self._beta, search_part)
        certificate = rounds.run(self._options, log)
        self._beta = rounds.at.beta
        return certificate

    def _search_part(self, lam: float, at: Iterate, sweep: Sweep, dbeta: Coefficients) -> Iterate:
        """Minimise f over the features that matter the most for the room they take, the others held."""
        self._nbytes[sweep.position] = sweep.nbytes
        chosen = self._strongest(lam, at, sweep, dbeta)
        if chosen.size == 0 or not self._fetch(chosen, chosen):
            return at
        chosen = np.union1d(chosen, self._free.position)
        held, margins = at.beta.apart_from(chosen), at.margins.copy()
        search = Subspace(self._problem, self._free, self._store, lam, chosen, at.beta.among(chosen), margins)
        search.minimise(ACCURACY.part_share * self._options.tol, np.inf, ACCURACY.part_steps, dual=False)
        penalty = self._problem.at(lam, held.position).terms.value(held.value)
        return Iterate(held.merged(search.coefficients), margins, search.objective + penalty)

    def _strongest(self, lam: float, at: Iterate, sweep: Sweep, dbeta: Coefficients) -> Int64:
        """Of the active features, as many as the store holds: those that moved f the most, for their bytes."""
        step, beta = dbeta.on(sweep.position), at.beta.on(sweep.position)
        terms = self._problem.at(lam, sweep.position).terms
        worth = sweep.curvature * step**2 + terms.gains(sweep.slope, sweep.curvature, beta - step)
        nbytes = np.maximum(sweep.nbytes, 1)
        order = np.argsort(-worth / nbytes, kind="stable")
        fitting = order[(np.cumsum(nbytes[order]) <= self._store.budget) & (worth[order] > 0.0)]
        return np.sort(sweep.position[fitting])
