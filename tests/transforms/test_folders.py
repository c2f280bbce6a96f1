"""Folders with more in them than files: links, loops, pipes, what may not be read. Never blocked, never read twice."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from transforms import UserError, convert_libsvm
from transforms.inputs import find_inputs
from transforms.storage import StorageOptions

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """in/a.svm and in/sub/b.svm."""
    made = tmp_path / "in"
    (made / "sub").mkdir(parents=True)
    (made / "a.svm").write_bytes(b"1 1:1\n")
    (made / "sub" / "b.svm").write_bytes(b"0 2:2\n")
    return made


def found(url: str | Path) -> list[str]:
    return [Path(file.name).name for file in find_inputs([str(url)], StorageOptions())]


@pytest.mark.parametrize("pattern", ["", "/*", "/**"])
@pytest.mark.parametrize("target", ["..", ".", "../sub/loop"])
def test_a_link_that_goes_round_in_circles_is_passed_over(folder: Path, pattern: str, target: str) -> None:
    (folder / "sub" / "loop").symlink_to(target)
    with pytest.warns(UserWarning, match=r"sub/loop: passed over: a link to"):
        assert found(f"{folder}{pattern}") == ["a.svm", "b.svm"]


def test_a_link_to_another_folder_or_file_is_followed(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "c.svm").write_bytes(b"1 3:3\n")
    (folder / "link").symlink_to(other)
    (folder / "z.svm").symlink_to(other / "c.svm")
    assert found(folder) == found(f"{folder}/*") == ["a.svm", "c.svm", "b.svm", "z.svm"]


@pytest.mark.parametrize("pattern", ["", "/*"])
def test_a_link_to_nothing_is_passed_over(folder: Path, pattern: str) -> None:
    (folder / "dangling.svm").symlink_to("nothing")
    with pytest.warns(UserWarning, match=r"dangling.svm: passed over: a link to nothing, which is not there"):
        assert found(f"{folder}{pattern}") == ["a.svm", "b.svm"]
    with pytest.raises(UserError, match=r"dangling.svm: a link to nothing, which is not there"):
        found(folder / "dangling.svm")


@pytest.mark.parametrize("pattern", ["", "/*"])
def test_a_pipe_or_a_socket_in_a_folder_is_passed_over(folder: Path, pattern: str) -> None:
    """Opening a pipe that nobody writes to would wait for ever."""
    os.mkfifo(folder / "pipe.svm")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(folder)  # the name of a socket may be 107 bytes long at most
        try:
            server.bind("socket.svm")
        finally:
            os.chdir(here)
    with pytest.warns(UserWarning) as caught:
        assert found(f"{folder}{pattern}") == ["a.svm", "b.svm"]
    told = "\n".join(str(one.message) for one in caught)
    assert "pipe.svm: passed over: a named pipe, not a file" in told
    assert "socket.svm: passed over: a socket, not a file" in told


def test_a_pipe_or_a_device_that_was_named_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe.svm")
    for name, what in ((folder / "pipe.svm", "a named pipe"), (Path("/dev/null"), "a device")):
        with pytest.raises(UserError, match=f"{name}: {what}, not a file"):
            found(name)


def test_a_conversion_passes_over_what_is_no_file(client: Client, folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "pipe.svm")
    (folder / "sub" / "loop").symlink_to("..")
    with pytest.warns(UserWarning, match="passed over"):
        dataset = convert_libsvm(str(folder), str(tmp_path / "out"), client=client)
    assert [Path(one["path"]).name for one in dataset.description["inputs"]] == ["a.svm", "b.svm"]


def test_a_folder_of_hidden_files_says_so(tmp_path: Path, client: Client) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError, match="the folder is empty: pass files of LIBSVM text"):
        found(tmp_path / "in")
    (tmp_path / "in" / "_SUCCESS").touch()
    with pytest.raises(UserError, match=r"names that start with _ or \. are passed over: _SUCCESS"):
        found(tmp_path / "in")
    (tmp_path / "in" / "a.svm").touch()
    with pytest.raises(UserError, match=r"no examples: .*a\.svm is empty"):
        convert_libsvm(str(tmp_path / "in"), str(tmp_path / "out"), client=client)
    assert not (tmp_path / "out").exists()


# --- permissions ----------------------------------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter, which those of pytest are not."""
    made = Path(tempfile.mkdtemp(prefix="dglmnet-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


READ = """
import os, sys
from transforms import UserError
from transforms.inputs import cut_blocks, find_inputs
from transforms.reading import Limits, read_lines
from transforms.storage import StorageOptions
if os.geteuid() == 0:
    os.setuid(65534)  # root may read everything
try:
    for block in cut_blocks(find_inputs([sys.argv[1]], StorageOptions()), 1000):
        list(read_lines(block, StorageOptions(), Limits(1000)))
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize("what", ["folder", "sub", "file", "one of two files"])
def test_what_may_not_be_read_is_named(open_folder: Path, what: str) -> None:
    source = open_folder / "in"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.svm").write_bytes(b"1 1:1\n")
    if what == "one of two files":
        (source / "b.svm").write_bytes(b"1 1:1\n")
    closed = {"folder": source, "sub": source / "sub"}.get(what, source / "sub" / "a.svm")
    closed.chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", READ, str(source)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        closed.chmod(0o755)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert "permission denied" in line.lower()
    assert str(closed) in line
