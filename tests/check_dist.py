"""Check a built wheel and sdist: `make dist`, `python tests/check_dist.py dist`.

The wheel holds every file of the packages, the sdist the tests besides; nothing in the long description leads nowhere.
Then the wheel is installed into an environment that has nothing else, far from the sources, and the whole pipeline runs
there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("dglmnet", "transforms", "solver", "pipeline")
BESIDE = (
    "Makefile",
    "CHANGELOG.md",
    "docs/algorithm.md",
    "notebooks/execute.py",
    "tests/conftest.py",
    "benchmarks/compare.py",
)
LEADS_NOWHERE = re.compile(r"\]\((?!https?://)[^)]*\)|<(?:img|picture|source)\b")
FIT = """
import numpy as np
from dglmnet import L1LogisticRegressionPath, PathModel, __version__

rng = np.random.default_rng(0)
X = rng.standard_normal((400, 8)).round(3)
y = np.where(rng.random(400) < 1 / (1 + np.exp(-3 * X[:, 0])), 1, -1)
path = L1LogisticRegressionPath(path_length=3, gap=1e-6).fit(X, y)
assert path.coef_[0, 0] > 1 and max(path.relative_gaps_) <= 1e-6
with open("train.svm", "w") as file:
    for label, row in zip(y, X, strict=True):
        file.write(f"{label} " + " ".join(f"{j + 1}:{value}" for j, value in enumerate(row)) + "\\n")
"""
READ = """
from dglmnet import PathModel

model = PathModel.load("run")
assert len(model) == 3 and model.coef(2)[0, 0] > 1
"""


def sources() -> set[str]:
    """The files of the packages, as git would list them."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".nbi", ".nbc")
    }


def check_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        description = archive.read(metadata).decode().partition("\n\n")[2]
    require(names == sources(), f"{wheel.name} and the sources differ in {sorted(names ^ sources())}")
    found = LEADS_NOWHERE.search(description)
    require(found is None, f"{wheel.name}: the long description has {found and found[0]}")
    require("# dglmnet" in description, f"{wheel.name} has no long description")


def check_sdist(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tests = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    missing = (sources() | tests | set(BESIDE)) - names
    require(not missing, f"{sdist.name} lacks {sorted(missing)}")


def check_installed(wheel: Path) -> None:
    """Install the wheel alone, and run the estimator and every stage of the pipeline with it."""
    with tempfile.TemporaryDirectory() as folder:
        home, work = Path(folder) / "venv", Path(folder) / "work"
        work.mkdir()
        venv.create(home, with_pip=True)
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

        def run(program: str, *words: str) -> str:
            done = subprocess.run(
                [str(home / "bin" / program), *words],
                cwd=work,
                env=clean,
                check=True,
                text=True,
                stdout=subprocess.PIPE,
            )
            return done.stdout

        run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel.resolve()))
        run("python", "-m", "pip", "check")
        run("python", "-c", FIT)
        run("dask-submit", "pipeline", "--quiet", "--train", "train.svm", "--output", "run", "--path-length", "3")
        run("python", "-c", READ)
        report = (work / "run" / "report.html").stat().st_size
        versions = {program: run(program, "--version").split()[-1] for program in ("dask-submit", "convert-libsvm")}
        require(report > 100_000, f"report.html has {report} bytes")
        require(len(set(versions.values())) == 1, f"the commands are of versions {json.dumps(versions)}")


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(otherwise)


def main(folder: Path) -> None:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    check_installed(wheel)
    sys.stdout.write(f"{wheel.name} and {sdist.name} are whole, and the wheel works by itself\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
