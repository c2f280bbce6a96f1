"""The constants of the certified search: what each one is, its unit, why it is there, and which measurement set it.

Each group is a frozen dataclass with one instance, used as NEWTON.stale_weights. A field name occurs in one group only.
"Measured" cites docs/tuning.md or the history of the code. "Not measured by itself" means that no record tells the
constant apart from the others: it was chosen, and the whole was measured with it.

WORKING_SET      which features the search works on
ACCURACY         how exactly each search over a working set is solved
STEPPING_STONES  intermediate λ on the way to a far one
ESTIMATE         the estimate of the suboptimality
NEWTON           prox-Newton steps over the working set
DUAL_POINT       the dual point for the certificate
MODEL            one quadratic model, minimised on the columns
STIFF            the stiffest columns of a model
GRAM_CHOICE      columns or Gram matrix?
GRAM_MATRIX      Gram matrices, formed and updated
GRAM_PROBLEM     a quadratic model with its Gram matrix at hand: faces and ADMM
STORE            the driver's columns
SPLIT_ROUNDS     rounds split by feature
SPAN             the search over several directions
ROUNDING         what floating-point arithmetic cannot tell from zero

The blocks' own constants are in solver/batches.py (BLOCK_DESCENT): workers need them without this package.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkingSetTuning:
    """Which features the search works on."""

    # A feature joins the first working set of a λ when its slope is above this share of its threshold. Measured: 0.5
    # took fewer rounds but more time (docs/tuning.md, what was left out).
    enter_share: float = 0.8
    # When more than this share of all features would enter, all of them do, if the store has room: a second search
    # for a handful of late features costs more. Measured: dense look-alike of 20,000 × 2,000, two λ in 2.0 s instead
    # of 3.6 s, together with dense columns taken four at a time.
    take_all_share: float = 0.5
    # Most features that one block proposes in one sweep. It bounds the answer that the driver receives. Not measured
    # by itself.
    max_proposed: int = 1_000_000
    # Share of the free memory that the store may take when the user sets no budget. Not measured by itself.
    memory_share: float = 0.25
    # When the budget cuts a later working set down, at least this share of the new features must fit. With fewer the
    # search is given up for split rounds. Not measured by itself.
    least_new_share: float = 0.5
    # After a λ that was beyond the budget: when the columns of β alone take this share of the budget, the next λ goes
    # straight to split rounds. Not measured by itself.
    skip_search_share: float = 0.5


@dataclass(frozen=True)
class AccuracyTuning:
    """How exactly each search over a working set is solved."""

    # Share of tol (or of gap) that the first search of a λ may leave. Not measured by itself.
    first_share: float = 0.5
    # Share of tol (or of gap) that a later search may leave, after new features joined. Not measured by itself.
    later_share: float = 0.3
    # Factor on the share of tol when a search was not exact enough though no feature joined. Not measured by itself.
    tighten: float = 0.1
    # Share of max_gap that the gap of the working set may reach in a later search: features outside add to it. Not
    # measured by itself.
    max_gap_share: float = 0.8
    # Newton steps, at most, over the part of a working set that fits beside split rounds: the next round changes the
    # other features anyway. Not measured by itself.
    part_steps: int = 5
    # Share of tol that the search over the part that fits beside split rounds may leave. Not measured by itself.
    part_share: float = 0.1


@dataclass(frozen=True)
class SteppingStonesTuning:
    """Intermediate λ on the way to a far one."""

    # Largest ratio of one λ to the next: beyond it, slopes say too little about which features will matter. Measured:
    # stones, as a whole, brought imdb at λmax/2¹⁴ alone from 11.8 s to 3.5 s.
    max_ratio: float = 8.0
    # Share of f that the search at a stone may leave. Stones are not certified. Not measured by itself.
    stone_tolerance: float = 0.01


@dataclass(frozen=True)
class EstimateTuning:
    """The estimate of the suboptimality (docs/tuning.md, Stopping)."""

    # Features outside the working set may gain this many times what they gain one at a time. Measured: raised from 2,
    # with `unseen_violation` and `doubling_weight_error`: on 6,480 solutions of hard data the worst true distance
    # fell from 3 tol to 0.7 tol.
    outside_factor: float = 20.0
    # A feature that no model has contained violates when its slope is above its threshold by this share of it. Its
    # single gain is then not trusted. Measured: see `outside_factor`; a feature that violated by 5 % and alone would
    # have gained 0.05 tol brought 2.4 tol together with others.
    unseen_violation: float = 0.02
    # Factor on the extrapolated gain of further Newton steps. Measured with the whole estimate
    # (benchmarks.check_estimate), not by itself.
    newton_safety: float = 2.0
    # Least remaining gain, as a multiple of the last step's gain, after a step by the Gram matrix. Not measured by
    # itself.
    least_left_by_gram: float = 0.25
    # Least remaining gain, as a multiple of the last step's gain, after a step by cycles: they stop short of slow
    # directions. Measured with `cg_least_iterations` and `least_gain`: words of power-law frequency had reached 1.1
    # tol at tol 1e-5, and reach 0.13 tol.
    least_left_by_cycles: float = 2.0
    # The remaining gain grows by 100 % for each such relative error of the Gram matrix's weights, which hides slow
    # directions. Measured: see `outside_factor`.
    doubling_weight_error: float = 0.05
    # Factor on the duality gap of the quadratic model. Measured: before the gap was used, columns 100 and 1000
    # standard deviations from zero reached 2.6 tol and 11 tol; the factor itself was not measured.
    model_gap_factor: float = 2.0
    # Ratio of successive gains, at most, when Newton steps are extrapolated: the sum stays finite. Not measured by
    # itself.
    slowest_newton_pace: float = 0.95
    # Ratio of successive gains that is assumed after a single step. Not measured by itself.
    first_newton_pace: float = 0.5


@dataclass(frozen=True)
class NewtonTuning:
    """Prox-Newton steps over the working set."""

    # Newton steps of one search, at most. Not measured by itself.
    max_newton_steps: int = 100
    # A Gram matrix serves again while the weights changed by no more than this, relative to their sum. Not measured
    # by itself; 0.25 before updates existed.
    stale_weights: float = 0.15
    # Factor on `stale_weights` after a slow step. Not measured by itself.
    stale_weights_shrink: float = 0.1
    # A step is slow when it gains more than this share of the step before: a better Gram matrix would help. Not
    # measured by itself.
    slow_ratio: float = 0.3
    # Turns of cycles and conjugate gradients on one quadratic model, at most. Measured: 3 at first, doubled after full
    # steps, or 10 from the first on made no difference (docs/tuning.md, ablation).
    max_turns: int = 10
    # A cycle that gains less than this share of the model's gain so far ends the step. Not measured by itself.
    cycle_share: float = 0.1
    # A cycle that gains less than this share of the model's gain so far ends the step once only the gap is left to
    # close. Not measured by itself.
    cycle_share_fine: float = 0.01
    # A cycle that gains less than this share of what the search may leave ends the step. Measured: see
    # ESTIMATE.least_left_by_cycles.
    least_gain: float = 0.01
    # Newton steps close in fast when one gains less than this share of the step before. Measured with `wide_gap`:
    # webspam look-alike in two thirds of the time.
    fast_ratio: float = 0.1
    # A relative gap above this is left to one more Newton step where steps close in fast. Measured: see `fast_ratio`.
    wide_gap: float = 0.2


@dataclass(frozen=True)
class DualPointTuning:
    """The dual point for the certificate."""

    # Projections towards a better dual point, at most. Measured: dual points, as a whole, brought the path of twenty
    # λ on imdb from 36 passes to 28.
    max_projections: int = 4
    # Relative gap that is aimed for when the search asked for none: a little below the default max_gap of 1e-2. Not
    # measured by itself.
    default_gap: float = 8e-3
    # A cycle that gains less than this share of the projection's gain so far ends it. Not measured by itself.
    projection_cycle_share: float = 0.01
    # Slopes may stay above their threshold by this share of the gap aimed for: the scaling then costs less than the
    # gap. Not measured by itself.
    slack_share: float = 0.5


@dataclass(frozen=True)
class ModelTuning:
    """One quadratic model, minimised on the columns."""

    # Cycles of coordinate descent in the first turn: they find the face. Not measured by itself.
    first_cycles: int = 3
    # Cycles in a turn where conjugate gradients do not help. Not measured by itself.
    cycles_alone: int = 10
    # When a cycle gains less than this share of the cycle before, conjugate gradients are not needed. Not measured by
    # itself.
    cycles_fast_ratio: float = 0.1
    # Iterations of conjugate gradients on a face, at most. Not measured by itself.
    cg_iterations: int = 40
    # Iterations of conjugate gradients, at least: the first gain little even when slow directions are left. Measured:
    # see ESTIMATE.least_left_by_cycles.
    cg_least_iterations: int = 4
    # Conjugate gradients stop at this share of the share that ends the cycles. Not measured by itself.
    cg_share: float = 0.1
    # Step sizes along the face, tried in turn until the model falls. Not measured by itself.
    face_step_sizes: tuple[float, ...] = (1.0, 0.25, 0.0625)
    # A joint step is taken whole when the model falls along it, at first, by this share of its curvature: 1 is the best
    # step, and a whole step keeps zeros exact. Not measured by itself.
    full_step_fall: float = 0.75
    # A coefficient at zero takes part in a Newton step when its slope is above this share of its threshold. Not
    # measured by itself.
    include_share: float = 0.9
    # Factor on the stopping limits when the Gram matrix is at hand: accuracy is cheap there. Not measured by itself.
    gram_accuracy: float = 0.01
    # A column's curvature in the Gram matrix must be at least this share of the true one. Otherwise the true one
    # replaces it: a feature of light examples alone would step too far. Not measured by itself.
    least_curvature_share: float = 0.5


@dataclass(frozen=True)
class StiffTuning:
    """The stiffest columns of a model, minimised together. Costs are in units of one entry of a column in a cycle."""

    # Columns, at most. Measured: webspam look-alike of 31,500 rows, three λ of 8,000 to 13,000 features, CPU seconds
    # 47 without, 25 with 50 columns, 18 with 150, 13 with 300, 22 with 600.
    max_stiff: int = 400
    # Fewer columns are left to cycles. Not measured by itself.
    least_stiff: int = 16
    # Columns that the matrix may have, as a multiple of those wanted: columns that enter are added. Not measured by
    # itself.
    max_kept: float = 1.5
    # Cycles over all columns that their Gram matrix may cost. Not measured by itself.
    matrix_cycles: float = 3.0
    # Share of a cycle over all columns that a solve with the matrix may cost. Not measured by itself.
    solve_share: float = 0.5
    # What a solve costs: this, and so much times the cube of the columns. Not measured by itself.
    solve_cost: float = 2e6
    solve_cost_cubed: float = 0.05


@dataclass(frozen=True)
class GramChoiceTuning:
    """Is a model minimised on its columns or on its Gram matrix?"""

    # Time of one multiplication by BLAS, in units of the time that a cycle takes for one entry of a column. No record
    # of the measurement.
    multiplication_cost: float = 0.008
    # Cycles over the columns that a Gram matrix spares. Not measured by itself.
    cycles_spared: int = 30
    # Factor on `cycles_spared` when a Gram matrix of most of the features exists. Not measured by itself.
    extension_factor: int = 3


@dataclass(frozen=True)
class GramMatrixTuning:
    """Gram matrices, formed and updated."""

    # Up to this many multiplications a Gram matrix is formed anew for each step, of all examples: nothing is saved by
    # an update. Not measured by itself.
    always_fresh: int = 10**8
    # Examples in one float32 product. It bounds the scaled copy of the columns. Not measured by itself.
    examples_at_a_time: int = 4096
    # Examples that are worth waking a thread for. Not measured by itself.
    examples_per_thread: int = 128
    # New columns, as a share of those there are, up to which a matrix is extended. Not measured by itself.
    max_new_share: float = 0.25
    # A matrix with more than this many times the columns wanted drops the others before it is updated. Not measured
    # by itself.
    crowded: float = 1.4
    # Share of the allowed change of weights that a fresh matrix may leave out. Measured: leaving out 5 % of the
    # weights themselves made features of light examples step too far (docs/tuning.md); this is a share of a share.
    fresh_left_out: float = 0.05
    # Share of the allowed change of weights that an update may leave out. Not measured by itself.
    update_left_out: float = 0.1
    # Share of the allowed change of weights that sampling examples may add as an error, about √(columns / examples).
    # Not measured by itself.
    sample_error_share: float = 2 / 3
    # A sample is taken when there are this many times as many examples. Not measured by itself.
    sample_worth: float = 2.0
    # A Gram matrix may have at least this many columns, however small the budget. Not measured by itself.
    least_columns: int = 256
    # Columns of a Gram matrix, at most. Below it, the matrix may take as many bytes as the store's budget. Not
    # measured by itself.
    max_columns: int = 3000
    # Bytes for each entry of the matrix while it is formed: six float64. Not measured by itself.
    bytes_per_entry: int = 6 * 8


@dataclass(frozen=True)
class GramProblemTuning:
    """A quadratic model with its Gram matrix at hand: cycles, exact face solves, and ADMM."""

    # Cycles of coordinate descent before a face is solved exactly. Not measured by itself.
    cycles_per_face: int = 20
    # Multiplications that all face solves together may take, each counted as k³ for k columns. Not measured by
    # itself.
    face_work: float = 3e10
    # Least and largest number of face solves allowed, whatever `face_work` says. Not measured by itself.
    face_limits: tuple[int, int] = (10, 200)
    # ADMM may take over after this many turns of cycles and a face solve. Measured, ADMM as a whole: 1,236 features
    # that share five factors were solved to 1e-8 in 0.07 s, where 400 faces, 11 s, had come to 0.5 %; 20,000 × 2,000
    # with five factors took 21 s for twenty λ instead of minutes for one.
    slow_turns: int = 2
    # ADMM takes over when a later turn gains less than this share of the duality gap. Not measured by itself.
    slow_gain: float = 0.5
    # Fall back to ADMM when more than 20 % of the allowed face solves ended, one after another, with a sign change.
    # Not measured by itself.
    sign_change_share: float = 0.2
    # Steps of ADMM, at most. Not measured by itself.
    admm_steps: int = 200
    # ADMM ends when steps and residuals are below this share of the largest coefficient. Not measured by itself.
    admm_tolerance: float = 1e-7
    # Over-relaxation of ADMM, between 1 and 2. Not measured by itself.
    admm_relaxation: float = 1.6


@dataclass(frozen=True)
class StoreTuning:
    """Passes over the driver's columns."""

    # Entries of columns that are worth waking a thread for. Not measured by itself.
    entries_per_thread: int = 100_000
    # Values of a dense column that cost as much as one entry of a sparse one. Not measured by itself.
    dense_values_per_entry: int = 4
    # Bits of a column that cost as much as one entry of a sparse one. Measured: 0.09 ns a bit, four columns at a time,
    # where an entry takes 0.4 to 0.8 ns (benchmarks/bench_kernel.py).
    bits_per_entry: int = 8
    # Most threads that a stored state may ask for: it is read from a file, and no machine has as many.
    max_threads: int = 4096


