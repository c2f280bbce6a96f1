"""The certified mode, the default: subspace search over a working set, proved by sweeps over all features.

search        the outer loop for one λ: working set, subspace search, sweep, certificate
certificate   what is known of an iterate, and when it is good enough
subspace      prox-Newton steps over the working set, and a dual point for the certificate
quadratic     one quadratic model, minimised on the columns or on its Gram matrix
gram          Gram matrices, formed and updated
gram_problem  a quadratic model with its Gram matrix at hand
store         the driver's columns
sharing       where passes over them are made: by the driver, or by the blocks
shard         columns by example, as the blocks hold them for that
split         rounds split by feature, when the working set exceeds the memory for it
span          a search over several directions at once
tuning        the constants, each with its unit, its reason and what set it
"""

from __future__ import annotations

from solver.algorithms.certified.search import solve_path
from solver.options import DefaultOptions as Options

NAME = "default"
NEEDS = "columns"
INTERCEPT = True

__all__ = ["INTERCEPT", "NAME", "NEEDS", "Options", "solve_path"]
