"""convert-libsvm as its users meet it: what it prints, where, and the code it exits with."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from pipeline.commands.convert import command
from pipeline.commands.shared import run_command
from tests.damage import unsealed
from tests.reference import files_of, random_text
from transforms import convert_libsvm

Write = Callable[[str, bytes], str]
ROOT = Path(__file__).resolve().parents[2]
MAIN = "from pipeline.commands.convert import main; main()"
SMALL = b"1 1:1 2:2\n-1 1:3\n1 4:1\n-1 4:2\n"


class Ran:
    """How a command ended and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def error_lines(self) -> list[str]:
        return self.err.strip().splitlines()


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """The command in this process, through its own error handling, in the test's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *args: None)

    def ran(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["convert-libsvm", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            run_command(command)
        out, err = capfd.readouterr()
        return Ran(int(caught.value.code or 0), out, err)

    return ran


def in_a_process(folder: Path, *arguments: str, program: str = MAIN) -> Ran:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


# --- what it says when all is well ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_shows_examples_and_every_option(run: Callable[..., Ran], flag: str) -> None:
    ran = run(flag)
    assert ran.code == 0
    assert "Examples:" in ran.out
    assert "convert-libsvm --inspect data/train" in ran.out
    for option in [
        "--partitions",
        "--zero-based",
        "--positive-label",
        "--on-bad-line",
        "--resume",
        "--overwrite",
        "--inspect",
        "--scheduler",
        "--workers",
        "--processes",
        "--memory-limit",
        "--storage-options",
        "--quiet",
        "--log-level",
        "--strategy",
    ]:
        assert option in ran.out


def test_the_summary_tells_what_was_found(tmp_path: Path, write: Write) -> None:
    write("in.svm", SMALL)
    ran = in_a_process(tmp_path, "in.svm", "out", "--partitions", "2", "--workers", "2")
    assert ran.code == 0, ran.err
    text = " ".join(ran.out.split())
    for pattern in (
        r"Examples │ 4 ",
        r"Features │ 3 ",
        r"Nonzeros │ 5 \(1\.2 per example\)",
        r"Density │ 41\.7 %",
        r"1 → \+1: 2 \(50\.0 %\); -1 → −1: 2",
        r"Partitions │ 2, the largest \d+\.\d % above the mean",
        r"Time │ \d+\.\d s, .*B/s",
    ):
        assert re.search(pattern, text), f"{pattern} not in {text}"
    assert "Skipped" not in text


def test_log_lines_where_there_is_no_terminal(run: Callable[..., Ran], write: Write) -> None:
    write("in.svm", random_text(1, 500, 50, 5))
    ran = run("in.svm", "out", "--workers", "1", "--block-size", "8kB")
    assert ran.code == 0
    assert all(re.match(r"\d\d:\d\d:\d\d (map|reduce|convert): ", line) for line in ran.error_lines), ran.err
    assert re.search(r"map: .* kB to do", ran.err)
    assert re.search(r"map: 100 %, .*B/s", ran.err)
    assert re.search(r"reduce: 100 %, .* nonzeros/s", ran.err)
    assert "\x1b[" not in ran.err


def test_a_bar_for_each_phase_on_a_terminal(tmp_path: Path, write: Write) -> None:
    write("in.svm", random_text(1, 500, 50, 5))
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "in.svm", "out", "--workers", "1", "--block-size", "1kB", "--partitions", "4"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.DEVNULL,
        stderr=child,
    )
    os.close(child)
    shown = b""
    while select.select([parent], [], [], 120)[0]:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # how a pty says that the other side has closed
            break
        if not piece:
            break
        shown += piece
    os.close(parent)
    assert process.wait(60) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert re.search(r"convert +map +[━╸╺]+ +\d+ % +\S+ .*/s", text), text
    assert re.search(r"✓ convert +\d+\.\d s +map \d+\.\d s, .*B/s; reduce \d+\.\d s, .* nonzeros/s", text), text


def test_quiet_prints_nothing(tmp_path: Path, write: Write) -> None:
    write("in.svm", SMALL)
    ran = in_a_process(tmp_path, "in.svm", "out", "--quiet", "--workers", "1")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--processes"]], ids=["threads", "processes"])
def test_a_bad_line_is_one_line_on_stderr(tmp_path: Path, write: Write, options: list[str]) -> None:
    write("in.svm", SMALL * 100 + b"1 5:1 7:a_rather_long_word_that_is_not_a_number_at_all\n" + SMALL)
    ran = in_a_process(tmp_path, "in.svm", "out", "--quiet", "--workers", "2", "--block-size", "300", *options)
    assert ran.code == 2
    assert ran.out == ""
    (line,) = ran.error_lines
    assert line.startswith("convert-libsvm: error: ")
    assert f"{tmp_path}/in.svm, line 401, column 9: expected a number" in line
    assert "'a_rather_long_word_that_is_not_a_number_…'" in line
    assert not (tmp_path / "out").exists()


def test_a_bad_line_without_quiet_adds_only_log_lines(run: Callable[..., Ran], write: Write) -> None:
    write("in.svm", b"1 1:1\n0 2:2 2:3\n")
    ran = run("in.svm", "out", "--workers", "1")
    assert ran.code == 2
    errors = [line for line in ran.error_lines if not re.match(r"\d\d:\d\d:\d\d (map|reduce|convert): ", line)]
    assert len(errors) == 1
    assert "line 2, column 7: the same feature id stands twice" in errors[0]


def test_a_line_beyond_the_limit_is_told_with_the_option(run: Callable[..., Ran], tmp_path: Path, write: Write) -> None:
    write("in.svm", b"1 1:1\n0 2:2\n1 3:3 4:4 5:5 6:6\n")
    ran = run("in.svm", "out", "--quiet", "--max-line", "16B", "--workers", "1")
    assert ran.code == 2
    (line,) = ran.error_lines
    assert f"{tmp_path}/in.svm, line 3, column 1: the line is longer than 16 B" in line
    assert "--max-line" in line
    assert run("in.svm", "out", "--quiet", "--max-line", "1KiB", "--workers", "1").code == 0


def test_skipped_lines_are_told(run: Callable[..., Ran], tmp_path: Path, write: Write) -> None:
    write("in.svm", b"1 1:1\nbad\n\n-1 2:2\n" * 20)
    ran = run("in.svm", "out", "--on-bad-line", "skip", "--block-size", "23", "--workers", "1")
    assert ran.code == 0, ran.err
    assert re.search(r"Skipped +│ 20 bad lines", ran.out)
    bad = json.loads((tmp_path / "out" / "dataset.json").read_text())["bad_lines"]
    assert bad["count"] == 20
    assert [int(re.findall(r"line (\d+)", one)[0]) for one in bad["first"]] == [4 * k + 2 for k in range(10)]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (b"age,income,label\n39,50000,1\n", "It looks like CSV: write lines as '1 3:0.5 7:1'"),
        (b"1\t0.5\t3\n", "It looks like a table of values without ids"),
        (b'{"label": 1}\n', "It looks like JSON"),
        (b"1 | a b\n", "It looks like Vowpal Wabbit's format"),
        (b"yes 1:1\nno 2:1\n", "Labels are numbers: write 1 for one of the two classes"),
        (b"1 age:39\n", "Features have numbers: number them"),
        (b"1 1:1\n2 2:1\n3 3:1\n", "write one class against the rest: awk '{$1 = ($1 == 3)} 1'"),
        (b"1 1:1\n1 2:1\n", "A model needs examples of both classes"),
        (b"3:1 4:1\n12:0.5 13:1\n7:1\n", "read as label:weight. If it is a feature, the label is missing"),
    ],
)
def test_what_is_no_libsvm_text_is_told_what_it_looks_like(
    run: Callable[..., Ran], write: Write, text: bytes, hint: str
) -> None:
    write("in.svm", text)
    ran = run("in.svm", "out", "--quiet", "--workers", "1")
    assert ran.code == 2
    (line,) = ran.error_lines
    assert "in.svm" in line and hint in line


@pytest.mark.parametrize(
    ("text", "more", "told"),
    [
        (b"3:1 4:1\n12:0.5 13:1\n", [], True),
        (b"3:1 4:1\n12:0.5 13:1\n", ["--numeric-labels"], True),
        (b"1:2 4:1\n-1:0.5 13:1\n", [], False),
        (b"1 4:1\n2 13:1\n", [], False),
    ],
)
def test_labels_that_may_be_features_are_pointed_out(
    run: Callable[..., Ran], write: Write, text: bytes, more: list[str], told: bool
) -> None:
    write("in.svm", text)
    ran = run("in.svm", "out", "--workers", "1", *more)
    assert ran.code == 0
    assert any("the examples have weights. Lines begin with" in line for line in ran.error_lines) is told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.svm", "out"], "missing.svm: no such file"),
        (["*.none", "out"], "nothing matches"),
        (["in.svm"], "INPUT... OUTPUT"),
        ([], "INPUT... OUTPUT"),
        (["in.svm", "out", "--partition-count", "3"], "--partition-count"),
        (["in.svm", "out", "--partitions", "0"], "--partitions"),
        (["in.svm", "out", "--partitions", "many"], "--partitions"),
        (["in.svm", "out", "--strategy", "best"], "--strategy"),
        (["in.svm", "out", "--on-bad-line", "ignore"], "--on-bad-line"),
        (["in.svm", "out", "--block-size", "large"], "--block-size"),
        (["in.svm", "out", "--block-size", "0"], "at least 1"),
        (["in.svm", "out", "--memory-limit", "much"], "memory limit 'much'"),
        (["in.svm", "out", "--memory-limit", "1kB"], "at least 64 MB"),
        (["in.svm", "out", "--storage-options", "{anon: true}"], "JSON object"),
        (["in.svm", "out", "--storage-options", "[1]"], "JSON object"),
        (["in.svm", "out", "--storage-options", "@missing.json"], "cannot read missing.json"),
        (["in.svm", "out", "--resume", "--overwrite"], "exclude each other"),
        (["in.svm", "nosuch://bucket/out"], "nosuch"),
        (["--inspect", "out", "in.svm"], "--inspect"),
        (["--inspect", "missing"], "no such folder"),
        (["--inspect", "in.svm"], "it is a file"),
    ],
)
def test_bad_usage_exits_with_2(
    run: Callable[..., Ran], tmp_path: Path, write: Write, arguments: list[str], message: str
) -> None:
    write("in.svm", SMALL)
    ran = run(*arguments, *([] if "--inspect" in arguments else ["--workers", "1"]))
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "out").exists()


def test_storage_options_come_from_a_file_too(run: Callable[..., Ran], write: Write) -> None:
    write("in.svm", SMALL)
    write("options.json", b'{"secret": "hunter2"}')
    assert run("in.svm", "out", "--storage-options", "@options.json", "--workers", "1").code == 0


def test_an_error_that_nobody_foresaw_exits_with_1_in_one_line(
    run: Callable[..., Ran], write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("in.svm", SMALL)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the roof\nis on fire")

    monkeypatch.setattr("transforms.convert.convert_libsvm", fail)
    ran = run("in.svm", "out", "--workers", "1")
    assert ran.code == 1
    assert ran.error_lines[-1].startswith("convert-libsvm: error: RuntimeError: the roof is on fire")


# --- clusters -------------------------------------------------------------------------------------------------------


# In a process of their own: a Dask client that could not connect may block others when it is collected.
HASTY = "import pipeline.cluster; pipeline.cluster.CONNECT_SECONDS = 0.5; "


def test_an_unreachable_scheduler_is_told(tmp_path: Path, write: Write) -> None:
    write("in.svm", SMALL)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody answers
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        ran = in_a_process(tmp_path, "in.svm", "out", "--scheduler", address, "--quiet", program=HASTY + MAIN)
    assert ran.code == 2
    (line,) = ran.error_lines
    assert f"cannot reach a Dask scheduler at {address}" in line


@pytest.mark.parametrize("address", ["nonsense", "ftp://127.0.0.1:1"])
def test_an_address_that_is_none_exits_with_2(tmp_path: Path, write: Write, address: str) -> None:
    write("in.svm", SMALL)
    ran = in_a_process(tmp_path, "in.svm", "out", "--scheduler", address, "--quiet", program=HASTY + MAIN)
    assert ran.code == 2, ran.err
    assert address in ran.err


def test_a_running_cluster_is_used(
    run: Callable[..., Ran], process_client: Client, client: Client, tmp_path: Path, write: Write
) -> None:
    source = write("in.svm", random_text(1, 300, 50, 5))
    options = ("--partitions", "2", "--block-size", "3000", "--quiet")
    ran = run("in.svm", "out", "--scheduler", process_client.scheduler.address, *options)
    assert ran.code == 0, ran.err
    convert_libsvm(source, str(tmp_path / "here"), partitions=2, block_size=3000, client=client)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "here")


def test_workers_with_a_memory_limit_are_processes(tmp_path: Path, write: Write) -> None:
    write("in.svm", SMALL)
    ran = in_a_process(tmp_path, "in.svm", "out", "--workers", "1", "--memory-limit", "512MB", "--quiet")
    assert (ran.code, ran.err) == (0, "")


# --- inspect --------------------------------------------------------------------------------------------------------


@pytest.fixture
def dataset(client: Client, tmp_path: Path, write: Write) -> Path:
    convert_libsvm(write("in.svm", SMALL), str(tmp_path / "data"), partitions=2, client=client)
    return tmp_path / "data"


def test_inspect_prints_the_table(run: Callable[..., Ran], dataset: Path) -> None:
    ran = run("--inspect", "data")
    assert ran.code == 0
    assert re.search(r"Integrity +│ checksums, order and counts are right", ran.out)
    for row in ("Examples", "Features", "Nonzeros", "Density", "Labels", "Partitions"):
        assert row in ran.out


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nnz", "12"),
        ("examples", True),
        ("examples", 0),
        ("features", 1.5),
        ("label_map", {"-1": "x", "+1": 1}),
        ("labels", []),
        ("partitions", {}),
        ("partitions", []),
        ("partitions", [7]),
        ("inputs", None),
        ("bad_lines", {"count": 1, "first": []}),
        ("index_base", 2),
        ("plan", "spread"),
    ],
)
@pytest.mark.parametrize(
    "arguments", [("--inspect", "data"), ("in.svm", "data", "--resume")], ids=["inspect", "resume"]
)
def test_a_description_of_wrong_types_is_one_line_that_names_the_field(
    run: Callable[..., Ran], dataset: Path, field: str, value: object, arguments: tuple[str, ...]
) -> None:
    about = json.loads((dataset / "dataset.json").read_text())
    (dataset / "dataset.json").write_text(json.dumps(unsealed(about) | {field: value}))
    ran = run(*arguments, "--quiet")
    assert ran.code == 2
    (line,) = ran.error_lines
    assert re.search(rf"{dataset}/dataset\.json: damaged \({field}.*\): convert again", line)


@pytest.mark.parametrize("name", ["part-00001.parquet", "labels.parquet"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_inspect_names_the_damaged_file(run: Callable[..., Ran], dataset: Path, name: str, damage: str) -> None:
    content = bytearray((dataset / name).read_bytes())
    content[len(content) // 3] ^= 0x10
    if damage == "gone":
        (dataset / name).unlink()
    else:
        (dataset / name).write_bytes(content if damage == "flip" else content[:-7])
    ran = run("--inspect", "data", "--quiet")
    assert ran.code == 2
    (line,) = ran.error_lines
    assert str(dataset / name) in line
    assert ran.out == ""


def test_inspect_of_another_format_version(run: Callable[..., Ran], dataset: Path) -> None:
    about = json.loads((dataset / "dataset.json").read_text())
    (dataset / "dataset.json").write_text(json.dumps(unsealed(about) | {"format_version": 99}))
    ran = run("--inspect", "data")
    assert ran.code == 2
    assert "format version 99" in ran.err


def test_brackets_and_escapes_in_names_are_text(run: Callable[..., Ran], tmp_path: Path) -> None:
    """The tables used to take them for markup, and a finished conversion ended with exit code 1."""
    (tmp_path / "in.svm").write_text("1 1:1\n0 2:1\nx [/red]\x1b[2J\n")
    made = run(str(tmp_path / "in.svm"), str(tmp_path / "a[/bold]:smile:"), "--on-bad-line", "skip")
    seen = run("--inspect", str(tmp_path / "a[/bold]:smile:"))
    for done in (made, seen):
        assert done.code == 0, done.err
        assert "[/bold]:smile:" in "".join(done.out.split())
        assert "\x1b" not in done.out
