"""dask-submit as its users meet it: help, output, errors of one line, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from transforms import __version__, from_arrays

Submit = Callable[..., subprocess.CompletedProcess[str]]


def submit_in_a_process(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from pipeline.commands.submit import main; main()", *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(0)
    X = sp.random_array((200, 30), density=0.3, rng=rng, format="csc", dtype=np.float32)
    y = np.where(X @ rng.normal(size=30) > 0, 1, -1)
    url = str(tmp_path_factory.mktemp("cli") / "dataset")
    from_arrays(X, y, url, partitions=2)
    return url


def test_help_shows_examples(submit: Submit) -> None:
    done = submit("fit", "--help")
    assert done.returncode == 0
    assert "dask-submit fit data/train --output runs/first" in done.stdout
    assert "--residency" in done.stdout


@pytest.mark.parametrize("main", ["submit", "convert"])
def test_both_commands_tell_their_version(main: str) -> None:
    program = f"from pipeline.commands.{main} import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"dglmnet {__version__}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fit", "--tool", "1"], "No such option"),
        (["fit"], "Missing argument 'DATASET'"),
        (["fit", "d", "--output", "r", "--path-length", "0"], "Invalid value for '--path-length'"),
        (["fti"], "No such command 'fti'. Did you mean 'fit'?"),
    ],
)
def test_wrong_usage_is_told_in_one_line(submit: Submit, words: list[str], told: str) -> None:
    done = submit(*words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("dask-submit: error: ") and told in line
    assert line.endswith(f"See dask-submit {'fit ' if words[0] == 'fit' else ''}--help")


def test_fit_prints_a_line_a_round_and_a_table(dataset: str, tmp_path: Path) -> None:
    done = submit_in_a_process("fit", dataset, "--output", str(tmp_path / "run"), "--path-length", "3")
    assert done.returncode == 0, done.stderr
    rounds = pq.read_table(tmp_path / "run" / "trace.parquet").num_rows
    assert sum("round" in line and "α =" in line for line in done.stderr.splitlines()) == rounds
    assert "3 models" in done.stdout
    assert "rel. gap" in done.stdout


def test_the_certified_algorithm_is_there_and_certifies(submit: Submit, dataset: str, tmp_path: Path) -> None:
    words = ("--gap", "1e-5", "--path-length", "4", "--quiet")
    done = submit("fit", dataset, "--output", str(tmp_path / "run"), *words)
    assert done.returncode == 0, done.stderr
    for row in pq.read_table(tmp_path / "run" / "path.parquet").to_pylist():
        assert row["gap"] <= 1e-5 * row["objective"]


def test_quiet_prints_nothing(dataset: str, tmp_path: Path) -> None:
    done = submit_in_a_process("fit", dataset, "--output", str(tmp_path / "run"), "--path-length", "2", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_log_json_gives_an_object_a_line(submit: Submit, dataset: str, tmp_path: Path) -> None:
    done = submit("fit", dataset, "--output", str(tmp_path / "run"), "--path-length", "2", "--log-json")
    assert done.returncode == 0
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [event["event"] for event in events if event["event"] != "round"] == [
        "placed",
        "path",
        "solution",
        "solution",
        "stage",
    ]
    first = next(event for event in events if event["event"] == "round")
    assert {"lambda", "lambda_index", "round", "objective", "relative_decrease", "alpha", "nonzeros", "seconds"} <= set(
        first
    )


def test_log_json_puts_the_error_into_an_object_too(submit: Submit, tmp_path: Path) -> None:
    done = submit("fit", str(tmp_path / "nowhere"), "--output", str(tmp_path / "run"), "--log-json")
    assert done.returncode == 2
    (event,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert event["level"] == "error"
    assert event["message"].startswith("dask-submit: error: ")
    assert "nowhere" in event["message"]


LINES_OF_OTHERS = """
import logging, sys, distributed
from pipeline.commands.shared import set_up_logging
set_up_logging(sys.argv[1], quiet=False, log_json=True)
logging.getLogger("botocore").warning("slow down")
logging.getLogger("distributed.worker").error("comm closed")
try:
    raise ValueError("at the end")
except ValueError:
    logging.getLogger("asyncio").error("Future exception was never retrieved", exc_info=True)
