"""Standard input and pipes: the same examples as a file with the same text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from transforms import BadLine, OutputExists, UserError, streams
from transforms.streams import is_stream, spooled

TEXT = b"1 1:1\n-1 2:1\n"


class Stdin:
    """Standard input that holds these bytes."""

    def __init__(self, content: bytes, *, terminal: bool = False) -> None:
        self.buffer, self._terminal = io.BytesIO(content), terminal

    def isatty(self) -> bool:
        return self._terminal


@contextmanager
def pipe(content: bytes) -> Iterator[str]:
    """What a shell's <(...) gives: the name of a pipe into which somebody writes."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(content)

    writer = threading.Thread(target=write)
    writer.start()
    yield f"/dev/fd/{reading}"
    writer.join()
    os.close(reading)


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_becomes_a_file_for_the_time_of_the_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT))
    with spooled([name, "other.svm"]) as (file, other):
        assert Path(file).read_bytes() == TEXT
        assert Path(file).name == "standard-input"
        assert other == "other.svm"
    assert not Path(file).parent.exists()


def test_pipes_are_read_whole_whatever_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PIECE", 1000)
    first, second = TEXT * 10_000, b"1 3:1\n" * 20_000
    with pipe(first) as one, pipe(second) as other, spooled([one, other]) as files:
        assert [Path(file).read_bytes() for file in files] == [first, second]


def test_a_named_pipe_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    writer = threading.Thread(target=(tmp_path / "fifo").write_bytes, args=(TEXT,))
    writer.start()
    with spooled([str(tmp_path / "fifo")]) as (file,):
        assert Path(file).read_bytes() == TEXT
    writer.join()


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda data: pa.compress(data, codec="zstd", asbytes=True)),
    ],
)
def test_compressed_text_is_named_as_such(
    suffix: str, compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(compress(TEXT)))
    with spooled(["-"]) as (file,):
        assert file.endswith(f"standard-input{suffix}")


def test_files_and_urls_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_bytes(TEXT)
    urls = [str(tmp_path / "a.svm"), "s3://bucket/-", "missing", "data-*.svm"]
    assert not any(map(is_stream, urls))
    with spooled(urls, "tcp://host:8786") as files:
        assert files == urls


@pytest.mark.parametrize(
    ("urls", "scheduler", "terminal", "told"),
    [
        (["-"], "tcp://host:8786", False, "standard input: the workers of a cluster cannot read it"),
        (["-", "/dev/stdin"], None, False, "standard input: it can be read once only"),
        (["-"], None, True, "standard input is a terminal: pipe text into the command"),
    ],
)
def test_what_cannot_be_read_is_refused(
    urls: list[str], scheduler: str | None, terminal: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT, terminal=terminal))
    with pytest.raises(UserError, match=told), spooled(urls, scheduler):
        pass


def test_a_full_disk_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/full is a disk without room."""
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT))
    monkeypatch.setattr(Path, "__truediv__", lambda *_: Path("/dev/full"))
    with pytest.raises(UserError, match=r"No space left on device: .* TMPDIR names another place"), spooled(["-"]):
        pass


def test_closed_standard_input_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UserError, match="standard input is closed"), spooled(["-"]):
        pass


def test_errors_and_warnings_name_the_stream_and_not_its_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT))
    shown: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *rest, **more: shown.append(str(message)))
    with pytest.raises(BadLine) as found, spooled(["-"]) as (file,):
        warnings.showwarning(UserWarning(f"{file}: odd"), UserWarning, "", 1)
        raise BadLine(file, 2, 3, "what", "expected a label")
    assert str(found.value).startswith("standard input, line 2, column 3: expected a label")
    assert shown == ["standard input: odd"]


def test_a_stream_that_was_read_before_is_told_to_be_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(TEXT))
    with pytest.raises(OutputExists) as found, spooled(["-"]) as (file,):
        raise OutputExists(f"run: inputs was [/tmp/dglmnet-x1_y/standard-input.gz (9, 1)], is [{file} (9, 2)]")
    assert "run: inputs was [standard input (9, 1)], is [standard input (9, 2)]. A stream is not kept" in str(
        found.value
    )
