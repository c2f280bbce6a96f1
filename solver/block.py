"""One feature block S_k: what a worker holds and does (Algorithm 2, and lines 1-2 and 7-8 of Algorithm 4).

A block keeps its coefficients and refers to the margins that it was given. Cycles need a copy of the margins, as they
follow each step, and vectors of their own: made with the first cycle, as sweeps do without. Its columns come from a
source (stretches.py): a list of Columns in memory, or a reader that fetches them anew in each pass. The arithmetic is
the same, so the coefficients are the same to the last bit.

A method that the outer loops call is a question, declared with `asked` (questions.py). Its typed front is in blocks.py;
that is all there is to adding one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from solver.arrays import Coefficients, Float64, Int64
from solver.batches import BLOCK_DESCENT, Batches
from solver.chosen import Coordinates, CyclePart, PartMove, Run
from solver.columns import Columns
from solver.kernels import descent, screening, vectors
from solver.layout import Layout
from solver.penalty import Penalty, Terms, Violation
from solver.point import Point
from solver.problem import Examples
from solver.questions import asked, joined_arrays, nothing, summed, total
from solver.stretches import ColumnSource, InMemory, Part, SafePrefix, in_stretches

if TYPE_CHECKING:
    from solver.algorithms.certified.shard import ColumnRows, Shard, Sliced, WeightedRows

# What may set β, margins or slopes of a block.
ITERATE = ("start", "set_margins", "put", "sweep", "list_again")
CONSTANT = 1.0 + 1e-9  # a column whose Σwx² is no more than this times (Σwx)²/Σw is constant


@dataclass(frozen=True)
class Step:
    """The step that ended the last round: β += α Δβ and m += α Δm, Δm being summed over the blocks."""

    alpha: float
    dmargins: Float64


@dataclass(frozen=True)
class BlockUpdate:
    """What one cycle gives. Its arrays are the block's own buffers: read them before the block's next call.

    dbeta: Δβ_k, positions counted within the block.
    dmargins: Δm_k = X_k Δβ_k, and the intercept's step; empty where it is in the sum that another block's stands for.
    curvature: Δβ_kᵀ H_k Δβ_k, the block's part of the γ term in D.
    dintercept: what the intercept is to move by to follow the block's features.
    """

    dbeta: Coefficients
    dmargins: Float64
    curvature: float
    dintercept: float = 0.0

    @classmethod
    def joined(cls, parts: Sequence[BlockUpdate], layout: Layout) -> BlockUpdate:
        dbeta = layout.join_coefficients([part.dbeta for part in parts])
        dmargins = summed([part.dmargins for part in parts], layout)
        return cls(dbeta, dmargins, sum(part.curvature for part in parts), sum(part.dintercept for part in parts))


@dataclass(frozen=True)
class Sweep:
    """What a sweep over a block's features found at the margins given, and which of them may enter a working set.

    violation: of the features of the block, at the λ asked for; those that cannot be near their threshold are left out.
    position: features with slopes above the share of their threshold that was asked for, rising, counted within the
    block; where there are more than asked for, those with the largest slopes.
    slope, curvature, nbytes: xⱼᵀr = −∂L/∂βⱼ, ∂²L/∂βⱼ² and the size of the column, of those listed. The curvature is nan
    where slopes of an earlier sweep are listed.
    """

    violation: Violation
    position: Int64
    slope: Float64
    curvature: Float64
    nbytes: Int64

    @classmethod
    def joined(cls, parts: Sequence[Sweep], layout: Layout) -> Sweep:
        return cls(
            Violation.joined([part.violation for part in parts]),
            layout.join([part.position for part in parts]),
            np.concatenate([part.slope for part in parts]),
            np.concatenate([part.curvature for part in parts]),
            np.concatenate([part.nbytes for part in parts]),
        )


@dataclass(frozen=True)
class Descent:
    """What coordinate descent over a block's active features gives, and what was seen on the way.

    sweep: at the margins given; listed are the active features.
    dbeta: Δβ_k, positions counted within the block.
    dmargins: Δm_k = X_k Δβ_k, in the block's own buffer.
    """

    sweep: Sweep
    dbeta: Coefficients
    dmargins: Float64

    @classmethod
    def joined(cls, parts: Sequence[Descent], layout: Layout) -> Descent:
        sweep = Sweep.joined([part.sweep for part in parts], layout)
        dbeta = layout.join_coefficients([part.dbeta for part in parts])
        return cls(sweep, dbeta, summed([part.dmargins for part in parts], layout))


def join_parts(answers: Sequence[Sequence[Part]], layout: Layout) -> list[Part]:
    """The parts of several blocks, named by positions over all their features."""
    firsts = layout.join([np.array([part.first for part in parts], np.int64) for parts in answers])
    found = (part for parts in answers for part in parts)
    return [part._replace(first=first) for part, first in zip(found, firsts.tolist(), strict=True)]


@dataclass
class _Listing:
    """What a sweep notes on its way, stretch by stretch."""

    position: list[Int64] = field(default_factory=lambda: [np.empty(0, np.int64)])
    curvature: list[Float64] = field(default_factory=lambda: [np.empty(0)])
    violation: list[Violation] = field(default_factory=lambda: [Violation(0.0, 0.0)])

    def result(self) -> tuple[Int64, Float64, Violation]:
        return np.concatenate(self.position), np.concatenate(self.curvature), Violation.joined(self.violation)


class Block:
    """A block of `size` features over the given examples. Begins at β = 0, each feature penalised alike.

    bounds: for each feature, what |∂L/∂βⱼ| cannot exceed, whatever β is. Features that cannot matter are passed over
    in sweeps, and stretches of the source that hold no others are not read.
    """

    def __init__(self, source: ColumnSource, size: int, examples: Examples, bounds: Float64 | None = None) -> None:
        self.size = size
        self._source = in_stretches(source)
        self._bounds = bounds
        self._examples = examples
        self._penalty = Penalty(size)
        self._terms: tuple[float, Terms] | None = None  # λ, and the penalty's arrays there
        self._beta = np.zeros(size)
        self._at, self._owns_margins = Point(np.zeros(examples.n)), False
        self._working, self._paired, self._dmargins = np.empty((2, 0)), np.empty((0, 2)), np.empty(0)  # for cycles
        self._moved, self._dbeta = np.empty(0, np.int64), np.empty(0)  # for cycles
        self._last = Coefficients.empty()
        self._support: Int64 = np.empty(0, np.int64)
        self._slopes, self._sizes = np.empty(0), np.empty(0, np.int64)
        self._visited: Int64 = np.empty(0, np.int64)
        self._chosen: tuple[Int64, CyclePart]  # set by begin_cycles
        self._shard: Shard  # set by begin_rows

    @asked(nothing, kept=True, replaces=["set_penalty"])
    def set_penalty(self, penalty: Penalty) -> None:
        """Take the penalty of the block's features. Those that it does not penalise must be the driver's."""
        if penalty.size != self.size:
            raise ValueError(f"a penalty of {penalty.size} features given to a block of {self.size}")
        self._penalty, self._terms = penalty, None
        self.__dict__.pop("_prefix", None)

    @asked(joined_arrays)
    def scales(self) -> Float64:
        """The standard deviation of each column over the weighted examples."""
        weights = self._examples.weights
        total = float(weights.sum()) or 1.0
        found = [np.empty(0)]
        for _, columns in self._columns():
            sums = np.empty(columns.count)
            columns.slopes(weights, sums)
            squares = columns.curvature(np.arange(columns.count), weights)
            mean = sums / total
            found.append(np.sqrt(np.maximum(squares / total - mean**2, 0.0) * (squares > CONSTANT * total * mean**2)))
        return np.concatenate(found)

    # --- Algorithm 4 --------------------------------------------------------------------------------------------

    @asked(summed, kept=True, replaces=ITERATE, summed="")
    def start(self, beta: Coefficients) -> Float64:
        """Take these coefficients, counted within the block; return X_k β_k."""
        self._set(beta)
        product = np.zeros(self._examples.n)
        for first, columns, _ in self._among(beta.position):
            columns.add_product(self._beta[first : first + columns.count], product)
        return product

    @asked(nothing, kept=True, replaces=["set_margins"])
    def set_margins(self, margins: Float64 | Point) -> None:
        """Take the margins of the whole model."""
        at = margins if isinstance(margins, Point) else Point(margins)
        if at.margins.shape != self._margins.shape:
            raise ValueError(f"margins of {at.margins.size} examples given to a block of {self._margins.size}")
        self._at, self._owns_margins = at, False

    @property
    def _margins(self) -> Float64:
        return self._at.margins

    @asked(nothing, kept=True, replaces=ITERATE)
    def put(self, beta: Coefficients, margins: Float64 | Point) -> None:
        """Take coefficients, counted within the block, and the margins of the whole model."""
        self._set(beta)
        self.set_margins(margins)

    @asked(BlockUpdate.joined, moves=True, summed="dmargins")
    def cycle(self, step: Step | None, lam: float, nu: float, intercept: bool = False) -> BlockUpdate:
        """Make the last round's step, then one cycle of coordinate descent on the sub-problem at λ.

        With an intercept, which must be at its minimum, the sub-problem has it too, at its minimum after each step.
        """
        self._apply(step)
        self._own_margins()
        self._make_room()
        terms = self._terms_at(lam)
        self._residual()
        vectors.begin_cycle(self._working, self._paired, self._dmargins, self._examples.least_curvature)
        count, apart = 0, False
        following = np.array([0.0, float(self._working[1].sum()) or 1.0]) if intercept else None
        for first, columns in self._columns():
            last = first + columns.count
            moved = self._moved[count:]
            found, apart = descent.cycle(
                *columns.arrays,
                self._beta[first:last],
                *terms.between(first, last),
                nu,
                self._working,
                self._paired,
                apart,
                following,
                moved,
                self._dbeta[count:],
            )
            moved[:found] += first
            count += found
        vectors.end_cycle(self._working, self._paired, apart, self._dmargins)
        dintercept = 0.0 if following is None else float(following[0])
        if dintercept:
            self._dmargins += dintercept
        self._last = Coefficients(self._moved[:count], self._dbeta[:count])
        return BlockUpdate(self._last, self._dmargins, vectors.curvature(self._working, self._dmargins), dintercept)

    @asked(lambda parts, layout: Violation.joined(parts), moves=True)
    def violation(self, step: Step | None, lam: float) -> Violation:
        """Make the last round's step, then say how far the block's slopes are from dual feasibility at λ.

        What cannot be the worst, and costs nothing in the dual, is passed over.
        """
        self._apply(step)
        terms = self._terms_at(lam)
        r = self._residual()
        worst, ridged = Violation(0.0, 0.0), terms.is_ridged

        def level() -> float:
            return lam * (min(worst.ratio, 1.0) if ridged else worst.ratio)

        chosen = (k for k in range(len(self._source.counts)) if self._prefix.length(k, level()))
        for k, columns in self._read(chosen):
            slopes = np.empty(self._prefix.length(k, level()))
            columns.part(0, slopes.size).slopes(r, slopes)
            first = int(self._prefix.starts[k])
            worst = Violation.joined([worst, terms.between(first, first + slopes.size).violation(slopes)])
        return worst

    # --- the certified mode -------------------------------------------------------------------------------------

    @asked(Sweep.joined, kept=True, replaces=ITERATE)
    def sweep(self, margins: Float64 | Point, lam: float, share: float, limit: int) -> Sweep:
        """Take the margins, compute the slopes of all features that can be above a share of their threshold at λ.

        Listed are those that are, at most `limit` of them.
        """
        self._begin(margins)
        terms, listing = self._terms_at(lam), _Listing()
        at = self._at.expand(self._examples)
        for first, columns in self._unvisited(self._prefix.lengths(share * lam)):
            self._list(listing, first, columns, at.w, terms, share, None)
        position, curvature, violation = listing.result()
        return self._strongest(violation, position, curvature, limit)

    @asked(Sweep.joined, kept=True)
    def list_again(self, lam: float, share: float, limit: int) -> Sweep:
        """As `sweep`, by the slopes of the last one; of the data, only what that passed over is read."""
        for _ in self._unvisited(self._prefix.lengths(share * lam)):
            pass
        position, violation = self._listed(self._terms_at(lam), share)
        return self._strongest(violation, position, np.full(position.size, np.nan), limit)

    def _strongest(self, violation: Violation, position: Int64, curvature: Float64, limit: int) -> Sweep:
        """Of the features found, at most `limit`: those with the largest slopes."""
        if position.size > limit:
            strongest = np.sort(np.argpartition(-np.abs(self._slopes[position]), limit)[:limit])
            position, curvature = position[strongest], curvature[strongest]
        return Sweep(violation, position, self._slopes[position], curvature, self._sizes[position])

    @asked(Descent.joined, replaces=ITERATE)
    def descend(self, beta: Coefficients, margins: Float64 | Point, lam: float, nu: float, cycles: int) -> Descent:
        """Take coefficients and margins, sweep as above, and minimise the sub-problem over the active features.

        Active are those with coefficients, and those with slopes near their threshold or above. Up to so many cycles
        go over them, fewer where they come to rest.
        """
        self._replace(beta)
        self._begin(margins)
        self._make_room()
        terms = self._terms_at(lam)
        least = self._examples.least_curvature
        at = self._at.expand(self._examples)
        self._working[:] = at.r, at.w
        batches = Batches(self._working, self._paired, self._dmargins, nu, cycles, least)
        listing = _Listing()
        wanted = np.maximum(self._prefix.lengths(lam), self._lengths_of(beta.position))
        for first, columns in self._unvisited(wanted):
            mine = self._list(listing, first, columns, at.w, terms, BLOCK_DESCENT.active_share, self._beta)
            batches.add(mine, columns.select(mine - first), self._beta[mine], terms.of(mine))
        active, curvature, violation = listing.result()
        sweep = Sweep(violation, active, self._slopes[active], curvature, self._sizes[active])
        return Descent(sweep, batches.change(), self._dmargins)

    @property
    def in_memory(self) -> bool:
        """Do the source's columns stay where they are?"""
        return isinstance(self._source, InMemory)

    @asked(join_parts)
    def columns(self, position: Int64) -> list[Part]:
        """The columns at these positions, which must rise: a part for each stretch that holds some of them."""
        take = Columns.view if self.in_memory else Columns.select
        return [Part(first, take(columns, position[here] - first)) for first, columns, here in self._among(position)]

    # --- columns that the driver's search has chosen ------------------------------------------------------------

    @asked(joined_arrays)
    def chosen_slopes(self, position: Int64, r: Float64) -> Float64:
        """Xᵀr of the columns at these positions."""
        slopes = np.empty(position.size)
        for first, columns, here in self._among(position):
            columns.slopes_of(position[here] - first, r, slopes[here])
        return slopes

    @asked(lambda parts, layout: np.concatenate(parts, axis=1))
    def chosen_sums(self, position: Int64, r: Float64, w: Float64) -> Float64:
        """Xᵀr of the columns at these positions, and below it Σ w x²."""
        sums = np.empty((2, position.size))
        for first, columns, here in self._among(position):
            columns.sums_of(position[here] - first, r, w, sums[0, here], sums[1, here])
        return sums

    @asked(summed, summed="")
    def chosen_product(self, step: Coefficients) -> Float64:
        """Xd."""
        product = np.zeros(self._examples.n)
        for first, columns, here in self._among(step.position):
            columns.add_product_of(step.position[here] - first, step.value[here], product)
        return product

    @asked(nothing, kept=True, replaces=["begin_cycles"])
    def begin_cycles(self, chosen: Coordinates, w: Float64) -> None:
        """Take the coordinates of a quadratic, for cycles over them."""
        position = chosen.position
        slots, runs = np.empty(position.size, np.int64), []
        for first, columns, here in self._among(position):
            slots[here] = position[here] - first
            runs.append(Run(columns.arrays, np.arange(here.start, here.stop)))
        self._chosen = position, CyclePart(slots, chosen.beta, chosen.h, chosen.terms, w, runs)

    @asked(PartMove.joined, summed="change")
    def run_cycle(self, d: Coefficients, r: Float64, slack: float) -> PartMove:
        """One cycle over these coordinates, from d and the residual r."""
        position, part = self._chosen
        moved = d.value.copy()
        return replace(part.descend_from(r, moved, slack), d=Coefficients(position, moved))

    @asked(nothing, kept=True, replaces=["begin_rows", "add_rows"])
    def begin_rows(self) -> None:
        """Hold no columns by example."""
        # Not at the top: a shard needs the algorithm's store, and the algorithm this module.
        from solver.algorithms.certified.shard import Shard

        self._shard = Shard()

    @asked(nothing, kept=True)
    def add_rows(self, rows: ColumnRows) -> None:
        """Hold these columns too, of any block, over this block's share of the examples."""
        self._shard.add(rows)

    @asked(total)
    def rows_sums(self, vectors: Sliced, position: Int64) -> Float64:
        """Xᵀr over this block's examples, and below it Σ w x².

        Here and below, a position is the number of a column among those held by example, in the order of `add_rows`.
        """
        return self._shard.sums(position, *vectors.vectors)

    @asked(total)
    def rows_slopes(self, vectors: Sliced, position: Int64) -> Float64:
        """Xᵀr over this block's examples."""
        return self._shard.slopes(position, *vectors.vectors)

    @asked(joined_arrays)
    def rows_product(self, position: Int64, d: Float64) -> Float64:
        """Xd over this block's examples."""
        return self._shard.product(position, d)

    @asked(total)
    def rows_gram(self, rows: WeightedRows, position: Int64, first_row: int) -> Float64:
        """XᵀWX over this block's examples, from a row on."""
        return self._shard.gram(position, rows.rows, first_row)

    # --- slopes of all features ---------------------------------------------------------------------------------

    def _begin(self, margins: Float64 | Point) -> None:
        """Take the margins; no slope is known yet."""
        self.set_margins(margins)
        if self._slopes.size != self.size:
            self._slopes = np.empty(self.size)
            self._sizes = np.full(self.size, -1, np.int64)
        self._visited = np.zeros(len(self._source.counts), np.int64)

    def _unvisited(self, wanted: Int64) -> Iterator[tuple[int, Columns]]:
        """Compute the slopes of so many columns of each stretch; gives those columns whose slopes were not known."""
        before = self._visited
        self._visited = np.maximum(wanted, before)
        chosen = np.flatnonzero(wanted > before).tolist()
        if not chosen:
            return
        at = self._at.expand(self._examples)
        for k, columns in self._read(chosen):
            first = int(self._prefix.starts[k] + before[k])
            columns = columns.part(int(before[k]), int(wanted[k]))
            columns.slopes(at.r, self._slopes[first : first + columns.count])
            if self._sizes[first + columns.count - 1] < 0:  # seen for the first time
                self._sizes[first : first + columns.count] = columns.sizes()
            yield first, columns

    def _list(
        self,
        listing: _Listing,
        first: int,
        columns: Columns,
        w: Float64,
        terms: Terms,
        share: float,
        beta: Float64 | None,
    ) -> Int64:
        """Note which of some columns are above a share of their threshold, or have coefficients; returns them."""
        out = np.empty(columns.count, np.int64)
        found, *violation = screening.above(self._slopes, first, columns.count, *terms, share, beta, out, 0)
        position = out[:found].copy()
        listing.position.append(position)
        listing.curvature.append(columns.curvature(position - first, w))
        listing.violation.append(Violation(*violation))
        return position

    def _listed(self, terms: Terms, share: float) -> tuple[Int64, Violation]:
        """Of all columns whose slopes are known, those above a share of their threshold, and the violation."""
        out = np.empty(self.size, np.int64)
        found, *violation = screening.above_in_stretches(
            self._slopes, self._prefix.starts, self._visited, *terms, share, out
        )
        return out[:found].copy(), Violation(*violation)

    def _lengths_of(self, position: Int64) -> Int64:
        """Of each stretch, how many columns there are up to the last of these positions, which must rise."""
        starts = self._prefix.starts
        last = np.searchsorted(position, starts[1:]) - 1
        here = (last >= 0) & (position[np.maximum(last, 0)] >= starts[:-1]) if position.size else last >= 0
        lengths: Int64 = np.zeros(starts.size - 1, np.int64)
        lengths[here] = position[last[here]] + 1 - starts[:-1][here]
        return lengths

    def _set(self, beta: Coefficients) -> None:
        """Take these coefficients, and forget any step."""
        self._beta[:] = 0.0
        self._beta[beta.position] = beta.value
        self._support, self._last = beta.position, Coefficients.empty()

    def _replace(self, beta: Coefficients) -> None:
        """Take these coefficients; the work is that of those which are not zero."""
        self._beta[self._support] = 0.0
        self._beta[beta.position] = beta.value
        self._support, self._last = beta.position, Coefficients.empty()

    # --- reading ------------------------------------------------------------------------------------------------

    @cached_property
    def _prefix(self) -> SafePrefix:
        self._check_count(sum(self._source.counts))
        holds = self._bounds is not None and self._examples.loss.BOUNDED
        bounds = self._penalty.in_lambdas(self._bounds) if holds and self._bounds is not None else None
        return SafePrefix(bounds, self._source.counts)

    def _terms_at(self, lam: float) -> Terms:
        """The penalty's arrays at λ, kept for the next call."""
        if self._terms is None or self._terms[0] != lam:
            self._terms = (lam, self._penalty.at(lam))
        return self._terms[1]

    def _among(self, position: Int64) -> Iterator[tuple[int, Columns, slice]]:
        """The stretches that hold some of these positions: where each begins, and which of the positions it holds."""
        starts = self._prefix.starts
        cuts = np.searchsorted(position, starts)
        for k, columns in self._read(np.flatnonzero(np.diff(cuts)).tolist()):
            yield int(starts[k]), columns, slice(int(cuts[k]), int(cuts[k + 1]))

    def _read(self, chosen: Iterable[int]) -> Iterator[tuple[int, Columns]]:
        """These stretches, each with its number; `chosen` may depend on what was read before."""
        taken: deque[int] = deque()

        def noted() -> Iterator[int]:
            for k in chosen:
                taken.append(k)
                yield k

        for columns in self._source.read(noted()):
            self._check_stretch(columns)
            yield taken.popleft(), columns

    def _columns(self) -> Iterator[tuple[int, Columns]]:
        """The source's columns, each stretch with the position of its first column."""
        first = 0
        for columns in self._source:
            self._check_stretch(columns, first)
            yield first, columns
            first += columns.count
        self._check_count(first)

    def _check_stretch(self, columns: Columns, first: int = 0) -> None:
        if columns.n != self._margins.size or first + columns.count > self.size:
            raise ValueError(
                f"the source gave {first + columns.count} columns or more over {columns.n} examples; "
                f"the block has {self.size} columns over {self._margins.size}"
            )

    def _check_count(self, found: int) -> None:
        if found != self.size:
            raise ValueError(f"the source gave {found} columns, the block has {self.size}")

    def _apply(self, step: Step | None) -> None:
        if step is None:
            return
        self._own_margins()
        vectors.move(self._margins, step.alpha, step.dmargins)
        self._at = Point(self._margins)  # what was known at the margins before is no longer so
        vectors.move_coefficients(self._beta, step.alpha, *self._last)
        self._last = Coefficients.empty()

    def _own_margins(self) -> None:
        """Copy the margins given: the block moves its own by each step, and the giver moves the others."""
        if not self._owns_margins:
            self._at, self._owns_margins = Point(self._margins.copy()), True

    def _residual(self) -> Float64:
        """r at the margins, with w in the block's own vectors where it has them, or else shared with other blocks."""
        if self._working.size == 0:
            return self._at.expand(self._examples).r
        # On this thread alone: other blocks of the process are at work on theirs.
        self._examples.loss.residuals(self._margins, self._examples.encoded, 0.0, *self._working)
        own: Float64 = self._working[0]
        return own

    def _make_room(self) -> None:
        """The vectors that cycles need and sweeps do without."""
        if self._paired.size == 0:
            n = self._examples.n
            self._working, self._paired, self._dmargins = np.empty((2, n)), np.empty((n, 2)), np.empty(n)
            self._moved, self._dbeta = np.empty(self.size, np.int64), np.empty(self.size)
