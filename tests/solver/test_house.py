"""How solver/ is built: a loss is one module, nothing is written twice, compiled kernels follow their folder."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import LinearSVC

from solver import (
    ALGORITHMS,
    LOSSES,
    DefaultOptions,
    Examples,
    Penalty,
    Problem,
    SolverOptions,
    ThreadBlocks,
    null_model,
    solve_path,
)
from solver.kernels import columns, compiled, descent, penalty, vectors
from tests.solver.independent import Reference

SOLVER = Path(compiled.__file__).parents[1]


def of_the_docs(number: int, folder: Path) -> Any:
    """The module that a block of code in docs/extending.md is."""
    text = (SOLVER.parent / "docs" / "extending.md").read_text()
    code = [piece.split("```")[0] for piece in text.split("```python\n")[1:]][number]
    path = folder / f"of_the_docs_{number}.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def squared_hinge(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return of_the_docs(0, tmp_path_factory.mktemp("docs"))


# --- adding a loss --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize(
    "options",
    [
        DefaultOptions(gap=1e-7),
        DefaultOptions(gap=1e-6, subspace_memory=0, max_rounds=2000),
        SolverOptions.paper(tol=1e-12, max_rounds=5000),
    ],
    ids=["certified", "beyond the budget", "paper"],
)
def test_a_module_in_the_registry_is_all_that_a_new_loss_takes(
    monkeypatch: pytest.MonkeyPatch, squared_hinge: Any, options: Any, ratio: float, intercept: bool
) -> None:
    monkeypatch.setitem(LOSSES, squared_hinge.NAME, squared_hinge)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 8)).astype(np.float32).astype(float)
    y = np.where(X[:, 0] - X[:, 1] + 0.5 + rng.normal(size=120) > 0, 1.0, -1.0)
    examples = Examples.of(y, None, squared_hinge.NAME)
    problem = Problem(examples, Penalty(8, ratio), intercept)
    reference = Reference(X, y, np.ones(120), squared_hinge.NAME, ratio, intercept=intercept)
    with ThreadBlocks.from_csc(sparse.csc_matrix(X.astype(np.float32)), examples, 2) as blocks:
        null = null_model(blocks, problem)
        found = list(solve_path(blocks, problem, [null.lambda_max * 0.5**k for k in (1, 3, 5)], options, null=null))
    for one in found:
        beta, _, optimum = reference.minimise(one.lam)
        assert one.converged
        assert one.objective == pytest.approx(optimum, rel=1e-6)
        assert one.objective - optimum <= one.gap + 1e-9 * optimum
        if ratio == 1.0 and not intercept:  # as LIBLINEAR has it, twice the loss
            theirs = LinearSVC(
                penalty="l1", C=0.5 / one.lam, dual=False, fit_intercept=False, tol=1e-9, max_iter=10_000
            )
            np.testing.assert_allclose(one.beta.dense(8), theirs.fit(X, y).coef_[0], atol=2e-4)
            np.testing.assert_allclose(beta, theirs.coef_[0], atol=2e-4)


def test_the_penalty_of_the_docs_keeps_coefficients_below_zero(tmp_path: Path) -> None:
    X, y = _small()
    examples = Examples.of(y)
    problem = Problem(examples, of_the_docs(1, tmp_path).NonPositive(8), intercept=True)
    mirrored = Problem(examples, Penalty(8, nonnegative=True), intercept=True)
    with ThreadBlocks.from_csc(sparse.csc_matrix(X), examples, 2) as blocks:
        found = list(solve_path(blocks, problem, [2.0, 0.5], DefaultOptions(gap=1e-8)))
    with ThreadBlocks.from_csc(sparse.csc_matrix(-X), examples, 2) as blocks:
        turned = list(solve_path(blocks, mirrored, [2.0, 0.5], DefaultOptions(gap=1e-8)))
    for one, other in zip(found, turned, strict=True):
        assert one.converged and one.nonzeros and (one.beta.value < 0).all()
        np.testing.assert_allclose(one.beta.dense(8), -other.beta.dense(8), atol=1e-6)


def test_the_algorithm_of_the_docs_finds_the_same_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gradient = of_the_docs(2, tmp_path)
    monkeypatch.setitem(ALGORITHMS, gradient.NAME, gradient)
    X, y = _small()
    examples = Examples.of(y)
    problem = Problem(examples, Penalty(8, 0.8))
    with ThreadBlocks.from_csc(sparse.csc_matrix(X), examples, 2) as blocks:
        found = list(solve_path(blocks, problem, [8.0, 2.0], gradient.Options(step=0.02, max_rounds=3000)))
        exact = list(solve_path(blocks, problem, [8.0, 2.0], DefaultOptions(gap=1e-9)))
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_allclose(one.beta.dense(8), other.beta.dense(8), atol=1e-4)
        assert 0 <= one.gap <= 1e-8


def _small() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 8)).astype(np.float32)
    return X, np.where(X[:, 0] - X[:, 1] + 0.5 + rng.normal(size=120) > 0, 1.0, -1.0)


# --- nothing is written twice ---------------------------------------------------------------------------------------

SAME = 6
"""Lines in a row that may not stand twice.