@dataclass(frozen=True)
class SharingTuning:
    """Seconds of work that the driver does itself or has done by the blocks (sharing.py)."""

    # Of an entry of a column in a pass. Measured: 0.4 to 0.8 ns in a list, quiet (benchmarks/bench_kernel.py).
    entry: float = 0.7e-9
    # Of an entry in a cycle, which also writes. Not measured by itself.
    cycle_entry: float = 1.5e-9
    # Of a multiplication of a Gram matrix: BLAS, float32, one core. Not measured by itself.
    multiplication: float = 2e-11
    # Of a question to all workers. Measured by hand: 4 to 7 ms with short vectors, four workers, on a busy machine. No
    # benchmark keeps it.
    call: float = 4e-3
    # Bytes of a number in a message.
    number: int = 8
    # Times that columns which are sent to be held by example are used, at least. Not measured by itself.
    uses_to_come: int = 10
    # Columns that are held by example, at most: more of them are worked on by feature. As for Gram matrices.
    most_by_example: int = 3000
    # Bytes of columns that are sent at a time. It bounds the copies under way.
    piece_bytes: int = 1 << 28


@dataclass(frozen=True)
class SplitRoundsTuning:
    """Rounds split by feature."""

    # Cycles over the active features of a block in the first round. Not measured by itself.
    block_cycles: int = 4
    # Cycles over the active features of a block, at most. Not measured by itself.
    max_block_cycles: int = 32
    # Cycles double when the line search takes at least this step size. Not measured by itself.
    double_cycles_from: float = 0.9
    # Cycles halve when the line search takes less than this step size. Not measured by itself.
    halve_cycles_below: float = 0.5
    # Last steps in the span, at most. Measured, split rounds as a whole: splice without any store, two blocks, ten λ,
    # took 103 rounds instead of 447.
    max_span_steps: int = 32
    # Last steps in the span, at least, whatever memory they take. Not measured by itself.
    least_span_steps: int = 8
    # Bytes of the driver's memory that the last steps may take, but for the least number. Not measured by itself.
    span_steps_bytes: int = 1 << 28
    # Directions of blocks in the span, at most: neighbouring blocks share one. Not measured by itself.
    block_directions: int = 4
    # α = 1 keeps zeros exact. It is taken when it costs at most this share of the round's gain. Not measured by
    # itself.
    full_step_share: float = 0.1
    # A search over the span must gain this share of what the round has gained. Not measured by itself.
    span_gain_share: float = 0.1
    # Rounds over which the pace is measured, at least: rounds gain by fits and starts. Not measured by itself.
    pace_rounds: int = 5
    # Share of all rounds at a λ over which the pace is measured, at least. Measured: five poor rounds in ninety had
    # left twice tol to gain (tests/solver/algorithms/test_certified.py, wide factors, seed 31).
    pace_rounds_share: float = 1 / 8
    # Factor on the extrapolated gain of further rounds. Measured: 90 random data sets of twelve λ without a store: at
    # most 0.24 tol at tol 1e-4; a factor of 6 had left 1.7 tol.
    pace_safety: float = 60.0
    # Ratio of successive gains, at most, when rounds are extrapolated. Not measured by itself.
    slowest_round_pace: float = 0.99
    # Rounds without a decrease of f that end the iteration. Not measured by itself.
    stuck_rounds: int = 3


