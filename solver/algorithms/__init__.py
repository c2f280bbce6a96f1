"""The algorithms, by name. Each is a module with
    NAME, Options       what it is called; the dataclass it is run with
    NEEDS               "columns", the blocks of solver/blocks.py, or "rows", the parts of solver/rows.py
    INTERCEPT           does a fit have an intercept unless told otherwise?
    solve_path(blocks, problem, lambdas, options, null, start, on_round, on_state)
                        the solutions, each as soon as it is there. If the algorithm carries more than coefficients from
                        λ to λ, on_state gets that as well, once a solution has been taken. One by example gets rows
                        in place of blocks, and also on_pass, which it gives β after each pass
Whoever runs one goes through `solve_path` here and asks for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from solver.options import DefaultOptions, SolverOptions, TruncatedGradientOptions
from solver.registry import Registry

if TYPE_CHECKING:
    from solver.blocks import Blocks
    from solver.path import OnPass, OnState, PathStart
    from solver.problem import Problem
    from solver.records import OnRound, Solution
    from solver.rows import Rows
    from solver.start import NullModel


class Algorithm(Protocol):
    """What every algorithm module has."""

    NAME: str
    NEEDS: str
    INTERCEPT: bool
    Options: type[Any]

    solve_path: Callable[..., Iterator[Solution]]


ALGORITHMS: Registry[Algorithm] = Registry(
    {
        "default": "solver.algorithms.certified",
        "paper": "solver.algorithms.paper",
        "truncated-gradient": "solver.algorithms.truncated_gradient",
    }
)
# What each is run with. Apart from its module: a command knows its options before anything slow is loaded.
OPTIONS: Mapping[str, type[Any]] = {
    "default": DefaultOptions,
    "paper": SolverOptions,
    "truncated-gradient": TruncatedGradientOptions,
}


def find_algorithm(name: str) -> Algorithm:
    if name not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {name!r}")
    return ALGORITHMS[name]


def algorithm_of(options: Any) -> Algorithm:
    """The algorithm that takes these options."""
    for algorithm in ALGORITHMS.values():
        if type(options) is algorithm.Options:
            return algorithm
    raise ValueError(f"no algorithm takes {type(options).__name__}")


def solve_path(
    blocks: Blocks | Rows,
    problem: Problem,
    lambdas: Sequence[float],
    options: Any,
    *,
    null: NullModel | None = None,
    start: PathStart | None = None,
    on_round: OnRound | None = None,
    on_state: OnState | None = None,
    on_pass: OnPass | None = None,
) -> Iterator[Solution]:
    """Solve for each λ in turn, by the algorithm of the options, and yield as soon as it is done.

    null: the model at λmax, if it is known. start: to take up a path, the same lambdas, how many are done, and the last
    coefficients. on_state: called after a solution has been taken, where an algorithm has a state.
    on_pass: called after each pass of an algorithm by example, which is given rows, and must be given the null model.
    """
    from solver.path import PathStart, falling
    from solver.rows import Rows
    from solver.start import null_model

    if list(lambdas) != falling(lambdas):
        raise ValueError("lambdas must fall, each value once")
    algorithm, start = algorithm_of(options), start or PathStart()
    if isinstance(blocks, Rows):
        yield from algorithm.solve_path(blocks, problem, lambdas, options, null, start, on_round, on_state, on_pass)
        return
    blocks.set_penalty(problem.penalty)
    null = null_model(blocks, problem) if null is None else null
    start = replace(start, betas=tuple(problem.feasible(beta) for beta in start.betas))
    yield from algorithm.solve_path(blocks, problem, lambdas, options, null, start, on_round, on_state)
