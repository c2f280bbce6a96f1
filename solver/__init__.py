"""The mathematics of d-GLMNET: L1-regularised logistic regression by parallel coordinate descent on blocks.

Knows numpy, scipy and numba. Where the blocks live is not its concern: they are behind the `Blocks`
interface, which `ThreadBlocks` implements in this process.
"""

from solver.arrays import Coefficients
from solver.block import Block, BlockUpdate, Descent, Step, Sweep
from solver.blocks import Blocks, ThreadBlocks
from solver.certified import CertifiedSearch, certified_path
from solver.columns import Columns
from solver.dglmnet import ConvergenceWarning, OnRound, RoundRecord, Solution, solve
from solver.examples import Examples
from solver.gap import duality_gap
from solver.options import DefaultOptions, SolverOptions
from solver.path import falling, lambda_grid, lambda_max, solve_path
from solver.source import ColumnSource, Stretches

__all__ = [
    "Block",
    "BlockUpdate",
    "Blocks",
    "CertifiedSearch",
    "Coefficients",
    "ColumnSource",
    "Columns",
    "ConvergenceWarning",
    "DefaultOptions",
    "Descent",
    "Examples",
    "OnRound",
    "RoundRecord",
    "Solution",
    "SolverOptions",
    "Step",
    "Stretches",
    "Sweep",
    "ThreadBlocks",
    "certified_path",
    "duality_gap",
    "falling",
    "lambda_grid",
    "lambda_max",
    "solve",
    "solve_path",
]