@dataclass(frozen=True)
class SpanTuning:
    """The search over the span of several directions."""

    # Σ|c|, at most, of the combination c of directions. Measured: without a limit, margins were off by 1e-8 and f by
    # 3e-7 of itself after some rounds (tests/solver/test_problems.py, beyond the budget).
    largest_combination: float = 1e4
    # ε of √(β² + ε²), as a share of how far a coefficient may move; from coarse to fine. Not measured by itself.
    smoothing: tuple[float, ...] = (1e-1, 1e-2, 1e-3)
    # Newton steps for each ε. Not measured by itself.
    span_newton_steps: int = 3
    # Step sizes tried along a Newton step, from 1 down to 1/64. Not measured by itself.
    span_step_sizes: tuple[float, ...] = tuple(2.0**-k for k in range(7))
    # Examples that one product takes. It bounds the copy of the directions. Not measured by itself.
    span_examples: int = 65_536
    # Coordinates along the directions, at most: beyond, rounding in a direction's margins shows in the result. Not
    # measured by itself.
    max_coordinate: float = 1e4
    # Shares of a direction's own curvature added to the diagonal, tried in turn until the step stays below
    # `max_coordinate`. Measured: with a column twice and λ far below λmax, about ten rounds instead of hundreds.
    ridges: tuple[float, ...] = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)


