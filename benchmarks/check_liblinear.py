"""Paper mode run to tightness, against scikit-learn's LIBLINEAR run to tightness, on small real data sets.

    python -m benchmarks.check_liblinear --data DIR

DIR holds heart_scale, a9a, rcv1_small.train.svm and allaml.svm. For λmax/2^k, k = 2, 6, 10, and 1, 2 and 5 blocks of
neighbouring features: the relative difference of the objectives, and the rounds from β = 0 to within 1e-6.
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression

from solver import Examples, Penalty, Problem, RoundRecord, SolverOptions, ThreadBlocks, null_model, solve_path

FILES = ("heart_scale", "a9a", "rcv1_small.train.svm", "allaml.svm")


def liblinear_objective(X: object, y: np.ndarray, lam: float) -> float:
    model = LogisticRegression(
        l1_ratio=1.0, C=1 / lam, solver="liblinear", fit_intercept=False, tol=1e-12, max_iter=3000, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it often stops at its limit, where its objective moves no more
        beta = model.fit(X, y).coef_[0]
    return float(np.logaddexp(0, -y * (X @ beta)).sum() + lam * np.abs(beta).sum())


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="Folder with the data sets.")
def main(data: Path) -> None:
    """Print a table."""
    click.echo("| data | λ | largest relative difference | rounds to 1e-6 with 1, 2, 5 blocks |")
    click.echo("|---|---|---|---|")
    for name in FILES:
        X, labels = load_svmlight_file(str(data / name))
        X, y = X.astype(np.float32).tocsc(), np.where(labels > labels.min(), 1.0, -1.0)
        problem = Problem(Examples.of(y), Penalty(X.shape[1]))
        for k in (2, 6, 10):
            with ThreadBlocks.from_csc(X, problem.examples, 1) as one:
                lam = null_model(one, problem).lambda_max / 2**k
            best = liblinear_objective(X.astype(np.float64), y, lam)
            worst, rounds = -np.inf, []
            for count in (1, 2, 5):
                trace: list[RoundRecord] = []
                with ThreadBlocks.from_csc(X, problem.examples, count) as blocks:
                    options = SolverOptions.paper(tol=1e-11, max_rounds=50_000)
                    (solution,) = solve_path(blocks, problem, [lam], options, on_round=trace.append)
                worst = max(worst, (solution.objective - best) / best)
                close = (record.round for record in trace if record.objective <= best * (1 + 1e-6))
                rounds.append(str(next(close, "not")))
                objectives = [record.objective for record in trace]
                assert all(a >= b for a, b in pairwise(objectives)), "an objective rose"
            click.echo(f"| {name} | λmax/2^{k} | {worst:.1e} | {', '.join(rounds)} |")


if __name__ == "__main__":
    main()
