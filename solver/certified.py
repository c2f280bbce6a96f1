"""The certified mode: subspace search over a working set, and sweeps over all features that prove what was reached.

For each λ
    1. working set: the features with coefficients, and those whose slopes come near λ
    2. their columns come to the driver, if they are not in its store, and f is minimised over them (subspace.py)
    3. a sweep at the new margins: every feature's slope, and with the largest of them the duality gap
    4. done? If not, features that violate |∂L/∂βⱼ| ≤ λ join the working set, and on with 2
A round is a sweep, a pass over the data. Where the store's budget does not hold the working set, the feature-split
rounds of the paper carry on from where the search stands, ended by the same certificate.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias

import numpy as np
import psutil
from numpy.typing import NDArray

from solver import kernels
from solver.arrays import Coefficients, Float64, Int64
from solver.block import Sweep
from solver.blocks import Blocks
from solver.dglmnet import ConvergenceWarning, OnRound, RoundRecord, Solution, State, Stop, offsets, restart
from solver.examples import Examples
from solver.gap import duality_gap
from solver.linesearch import line_search
from solver.options import DefaultOptions, SolverOptions
from solver.path import falling, zero_solution
from solver.store import Store
from solver.subspace import Subspace, single_gains

ENTER = 0.8  # a feature joins the first working set of a λ when its slope is above this share of λ
LIMIT = 1_000_000  # features that one block may propose at a time
MEMORY_SHARE = 0.25  # of the memory available, for the store, unless a budget is given
FIRST, NEXT = 0.5, 0.3  # shares of tol that the first and the later searches of a λ may leave on the table
OUTSIDE = 2.0  # what features outside the working set gain singly, they are taken to gain so much more together
WINDOW = 5  # rounds over which the pace of the feature-split rounds is measured

_PAPER = SolverOptions.paper()
Bool: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Certificate:
    """What is known of an iterate: f, its duality gap, and the estimated distance to the optimum, all absolute."""

    objective: float
    gap: float
    estimate: float

    def met(self, options: DefaultOptions) -> bool:
        if options.gap is not None:
            return self.gap <= options.gap * self.objective
        return self.estimate <= options.tol * self.objective and self.gap <= options.max_gap * self.objective


def certified_path(
    blocks: Blocks,
    examples: Examples,
    lambdas: Sequence[float],
    options: DefaultOptions,
    *,
    largest: float,
    done: int = 0,
    beta: Coefficients | None = None,
    on_round: OnRound | None = None,
) -> Iterator[Solution]:
    """Solve for each λ in turn, as `solver.path.solve_path` does. `largest` is λmax.

    Margins are formed from β at the beginning of every λ, so a path taken up again follows the same one; its first λ
    costs a sweep more, for the slopes that were known to the run that was cut.
    """
    if list(lambdas) != falling(lambdas):
        raise ValueError("lambdas must fall, each value once")
    search = CertifiedSearch(blocks, examples, options, beta)
    for k in range(done, len(lambdas)):
        if lambdas[k] >= largest:
            yield zero_solution(examples, lambdas[k], k)
        else:
            yield search.solve(lambdas[k], lambda_index=k, on_round=on_round)


class CertifiedSearch:
    """The driver's side of a path: β, the margins, and the store of columns."""

    def __init__(
        self, blocks: Blocks, examples: Examples, options: DefaultOptions, beta: Coefficients | None = None
    ) -> None:
        self._blocks, self._examples, self._options = blocks, examples, options
        self._offsets = np.asarray(offsets(blocks.sizes))
        self._beta = Coefficients.empty() if beta is None else beta
        self._swept = False  # do the blocks know the slopes at β?
        # What is not known yet is taken to be as large as a column can be.
        self._nbytes = np.full(int(self._offsets[-1]), 8 * examples.n, np.int64)
        memory = options.subspace_memory
        budget = int(MEMORY_SHARE * psutil.virtual_memory().available) if memory is None else memory
        self._store = Store(examples.n, int(self._offsets[-1]), budget)

    def solve(self, lam: float, *, lambda_index: int = 0, on_round: OnRound | None = None) -> Solution:
        """Minimise f at λ from the last solution."""
        log = _Log(lambda_index, float(lam), on_round)
        self._prepare(lam, log)
        certificate = self._search(lam, log)
        if certificate is None:
            certificate = self._split_rounds(lam, log)
        solution = log.solution(self._beta, certificate, self._options)
        _warn_unless_met(solution, certificate, self._options)
        return solution

    def _prepare(self, lam: float, log: _Log) -> None:
        """See to it that the blocks know the slopes at β."""
        if self._swept:
            return
        log.begin(np.nan)
        margins = restart(self._blocks, self._examples.n, self._beta)
        self._sweep(margins, ENTER * lam)
        loss = float(kernels.loss(margins, self._examples.signed))
        log.end(loss + lam * float(np.abs(self._beta.value).sum()), self._beta)

    def _search(self, lam: float, log: _Log) -> Certificate | None:
        """Steps 1 to 4; None where the working set is beyond the budget."""
        first = self._sweep(None, ENTER * lam)
        working = np.union1d(self._beta.position, first.position)
        if not self._fetch(self._beta.position, working):
            return None
        margins = self._margins()
        share = FIRST
        while True:
            fits = self._fetch(working, working)
            if not fits:
                working = self._what_fits(working)
            search = Subspace(self._store, working, self._beta, margins, self._examples, lam)
            log.begin(search.objective)
            with log.searching():
                search.minimise(*self._asked(share))
            self._beta = search.coefficients
            if not fits:
                return None
            sweep = self._sweep(margins, lam)
            log.end(search.objective, self._beta)
            new = ~np.isin(sweep.position, working, assume_unique=True)
            certificate = self._certify(search, sweep, new)
            no_way = search.stuck and not new.any()
            if certificate.met(self._options) or no_way or log.rounds >= self._options.max_rounds:
                return certificate
            share = NEXT if new.any() else 0.1 * share
            working = np.union1d(working, sweep.position)

    def _asked(self, share: float) -> tuple[float, float]:
        """What a search may leave, relative to f: to gain, and of the gap of its working set."""
        if self._options.gap is not None:
            return np.inf, share * self._options.gap
        return share * self._options.tol, np.inf if share == FIRST else 0.8 * self._options.max_gap

    def _certify(self, search: Subspace, sweep: Sweep, new: Bool) -> Certificate:
        """The gap at the swept iterate, and what the search left plus what features outside it could gain."""
        lam, objective = search.lam, search.objective
        gains = single_gains(sweep.gradient[new], sweep.curvature[new], np.zeros(int(new.sum())), lam)
        gap = duality_gap(objective, search.margins, self._examples.signed, lam, sweep.max_gradient)
        return Certificate(objective, gap, min(gap, search.remaining + OUTSIDE * float(gains.sum())))

    def _split_rounds(self, lam: float, log: _Log) -> Certificate:
        """The paper's rounds (Algorithm 4), until the certificate is met."""
        state = State(self._blocks, self._examples, lam, self._beta)
        self._swept = False
        enough = NEXT * self._options.tol
        gains = _Pace()
        while True:
            log.begin(state.objective)
            direction = state.direction(_PAPER.nu)
            with log.searching():
                found = line_search(state.ray(direction), state.objective, _PAPER)
            state.move(direction, found)
            self._beta = Coefficients.from_dense(state.beta)
            log.end(state.objective, self._beta, found.alpha)
            remaining = gains.add(log.before - state.objective)
            over = log.rounds >= self._options.max_rounds
            if over or found.alpha == 0.0 or remaining <= enough * state.objective:
                gap = state.gap()
                certificate = Certificate(state.objective, gap, min(gap, remaining))
                if over or found.alpha == 0.0 or certificate.met(self._options):
                    return certificate
                enough *= 0.3

    def _margins(self) -> Float64:
        """Xβ from the store, in the order of the features whatever the order of the slots."""
        return self._store.product(self._store.slots(self._beta.position), self._beta.value)

    def _fetch(self, wanted: Int64, keep: Int64) -> bool:
        """Bring the columns of `wanted` into the store, dropping others than `keep` if it must; False if too many."""
        missing = self._store.missing(wanted)
        need = int(self._nbytes[missing].sum())
        if self._store.nbytes + need > self._store.budget:
            self._store.keep(keep)
            if self._store.nbytes + need > self._store.budget:
                return False
        cuts = np.searchsorted(missing, self._offsets)
        spans = zip(self._offsets[:-1], cuts[:-1], cuts[1:], strict=True)
        position = [missing[lo:hi] - first for first, lo, hi in spans]
        if missing.size:
            for first, mine, columns in zip(self._offsets[:-1], position, self._blocks.columns(position), strict=True):
                self._store.add(mine + first, columns)
        return True

    def _what_fits(self, working: Int64) -> Int64:
        """Of a working set beyond the budget, what is in the store: β's own features are."""
        return working[np.isin(working, self._store.missing(working), invert=True)]

    def _sweep(self, margins: Float64 | None, threshold: float) -> Sweep:
        """One sweep over all blocks; positions count over all of them."""
        found = Sweep.joined(list(self._blocks.sweep(margins, threshold, LIMIT)), self._offsets)
        self._swept = True
        self._nbytes[found.position] = found.nbytes
        return found