@dataclass(frozen=True)
class RoundingTuning:
    """Limits of floating-point arithmetic: reasoned, not measured."""

    # A relative rise of f below this is none. About 50 times the spacing of float64.
    objective: float = 1e-14
    # A duality gap of the quadratic model below this share of its L1 term is zero.
    model_gap: float = 1e-14
    # A relative slack in the ratio of two λ, so that a grid of exact ratios needs no extra stone.
    lambda_ratio: float = 1e-9
    # Smallest weight of an example: examples far on one side leave the model bounded.
    least_weight: float = 1e-10
    # Curvature along a direction below this share of what orthogonal columns would have is none.
    flat: float = 1e-6
    # Share of a column's curvature about its mean that is added to a Gram matrix's diagonal: float32 products must
    # leave no direction flat.
    gram_ridge: float = 1e-6
    # Share of a column's whole curvature that is added to a Gram matrix's diagonal: more than float64 sums lose.
    sums_ridge: float = 1e-11
    # Limits of a column's size when it is scaled for float32 products.
    column_sizes: tuple[float, float] = (1e-30, 1e30)
    # Singular values below this share of the largest are zero: unpenalised columns may depend on each other.
    rank: float = 1e-12


WORKING_SET = WorkingSetTuning()
ACCURACY = AccuracyTuning()
STEPPING_STONES = SteppingStonesTuning()
ESTIMATE = EstimateTuning()
NEWTON = NewtonTuning()
DUAL_POINT = DualPointTuning()
MODEL = ModelTuning()
STIFF = StiffTuning()
GRAM_CHOICE = GramChoiceTuning()
GRAM_MATRIX = GramMatrixTuning()
GRAM_PROBLEM = GramProblemTuning()
STORE = StoreTuning()
SHARING = SharingTuning()
SPLIT_ROUNDS = SplitRoundsTuning()
SPAN = SpanTuning()
ROUNDING = RoundingTuning()
