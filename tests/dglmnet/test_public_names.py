"""`import dglmnet`: every public name, little cost, and no harm from a script's own modules."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dglmnet
import pipeline
import solver
import transforms

ROOT = Path(__file__).parents[2]


def python(folder: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Run a script that lies in `folder`."""
    (folder / "script.py").write_text("\n".join(lines))
    return subprocess.run(
        [sys.executable, str(folder / "script.py")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize("name", dglmnet.__all__)
def test_every_public_name_is_there(name: str) -> None:
    found = getattr(dglmnet, name)
    assert name in dir(dglmnet)
    package = {"transforms": transforms, "solver": solver, "pipeline": pipeline}[dglmnet._HOMES[name].split(".")[0]]
    assert getattr(package, name, found) is found


def test_the_names_are_those_with_a_home() -> None:
    assert sorted(dglmnet.__all__) == sorted(dglmnet._HOMES)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        dglmnet.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_everything_that_pipeline_and_transforms_offer_is_offered() -> None:
    """But columns in the raw, which no user of the package has to name."""
    assert {*pipeline.__all__, *transforms.__all__} - {*dglmnet.__all__} == {"Csc"}


def test_the_import_loads_neither_dask_nor_numba(tmp_path: Path) -> None:
    done = python(
        tmp_path,
        "import sys, dglmnet",
        "print(dglmnet.__version__)",
        "print([name for name in ('numba', 'numpy', 'dask', 'sklearn', 'pyarrow') if name in sys.modules])",
    )
    assert done.stdout.splitlines() == [transforms.__version__, "[]"], done.stderr


@pytest.mark.parametrize("name", ["pipeline", "transforms", "solver"])
def test_a_module_of_that_name_beside_the_script_is_no_harm(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong one')")
    done = python(
        tmp_path,
        "from dglmnet import L1LogisticRegression, convert_libsvm",
        "import numpy as np",
        "rng = np.random.default_rng(0)",
        "X = rng.normal(size=(40, 3))",
        "print(L1LogisticRegression(lam=1.0).fit(X, X[:, 0] > 0).coef_.shape)",
    )
    assert done.stdout.strip() == "(1, 3)", done.stderr


def test_a_module_of_that_name_that_was_imported_before_is_named(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text("mine = 1")
    done = python(tmp_path, "import pipeline", "from dglmnet import fit_path")
    assert f"{tmp_path}/pipeline.py has that name and was imported first" in done.stderr
    assert "rename it" in done.stderr


def test_the_package_is_installed_with_the_others() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(settings["tool"]["setuptools"]["packages"]["find"]["include"]) == {
        "dglmnet*",
        "transforms*",
        "solver*",
        "pipeline*",
    }


def test_what_is_imported_at_run_time_is_declared() -> None:
    """Not left to what other dependencies happen to bring along."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = {one.split(">=")[0].split("[")[0].lower() for one in settings["project"]["dependencies"]}
    assert {"jinja2", "markupsafe", "pyyaml"} <= declared
