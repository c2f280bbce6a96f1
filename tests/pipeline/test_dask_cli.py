"""The commands as `dask dglmnet ...`, their start, and what the tab key offers."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from dask import config
from dask.cli import cli as dask_command

from pipeline.commands.convert import command as convert
from pipeline.commands.dask import command
from pipeline.commands.group import CommandGroup
from pipeline.commands.submit import command as dask_submit
from transforms import UserError

SLOW = {"dask", "distributed", "numba", "numpy", "pyarrow", "scipy", "sklearn"}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's group as `dask` makes it: with what the entry points name."""
    monkeypatch.setitem(dask_command.commands, "dglmnet", command)
    monkeypatch.setattr("signal.signal", lambda *args: None)


def dask(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(dask_command, words, prog_name="dask")
    return done.exit_code, done.output


def test_the_entry_point_is_the_group() -> None:
    (found,) = entry_points(group="dask_cli", name="dglmnet")
    assert found.load() is command


def test_every_command_of_dask_submit_is_there_and_convert_libsvm() -> None:
    code, shown = dask("dglmnet", "--help")
    names = ["convert-libsvm", *dask_submit.list_commands(click.Context(dask_submit))]
    assert code == 0
    assert all(f"\n  {name} " in shown for name in names)
    for name in names:
        code, shown = dask("dglmnet", name, "--help")
        assert (code, shown.startswith(f"Usage: dask dglmnet {name} ")) == (0, True)


def test_a_command_that_dask_submit_gets_later_is_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dask_submit.commands, "later", click.Command("later", callback=lambda: 7, help="Later."))
    assert "later           Later." in dask("dglmnet", "--help")[1]
    assert dask("dglmnet", "later")[0] == 7


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (UserError("line 3: not LIBSVM"), 2, "dask dglmnet: error: line 3: not LIBSVM\n"),
        (OSError("disk full"), 1, "dask dglmnet: error: OSError: disk full (more with --log-level debug)\n"),
        (KeyboardInterrupt(), 130, "dask dglmnet: error: interrupted\n"),
        (click.UsageError("both of them"), 2, "dask dglmnet: error: both of them. See dask dglmnet fail --help\n"),
    ],
)
def test_errors_end_it_as_they_end_dask_submit(
    error: BaseException, code: int, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    caplog.set_level("INFO", "dglmnet")  # with debug, an unexpected error shows its traceback
    monkeypatch.setitem(dask_submit.commands, "fail", click.Command("fail", callback=fail))
    ended, shown = dask("dglmnet", "fail")
    assert ended == code
    assert shown.endswith(told)


@pytest.mark.parametrize("group", [command, dask_submit])
def test_a_command_that_is_not_there_is_answered_by_the_nearest(group: CommandGroup) -> None:
    done = CliRunner().invoke(group, ["predikt"])
    assert done.exit_code == 2
    assert "No such command 'predikt'. Did you mean 'predict'?" in done.output.splitlines()[-1]
    assert "There are " in CliRunner().invoke(group, ["xyzzy"]).output


def test_an_option_that_is_not_there_is_answered_by_the_nearest() -> None:
    code, shown = dask("dglmnet", "fit", "data", "--pathlength", "3")
    assert (code, "--path-length" in shown.splitlines()[-1]) == (2, True)


def test_the_names_in_the_list_are_those_of_the_commands() -> None:
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None and found.name == name


@pytest.mark.parametrize(
    "words",
    [
        "import pipeline.commands.dask",
        "from pipeline.commands.submit import command; command(['--help'], standalone_mode=False)",
    ],
)
def test_the_list_of_commands_waits_for_nothing_slow(words: str) -> None:
    """`dask` loads the group for whatever it does; --help and the tab key should answer at once."""
    program = f"import sys; {words}; print('loaded', *({SLOW!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded"


def offered(group: click.Command, program: str, *words: str) -> list[tuple[str, str]]:
    """What click answers a shell that asks for completions of the last word."""
    items = ShellComplete(group, {}, program, "_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return [(item.type, item.value) for item in items]


def test_the_tab_key_completes_commands_options_choices_and_files() -> None:
    assert offered(dask_submit, "dask-submit", "fi") == [("plain", "fit")]
    assert offered(dask_submit, "dask-submit", "fit", "--alg") == [("plain", "--algorithm")]
    assert offered(dask_submit, "dask-submit", "fit", "--algorithm", "pa") == [("plain", "paper")]
    assert offered(dask_submit, "dask-submit", "fit", "da") == [("file", "da")]
    assert offered(dask_submit, "dask-submit", "predict", "run", "in.svm", "o") == [("file", "o")]
    assert offered(convert, "convert-libsvm", "in.svm", "out", "--config", "ru") == [("file", "ru")]
    assert offered(dask_command, "dask", "dglmnet", "conv") == [("plain", "convert-libsvm")]


def test_the_tab_key_does_not_mind_a_bad_configuration() -> None:
    with config.set({"dglmnet": {"nonsense": 1}}):
        found = offered(dask_submit, "dask-submit", "fit", "data", "--config", "nowhere.yaml", "--algo")
    assert found == [("plain", "--algorithm")]


def test_a_shell_that_asks_is_answered() -> None:
    program = "import sys; sys.argv = ['dask-submit']; from pipeline.commands.submit import main; main()"
    asked = {"_DASK_SUBMIT_COMPLETE": "bash_complete", "COMP_WORDS": "dask-submit fi", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | asked, capture_output=True, check=True)
    assert done.stdout == b"plain,fit\n"