class _Pace:
    """What is left to gain, if rounds go on gaining as they did over the last few."""

    def __init__(self) -> None:
        self._gains: list[float] = []

    def add(self, gain: float) -> float:
        self._gains.append(max(gain, 0.0))
        if len(self._gains) <= WINDOW:
            return np.inf
        earlier = self._gains[-1 - WINDOW]
        pace = min((gain / earlier) ** (1.0 / WINDOW), 0.99) if earlier > 0.0 else 0.0
        return max(gain, 0.0) * max(pace / (1.0 - pace), 1.0)


class _Log:
    """The clock, and what is reported of each round."""

    def __init__(self, lambda_index: int, lam: float, on_round: OnRound | None) -> None:
        self._index, self._lam, self._on_round = lambda_index, lam, on_round
        self._began = perf_counter()
        self._search_total = 0.0
        self.rounds = 0

    def begin(self, objective: float) -> None:
        self.before = objective
        self._round_began = perf_counter()
        self._search = 0.0

    @contextmanager
    def searching(self) -> Iterator[None]:
        began = perf_counter()
        yield
        self._search = perf_counter() - began
        self._search_total += self._search

    def end(self, objective: float, beta: Coefficients, alpha: float = 1.0) -> None:
        self.rounds += 1
        if self._on_round is None:
            return
        decrease = (self.before - objective) / self.before if self.before > 0 else 0.0
        self._on_round(
            RoundRecord(
                lambda_index=self._index,
                lam=self._lam,
                round=self.rounds,
                objective=objective,
                relative_decrease=decrease,
                alpha=alpha,
                nonzeros=int(np.count_nonzero(beta.value)),
                seconds=perf_counter() - self._round_began,
                line_search_seconds=self._search,
            )
        )

    def solution(self, beta: Coefficients, certificate: Certificate, options: DefaultOptions) -> Solution:
        stop: Stop = "tolerance" if certificate.met(options) else "limit"
        return Solution(
            lambda_index=self._index,
            lam=self._lam,
            beta=beta,
            objective=certificate.objective,
            gap=certificate.gap,
            rounds=self.rounds,
            stop=stop,
            seconds=perf_counter() - self._began,
            line_search_seconds=self._search_total,
        )


def _warn_unless_met(solution: Solution, certificate: Certificate, options: DefaultOptions) -> None:
    if solution.converged:
        return
    f = certificate.objective
    asked = (
        f"a relative gap of {options.gap:g} was asked for"
        if options.gap is not None
        else f"tol = {options.tol:g} and a relative gap below {options.max_gap:g} were asked for"
    )
    warnings.warn(
        f"λ = {solution.lam:g}: after {solution.rounds} rounds the estimated relative suboptimality is "
        f"{certificate.estimate / f:.2g} and the relative duality gap {certificate.gap / f:.2g}; {asked}. "
        "Raise max_rounds, or ask for less.",
        ConvergenceWarning,
        stacklevel=3,
    )
