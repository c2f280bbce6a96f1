"""Options from a YAML file and from Dask's configuration: what they mean, who wins, and what is said of mistakes."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import dask.config
import fsspec
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from pipeline.commands.dask import command as everything
from pipeline.commands.shared import run_command
from pipeline.commands.submit import command as dask_submit
from pipeline.config.schema import schema, settings
from pipeline.config.source import entries_of_dask, entries_of_file, entries_of_text
from transforms import UserError, from_arrays

Write = Callable[[str, bytes], str]
KNOWN = schema()
SECRET = "hush-hush"


def meaning(text: str) -> dict[str, dict[str, Any]]:
    return settings(entries_of_text(text, "run.yaml"), KNOWN)


def meaning_for_dask(content: Any) -> dict[str, dict[str, Any]]:
    with dask.config.set({"dglmnet": content}):
        return settings(entries_of_dask(), KNOWN)


def understood_or_refused(read: Callable[[], dict[str, dict[str, Any]]]) -> None:
    try:
        assert set(read()) == set(KNOWN)
    except UserError as error:
        assert str(error)


def parsed(name: str, *words: str) -> dict[str, Any]:
    """The options with which a command would run."""
    command = everything.get_command(click.Context(everything), name)
    assert command is not None
    return command.make_context(name, list(words)).params


def exit_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("signal.signal", lambda *args: None)
    monkeypatch.setattr("sys.argv", ["dask-submit", *words])
    with pytest.raises(SystemExit) as ended:
        run_command(dask_submit)
    return int(str(ended.value.code))


# What can be set


def test_every_command_takes_a_file_and_every_option_can_stand_in_it() -> None:
    context = click.Context(everything)
    assert set(KNOWN) == set(everything.list_commands(context)) - {"config"}
    for name, keys in KNOWN.items():
        command = everything.get_command(context, name)
        assert command is not None
        names = {parameter.name for parameter in command.params if parameter.expose_value}
        assert {parameter.name for parameter in keys.values()} == names


def test_no_option_has_the_name_of_a_section() -> None:
    assert not {*KNOWN, "convert"} & {key for keys in KNOWN.values() for key in keys}


def test_every_default_may_be_written_down() -> None:
    """The schema takes what the commands themselves have for defaults."""
    for name, keys in KNOWN.items():
        infos = {key: parameter.to_info_dict()["default"] for key, parameter in keys.items()}
        written = {key: default for key, default in infos.items() if default is not None and default != ()}
        assert len(meaning(yaml.safe_dump({name: written}))[name]) == len(written)


def test_values_are_read_as_on_the_command_line(write: Write) -> None:
    file = write(
        "run.yaml",
        b"""
        fit:
          dataset: data/train
          output: runs/first
          tol: 1e-5            # text for YAML 1.1, a number for us
          path-length: 010     # and this is not eight
          subspace_memory: 16MB
          resume: on
          extra-lambdas: [8, 4, 2.5]
        """,
    )
    given = parsed("fit", "--config", file)
    words = "data/train --output runs/first --tol 1e-5 --path-length 10 --subspace-memory 16MB --resume"
    assert given == parsed("fit", *words.split(), "--extra-lambdas", "8,4,2.5")


def test_arguments_and_lists_may_come_from_the_file(write: Write) -> None:
    file = write(
        "run.yaml",
        b"predict: {run: r, inputs: [a.svm, b.svm], output: p}\n"
        b"evaluate: {run: r, inputs: c.svm}\n"
        b"convert: {paths: [a, b]}\n",
    )
    assert parsed("predict", "--config", file)["inputs"] == ("a.svm", "b.svm")
    assert parsed("evaluate", "--config", file)["inputs"] == ("c.svm",)
    assert parsed("convert-libsvm", "--config", file)["paths"] == ("a", "b")
    assert parsed("predict", "other", "d.svm", "--config", file)["inputs"] == ("d.svm",)


def test_storage_options_are_a_mapping_that_keeps_its_types(write: Write) -> None:
    file = write("run.yaml", b"storage-options: {key: '007', anon: false, client_kwargs: {port: 9000}}")
    expected = {"key": "007", "anon": False, "client_kwargs": {"port": 9000}}
    assert parsed("fit", "d", "--output", "o", "--config", file)["storage_options"] == expected


def test_a_file_may_be_anywhere_that_fsspec_knows() -> None:
    with fsspec.open("memory://options/run.yaml", "w") as file:
        file.write("workers: 3")
    assert parsed("fit", "d", "--output", "o", "--config", "memory://options/run.yaml")["workers"] == 3


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "null", "fit:\n", "\ufeffworkers: 2"])
def test_a_file_that_says_little_is_fine(text: str, write: Write) -> None:
    assert settings(entries_of_file(write("run.yaml", text.encode())), KNOWN)["fit"] in ({}, {"workers": "2"})


# Who wins


def test_the_command_line_wins_over_the_file_and_the_file_over_dask(write: Write) -> None:
    file = write("run.yaml", b"workers: 3\nfit: {tol: 0.3, gap: 0.3}")
    words = ["d", "--output", "o"]
    with dask.config.set({"dglmnet": {"workers": 2, "fit": {"tol": 0.2, "gap": 0.2, "path-ratio": 0.2}}}):
        only_dask = parsed("fit", *words)
        all_three = parsed("fit", *words, "--config", file, "--gap", "0.4")
    names = ("workers", "tol", "gap", "path_ratio", "path_length")
    assert [only_dask[name] for name in names] == [2, 0.2, 0.2, 0.2, 20]
    assert [all_three[name] for name in names] == [3, 0.3, 0.4, 0.2, 20]


def test_a_section_wins_over_the_top_wherever_it_stands() -> None:
    found = meaning("fit: {workers: 1}\nworkers: 2\n")
    assert (found["fit"]["workers"], found["evaluate"]["workers"]) == ("1", "2")


def test_null_takes_a_setting_back(write: Write) -> None:
    file = write("run.yaml", b"workers: null\nprocesses: false")
    with dask.config.set({"dglmnet": {"workers": 2, "processes": True}}):
        found = parsed("fit", "d", "--output", "o", "--config", file)
    assert (found["workers"], found["processes"]) == (None, False)


def test_the_environment_sets_options_through_dask() -> None:
    environment = {
        "DASK_DGLMNET__SCHEDULER": "tcp://10.0.0.5:8786",
        "DASK_DGLMNET__LOG_LEVEL": "warning",
        "DASK_DGLMNET__FIT__TOL": "1e-6",
        "DASK_DGLMNET__FIT__LAMBDAS": "8,4,2.5",
        "DASK_DGLMNET__FIT__RESUME": "true",
        "DASK_DGLMNET__CONVERT__PARTITIONS": "7",
        "DASK_DGLMNET__STORAGE_OPTIONS": "{'anon': True}",
        "DASK_DGLMNET__MEMORY_LIMIT": "4000000000",
    }
    with dask.config.set(dask.config.collect_env(environment)):
        fit, convert = parsed("fit", "d", "--output", "o"), parsed("convert-libsvm", "a", "b")
    assert (fit["tol"], fit["lambdas"], fit["resume"], fit["log_level"]) == (1e-6, (8.0, 4.0, 2.5), True, "warning")
    assert (fit["scheduler"], fit["memory_limit"]) == ("tcp://10.0.0.5:8786", "4000000000")
    assert (convert["partitions"], convert["storage_options"]) == (7, {"anon": True})


# What is said of mistakes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fit:\n  tolx: 3", "line 2: fit.tolx: fit has no such option: did you mean tol?"),
        ("fit:\n  tolerance: 3", "line 2: fit.tolerance: fit has no such option: did you mean tol?"),
        ("\nworkerz: 3", "line 2: workerz: no such option or command: did you mean workers?"),
        ("fitt: {}", "line 1: fitt: no such option or command: did you mean fit?"),
        ("evaluate:\n  positive-label: 3", "line 2: evaluate.positive-label: evaluate has no such option"),
        ("convert:\n  strategy: foo", "line 2: convert.strategy: 'foo' is not one of 'spread', 'neighbours'"),
        ("fit:\n  path-length: 0", "line 2: fit.path-length: 0 is not in the range x>=1"),
        ("fit:\n  tol: low", "line 2: fit.tol: 'low' is not a valid float"),
        ("fit:\n  resume: maybe", "line 2: fit.resume: expected true or false, found 'maybe'"),
        ("fit:\n  lambdas: [8, x]", "line 2: fit.lambdas: '8,x': expected numbers separated by commas"),
        ("fit:\n  tol: {a: 1}", "line 2: fit.tol: expected a value, found a mapping"),
        ("fit:\n  subspace-memory: big", "line 2: fit.subspace-memory: 'big': expected a size such as 16MB"),
        ("evaluate:\n  inputs: []", "line 2: evaluate.inputs: expected a list of values, such as [a, b]"),
        ("evaluate:\n  inputs: [[a]]", "line 2: evaluate.inputs: expected a list of values, such as [a, b]"),
        ("workers: [1, 2]", "line 1: workers: expected one value, found a list"),
        ("workers: 0", "line 1: workers: 0 is not in the range x>=1"),
        ("fit: 3", "line 1: fit: expected the options of fit, one a line, found a value"),
        ("workers: 1\nworkers: 2", "line 2: workers is set twice, first in line 1"),
        ("fit:\n  path_length: 1\n  path-length: 2", "line 3: path-length is set twice, first in line 2"),
        ("convert: {}\nconvert-libsvm: {}", "line 2: convert-libsvm: set twice, in two spellings"),
        ("- a", "line 1: expected options, such as `workers: 4`, found a list"),
        ("hello", "line 1: expected options, such as `workers: 4`, found a single value"),
        ("workers: [1\nfit: 2", "line 2, column 4: not YAML: "),
        ("a: 1\n---\nb: 2", "line 2, column 1: not YAML: expected a single document in the stream"),
        ("workers: \x01", "not YAML: characters that YAML does not allow"),
        ("config: other.yaml", "line 1: config: no such option or command"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_a_way_out(text: str, expected: str) -> None:
    with pytest.raises(UserError) as told:
        meaning(text)
    assert str(told.value).startswith("run.yaml")
    assert expected in str(told.value)
    assert "\n" not in str(told.value)


def test_further_mistakes_are_counted() -> None:
    with pytest.raises(UserError, match=r"line 1: x: .* \(and 2 more problems\)$"):
        meaning("x: 1\nfit: {y: 1}\nworkers: 0")


def test_a_key_of_another_command_is_told_to_be_so() -> None:
    with pytest.raises(UserError, match=r"evaluate has no such option; .*convert-libsvm.* ha(s|ve)$"):
        meaning("evaluate: {zero-based: true}")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"fit": {"tolx": 3}}, "Dask's configuration: dglmnet.fit.tolx: fit has no such option: did you mean tol?"),
        ({"fit": {"residency": "memry"}}, "Dask's configuration: dglmnet.fit.residency: 'memry' is not one of"),
        ({"workers": 2.5}, "Dask's configuration: dglmnet.workers: '2.5' is not a valid integer range"),
        ({"path_length": 3, "path-length": 4}, "dglmnet.path-length: set twice, in two spellings"),
        (3, "Dask's configuration: dglmnet: expected options, such as dglmnet.workers"),
    ],
)
def test_a_mistake_in_dasks_configuration_is_named(found: Any, expected: str) -> None:
    with pytest.raises(UserError) as told:
        meaning_for_dask(found)
    assert expected in str(told.value)


@pytest.mark.parametrize(
    "text",
    [
        f"storage-options: '{{bad {SECRET}'",
        f"storage-options: [{SECRET}]",
        f"storage-options:\n  key: *{SECRET}",
        f"storage-options:\n  key: !{SECRET} 1",
        f"storage-options: {{key: {SECRET}, key: {SECRET}}}",
        f"storage-options:\n  key: '{SECRET}\n",
        f"storage-options:\n  key: a: {SECRET}\n",
    ],
)
def test_no_mistake_about_storage_options_shows_what_is_in_them(text: str) -> None:
    with pytest.raises(UserError) as told:
        meaning(text)
    assert SECRET not in str(told.value)


def test_a_file_that_cannot_be_read_ends_the_command_with_2(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {
        str(tmp_path / "nowhere.yaml"): "no such file",
        str(tmp_path): "a folder, not a file of options",
        write("binary.yaml", b"\xff\xfe"): "not text in UTF-8",
        "nothing://there": "Protocol not known",
        write("typo.yaml", b"fit: {tolx: 1}"): "did you mean tol?",
    }
    for file, expected in wrong.items():
        assert exit_of(monkeypatch, "fit", "data", "--output", "run", "--config", file) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"dask-submit: error: {file}") and expected in told and told.count("\n") == 1


def test_help_needs_no_good_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    with dask.config.set({"dglmnet": {"nonsense": 1}}):
        assert exit_of(monkeypatch, "fit", "--help") == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "tol", "fit"]), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from([*KNOWN, *(key for keys in KNOWN.values() for key in keys)]) | st.text(max_size=4)


@given(st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON, max_size=3), max_size=4))
def test_whatever_is_configured_is_understood_or_refused(content: dict[str, Any]) -> None:
    understood_or_refused(lambda: meaning(yaml.safe_dump(content)))
    understood_or_refused(lambda: meaning_for_dask(content))


@given(st.text(max_size=40))
def test_any_text_is_understood_or_refused(text: str) -> None:
    understood_or_refused(lambda: meaning(text))


# The file that `dask-submit config` prints


def _uncommented(text: str) -> set[tuple[str, str]]:
    """The (section, key) of the options that are commented out in a file."""
    section, found = "", set()
    for line in io.StringIO(text):
        if line[0].isalpha():
            section = line.strip().rstrip(":")
        elif line.lstrip().startswith("#") and not line.lstrip().startswith("# ") and ":" in line:
            found.add((section, line.strip()[1:].split(":")[0]))
    return found


def test_the_printed_file_names_every_option_and_sets_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], write: Write
) -> None:
    assert exit_of(monkeypatch, "config") == 0
    text = capsys.readouterr().out
    assert not any(meaning(text).values())
    named = _uncommented(text)
    for command, keys in KNOWN.items():
        assert all({("", key), (command, key)} & named for key in keys)
    assert exit_of(monkeypatch, "config", "--check", write("run.yaml", text.encode())) == 0
    assert "is fine. It sets nothing." in capsys.readouterr().out


def test_a_file_can_be_checked_without_running_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], write: Write
) -> None:
    assert exit_of(monkeypatch, "config", "--check", write("run.yaml", b"convert: {partitions: 0}")) == 2
    assert "run.yaml, line 1: convert.partitions: 0 is not in the range" in capsys.readouterr().err
    assert exit_of(monkeypatch, "config", "--check", write("run.yaml", b"fit: {path-length: 5}")) == 0
    assert "for fit: path-length" in capsys.readouterr().out


# A run


def test_a_run_may_be_described_by_a_file_alone_and_secrets_stay_in_it(
    submit: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = sparse.random(60, 8, density=0.5, rng=np.random.default_rng(0), format="csc")
    from_arrays(X, np.where(np.arange(60) % 3, 1, -1), str(tmp_path / "data"), partitions=2)
    content = {
        "workers": 1,
        "log-level": "debug",
        "storage-options": {"secret": SECRET},
        "fit": {"dataset": "data", "output": "run", "path-length": 3},
    }
    write("run.yaml", yaml.safe_dump(content).encode())
    monkeypatch.chdir(tmp_path)
    done = submit("fit", "--config", "run.yaml")
    assert done.returncode == 0, done.stderr
    assert "3 models" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    assert not any(SECRET.encode() in file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file())
