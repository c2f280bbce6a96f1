"""What a command loads: --help and refusals wait for nothing slow, and no command for what only others need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.commands.submit import COMMANDS

SLOW = ("bokeh", "dask", "distributed", "numba", "pyarrow", "rich", "scipy", "sklearn")
PROGRAM = """
import sys
from pipeline.commands.{module} import main
sys.argv = ["command", *{words!r}]
try:
    main()
except SystemExit as ended:
    print(ended.code, *(name for name in {slow!r} if name in sys.modules), file=sys.stderr)
"""


def call(module: str, *words: str) -> tuple[int, set[str]]:
    """The exit code of a command in a process of its own, and which of the slow libraries it loaded."""
    program = PROGRAM.format(module=module, words=words, slow=SLOW)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    code, *loaded = done.stderr.splitlines()[-1].split()
    return int(code), set(loaded)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "config"])
def test_help_waits_for_nothing_slow(name: str) -> None:
    assert call("submit", name, "--help") == (0, set())


def test_help_of_the_conversion_waits_for_nothing_slow() -> None:
    assert call("convert", "--help") == (0, set())
    assert call("convert", "--version") == (0, set())


@pytest.mark.parametrize("name", ["fit", "pipeline", "evaluate", "predict", "show", "attach"])
def test_wrong_usage_is_refused_before_numba_and_a_cluster(name: str) -> None:
    code, loaded = call("submit", name, "--nonsense")
    assert code == 2
    assert not loaded & {"bokeh", "distributed", "numba", "scipy", "sklearn"}


def test_a_conversion_and_a_fit_load_neither_scikit_learn_nor_bokeh(tmp_path: Path) -> None:
    (tmp_path / "in.svm").write_text("1 1:1\n-1 2:1\n1 1:1 2:1\n-1 2:2\n")
    code, loaded = call("convert", str(tmp_path / "in.svm"), str(tmp_path / "data"), "--quiet", "--workers", "1")
    assert (code, loaded & {"bokeh", "sklearn"}) == (0, set())
    words = ("--output", str(tmp_path / "run"), "--path-length", "2", "--quiet", "--workers", "1")
    code, loaded = call("submit", "fit", str(tmp_path / "data"), *words)
    assert (code, loaded & {"bokeh", "sklearn"}) == (0, set())


def test_what_is_missing_or_there_already_is_refused_at_once(tmp_path: Path) -> None:
    text, data, run, out = (tmp_path / name for name in ("in.svm", "data", "run", "p.csv"))
    for folder, name in ((data, "dataset.json"), (run, "run.json")):
        folder.mkdir()
        (folder / name).touch()
    for file in (text, out):
        file.touch()
    for module, *words in (
        ("convert", text, data),
        ("convert", tmp_path / "missing.svm", tmp_path / "new"),
        ("submit", "fit", tmp_path / "missing", "--output", tmp_path / "new"),
        ("submit", "fit", data, "--output", run),
        ("submit", "pipeline", "--train", tmp_path / "missing.svm", "--output", tmp_path / "new"),
        ("submit", "evaluate", data, text),
        ("submit", "evaluate", run, tmp_path / "missing.svm"),
        ("submit", "predict", tmp_path / "missing", text, "--output", tmp_path / "new.csv"),
        ("submit", "predict", run, text, "--output", out),
        ("submit", "show", tmp_path / "missing"),
        ("submit", "report", data),
    ):
        code, loaded = call(module, *map(str, words))
        assert code == 2, words
        assert not loaded & {"bokeh", "distributed", "numba", "scipy", "sklearn"}, words
