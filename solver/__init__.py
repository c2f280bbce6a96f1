"""The mathematics of d-GLMNET: regularised generalised linear models by parallel coordinate descent on blocks.

    losses/       ℓ(y, m): logistic, squared, probit; O(n) kernels, one file each
    penalty       λ(ρ f|β| + (1 − ρ) e β²/2): factors by feature, one soft threshold
    problem       the one place that adds the two; free: coordinates without a penalty, the intercept among them
    columns       how columns are kept; stretches: where they come from
    block, blocks one feature block; all of them, behind the one interface that algorithms see
    rows          data by example, for algorithms that learn online
    algorithms/   paper mode, the certified mode, truncated gradient, by name
    kernels/      numba over nonzeros and coefficients
Knows numpy, scipy and numba. Where the blocks live is not its concern: `ThreadBlocks` are threads of this process.
"""

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
