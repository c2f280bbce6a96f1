"""The mathematics of d-GLMNET: regularised generalised linear models by parallel coordinate descent on blocks.

    losses/       ℓ(y, m): logistic, squared, probit; O(n) kernels, one file each
    penalty       λ(ρ f|β| + (1 − ρ) e β²/2): factors by feature, one soft threshold
    problem       the one place that adds the two; free: coordinates without a penalty, the intercept among them
    columns       how columns are kept; stretches: where they come from
    block, blocks one feature block; all of them, behind the one interface that algorithms see
    rows          data by example, for algorithms that learn online
    algorithms/   paper mode, the certified mode, truncated gradient, by name
    kernels/      numba over nonzeros and coefficients; compiling: what is compiled, and a clock without it
Knows numpy, scipy and numba. Where the blocks live is not its concern: `ThreadBlocks` are threads of this process.

A name is loaded when it is first asked for: a command's --help need not wait for numba. To add one, name it in three
places: where type checkers look, in `__all__`, and with its module in `_HOMES`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from solver.algorithms import ALGORITHMS, Algorithm, algorithm_of, find_algorithm, solve_path
    from solver.arrays import Coefficients
    from solver.block import Block, BlockUpdate, Descent, Step, Sweep
    from solver.blocks import Blocks, ThreadBlocks
    from solver.columns import Columns
    from solver.losses import LOSSES
    from solver.options import DefaultOptions, ProblemOptions, SolverOptions, TruncatedGradientOptions
    from solver.path import PathStart, falling, lambda_grid
    from solver.penalty import Penalty, Violation
    from solver.problem import Examples, Problem
    from solver.records import ConvergenceWarning, OnRound, RoundRecord, Solution
    from solver.rows import Rows, ThreadRows
    from solver.start import NullModel, make_problem, null_model, with_intercept
    from solver.stretches import ColumnSource, Stretches

__all__ = [
    "ALGORITHMS",
    "LOSSES",
    "Algorithm",
    "Block",
    "BlockUpdate",
    "Blocks",
    "Coefficients",
    "ColumnSource",
    "Columns",
    "ConvergenceWarning",
    "DefaultOptions",
    "Descent",
    "Examples",
    "NullModel",
    "OnRound",
    "PathStart",
    "Penalty",
    "Problem",
    "ProblemOptions",
    "RoundRecord",
    "Rows",
    "Solution",
    "SolverOptions",
    "Step",
    "Stretches",
    "Sweep",
    "ThreadBlocks",
    "ThreadRows",
    "TruncatedGradientOptions",
    "Violation",
    "algorithm_of",
    "falling",
    "find_algorithm",
    "lambda_grid",
    "make_problem",
    "null_model",
    "solve_path",
    "with_intercept",
]

_HOMES = {
    "ALGORITHMS": "solver.algorithms",
    "LOSSES": "solver.losses",
    "Algorithm": "solver.algorithms",
    "Block": "solver.block",
    "BlockUpdate": "solver.block",
    "Blocks": "solver.blocks",
    "Coefficients": "solver.arrays",
    "ColumnSource": "solver.stretches",
    "Columns": "solver.columns",
    "ConvergenceWarning": "solver.records",
    "DefaultOptions": "solver.options",
    "Descent": "solver.block",
    "Examples": "solver.problem",
    "NullModel": "solver.start",
    "OnRound": "solver.records",
    "PathStart": "solver.path",
    "Penalty": "solver.penalty",
    "Problem": "solver.problem",
    "ProblemOptions": "solver.options",
    "RoundRecord": "solver.records",
    "Rows": "solver.rows",
    "Solution": "solver.records",
    "SolverOptions": "solver.options",
    "Step": "solver.block",
    "Stretches": "solver.stretches",
    "Sweep": "solver.block",
    "ThreadBlocks": "solver.blocks",
    "ThreadRows": "solver.rows",
    "TruncatedGradientOptions": "solver.options",
    "Violation": "solver.penalty",
    "algorithm_of": "solver.algorithms",
    "falling": "solver.path",
    "find_algorithm": "solver.algorithms",
    "lambda_grid": "solver.path",
    "make_problem": "solver.start",
    "null_model": "solver.start",
    "solve_path": "solver.algorithms",
    "with_intercept": "solver.start",
}

if not TYPE_CHECKING:  # a type checker would take it for "any name will do"

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