A call of a kernel with its dozen arrays takes three or four. Six in a row is a body that was copied, and should be a
function: where kernels differ in what they sum, numba compiles one body for each choice of arguments that are None.
"""


def passed_over(tree: ast.AST) -> Iterator[int]:
    """The lines of imports, of signatures and of decorators: they repeat as they must."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            yield from range(first, node.body[0].lineno)


def lines_of(path: Path) -> list[tuple[int, str]]:
    """The lines that count, stripped, with their numbers."""
    text = path.read_text()
    without = set(passed_over(ast.parse(text)))
    stripped = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if number not in without)
    return [(number, line) for number, line in stripped if line and not line.startswith("#")]


def copies(paths: list[Path], same: int) -> list[str]:
    """Where so many lines in a row stand that have stood before."""
    seen: dict[tuple[str, ...], str] = {}
    found = []
    for path in paths:
        lines = lines_of(path)
        for k in range(len(lines) - same + 1):
            here, text = f"{path.name}:{lines[k][0]}", tuple(line for _, line in lines[k : k + same])
            if text in seen:
                found.append(f"{here} as {seen[text]}")
            seen.setdefault(text, here)
    return found


def test_no_six_lines_in_a_row_stand_twice_in_the_solver() -> None:
    assert not copies(sorted(SOLVER.rglob("*.py")), SAME)


def test_a_copy_is_found_wherever_it_stands_and_however_it_is_indented(tmp_path: Path) -> None:
    body = [f"x{k} = {k}" for k in range(SAME)]
    (tmp_path / "a.py").write_text("import os\n" + "\n".join(body) + "\n")
    (tmp_path / "b.py").write_text("def f():\n" + "\n\n".join("    " + line for line in body) + "\n    # done\n")
    files = sorted(tmp_path.iterdir())
    assert copies(files, SAME) == ["b.py:2 as a.py:2"]
    assert not copies(files, SAME + 1)


def test_rooms_know_only_those_below_them() -> None:
    """Losses and kernels know nothing of algorithms, and solver/ knows neither Dask nor the pipeline."""
    for path in SOLVER.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        named = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        named += [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
        outside = {name.split(".")[0] for name in named} & {"dask", "distributed", "pipeline", "transforms", "pyarrow"}
        assert not outside, path
        if path.parent.name in ("kernels", "losses"):
            assert not [name for name in named if name.startswith(("solver.algorithms", "solver.block"))], path


# --- compiled kernels -----------------------------------------------------------------------------------------------


def test_the_stamp_of_every_kernel_covers_all_files_of_the_folder() -> None:
    names = [name for name, *_ in compiled._STAMP]
    assert names == sorted(path.name for path in Path(compiled.__file__).parent.glob("*.py"))
    for kernel in (descent.cycle, columns.listed_slopes, penalty.value, vectors.add, LOSSES["logistic"].value):
        assert compiled._STAMP in kernel._cache._cache_file._source_stamp


def test_a_changed_file_beside_a_kernel_compiles_it_anew(tmp_path: Path) -> None:
    """The kernel's own file is as it was; what it calls is not."""
    shutil.copy(compiled.__file__, tmp_path / "compiled.py")
    head = "from compiled import kernel\n"
    called = "from inner import half\n\n\n@kernel\ndef twice_half(x):\n    return 2.0 * half(x)\n"
    (tmp_path / "outer.py").write_text(head + called)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    asked = "from outer import twice_half as f; print(f(8.0), sum(f.stats.cache_hits.values()))"
    answers = []
    for factor in ("0.5", None, "0.125"):
        if factor is not None:
            (tmp_path / "inner.py").write_text(f"{head}\n\n@kernel\ndef half(x):\n    return {factor} * x\n")
        told = subprocess.run(
            [sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True
        )
        answers.append(tuple(map(float, told.stdout.split())))
    assert answers == [(8.0, 0.0), (8.0, 1.0), (2.0, 0.0)]