"""


@pytest.mark.parametrize(
    ("level", "heard"), [("info", ["botocore"]), ("debug", ["botocore", "distributed.worker", "asyncio"])]
)
def test_log_json_speaks_for_other_libraries_too(level: str, heard: list[str]) -> None:
    words = [sys.executable, "-c", LINES_OF_OTHERS, level]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [event["logger"] for event in events] == heard
    assert events[0]["message"] == "slow down"
    if level == "debug":
        assert "ValueError: at the end" in events[-1]["trace"]


def test_round_limit_is_a_warning_that_says_the_gap(submit: Submit, dataset: str, tmp_path: Path) -> None:
    words = (
        "--algorithm",
        "paper",
        "--path-length",
        "1",
        "--tol",
        "1e-14",
        "--max-rounds",
        "2",
        "--log-level",
        "warning",
    )
    done = submit("fit", dataset, "--output", str(tmp_path / "run"), *words)
    assert done.returncode == 0
    assert "warning: λ = " in done.stderr
    assert "duality gap reached is" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lambdas", "1,0"], "λ must be > 0"),
        (["--lambdas", "1,x"], "expected numbers separated by commas"),
        (["--tol", "-1"], "tol must lie between 0 and 1"),
        (["--path-ratio", "2"], "path ratio must lie between 0 and 1"),
        (["--path-length", "100000", "--path-ratio", "0.1"], "path length 100000 and path ratio 0.1 make λ too small"),
        (["--algorithm", "paper", "--gap", "0.01"], "--gap does not go with --algorithm paper"),
        (["--gamma", "0.1"], "--gamma does not go with --algorithm default"),
        (["--blocks", "9"], "blocks must lie in 1..2"),
        (["--max-round", "9"], "--max-rounds"),
        (["--memory-limit", "lots"], "expected a size such as 512MB"),
    ],
)
def test_bad_use_is_told_and_exits_with_2(
    submit: Submit, dataset: str, tmp_path: Path, words: list[str], message: str
) -> None:
    done = submit("fit", dataset, "--output", str(tmp_path / "run"), *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_missing_and_damaged_data_sets_are_named(submit: Submit, dataset: str, tmp_path: Path) -> None:
    done = submit("fit", str(tmp_path / "nowhere"), "--output", str(tmp_path / "run"))
    assert done.returncode == 2
    remedy = "Make one of LIBSVM text with convert-libsvm TEXT FOLDER"
    assert done.stderr == f"dask-submit: error: {tmp_path / 'nowhere'}: not a data set: no such folder. {remedy}\n"
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in Path(dataset).iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    part = copy / "part-00001.parquet"
    part.write_bytes(part.read_bytes()[:-50])
    done = submit("fit", str(copy), "--output", str(tmp_path / "run"), "--quiet")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{part}: this part is damaged" in done.stderr
    assert not (tmp_path / "run").exists()


def test_all_commands_read_standard_input(tmp_path: Path) -> None:
    text = "".join(f"{1 if k % 3 else -1} {k % 7 + 1}:1 {k % 3 + 8}:0.5\n" for k in range(300))

    def piped(*words: str) -> str:
        program = [sys.executable, "-c", "from pipeline.commands.submit import main; main()", *words]
        done = subprocess.run(program, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run = str(tmp_path / "run")
    assert "that were held out of training (20 %)" in piped("pipeline", "--train", "-", "--output", run)
    assert "300 test examples" in piped("evaluate", run, "-")
    assert piped("predict", run, "/dev/stdin", "--output", "-", "--quiet").count("\n") == 301


def test_two_grids_of_lambdas_are_refused(submit: Submit, dataset: str, tmp_path: Path) -> None:
    done = submit("fit", dataset, "--output", str(tmp_path / "run"), "--lambdas", "3,2", "--path-length", "5")
    assert done.returncode == 2
    assert "--path-length makes a grid of λ, and --lambdas gives them one by one: leave one of them away" in done.stderr
    assert not (tmp_path / "run").exists()


def test_help_names_every_algorithm_that_has_an_option(submit: Submit) -> None:
    text = " ".join(submit("fit", "--help").stdout.split())
    assert "that ends a λ. For --algorithm default and paper only. [default: 0.0001]" in text


def test_wrong_usage_is_json_where_json_is_asked_for() -> None:
    done = submit_in_a_process("fit", "--tool", "1", "--log-json")
    assert json.loads(done.stderr)["message"].startswith("dask-submit: error: No such option")
