"""Inputs: which files a URL stands for, and every line read exactly once wherever the cuts fall."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tempfile
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms import UserError, inputs, reading
from transforms.inputs import Block, InputFile, Span, cut_blocks, find_inputs
from transforms.reading import Limits, read_lines
from transforms.storage import StorageOptions, read_ranges

Write = Callable[[str, bytes], str]
NONE = StorageOptions()


def zst(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zst,
}


def found(*urls: str) -> list[str]:
    return [Path(file.name).name for file in find_inputs(urls, NONE)]


def lines_of(block: Block, piece_size: int = 1 << 20) -> list[bytes]:
    """The lines that a block owns; the last one of a file may lack its newline."""
    lines = []
    for text in read_lines(block, NONE, Limits(piece_size)):
        lines += text.array[: text.size].tobytes().splitlines(keepends=True)
    return [line for line in lines if line]


def span(index: int, file: InputFile, start: int, stop: int) -> Block:
    return Block(index, (Span(file, start, stop),))


def file_of(path: str) -> InputFile:
    (file,) = find_inputs([path], NONE)
    return file


# --- byte ranges ----------------------------------------------------------------------------------------------------

SAMPLES = {
    "plain": b"1 1:1\n-1 2:2\n1 3:3\n",
    "crlf": b"1 1:1\r\n-1 2:2\r\n\r\n1 3:3\r\n",
    "no final newline": b"1 1:1\n-1 2:2",
    "bom": b"\xef\xbb\xbf1 1:1\n-1 2:2\n",
    "bom alone": b"\xef\xbb\xbf",
    "bom and a newline": b"\xef\xbb\xbf\n1",
    "blank lines": b"\n\n1 1:1\n\n\n-1 2:2\n\n",
    "newlines only": b"\n\n\n",
    "one byte": b"1",
    "one newline": b"\n",
    "a long line": b"1 1:1\n-1 " + b" ".join(b"%d:1" % k for k in range(1, 30)) + b"\n1 1:1\n",
    "a long last line": b"1\n-1 " + b" ".join(b"%d:1" % k for k in range(1, 30)),
}


def expected_lines(text: bytes) -> list[bytes]:
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


@pytest.mark.parametrize("tail", [4, 16, 1 << 16])
@pytest.mark.parametrize("text", SAMPLES.values(), ids=SAMPLES)
def test_two_ranges_cut_anywhere_give_every_line_once(
    write: Write, monkeypatch: pytest.MonkeyPatch, text: bytes, tail: int
) -> None:
    monkeypatch.setattr(reading, "TAIL", tail)
    file = file_of(write("in.svm", text))
    for cut in range(1, len(text)):
        first, second = span(0, file, 0, cut), span(1, file, cut, len(text))
        assert lines_of(first) + lines_of(second) == expected_lines(text), cut


@pytest.mark.parametrize("tail", [4, 1 << 16])
@pytest.mark.parametrize("text", SAMPLES.values(), ids=SAMPLES)
def test_blocks_of_every_size_give_every_line_once(
    write: Write, monkeypatch: pytest.MonkeyPatch, text: bytes, tail: int
) -> None:
    monkeypatch.setattr(reading, "TAIL", tail)
    file = file_of(write("in.svm", text))
    for size in range(1, len(text) + 2):
        blocks = cut_blocks([file], size)
        assert [block.index for block in blocks] == list(range(len(blocks)))
        assert all(block.size <= size for block in blocks)
        assert [line for block in blocks for line in lines_of(block)] == expected_lines(text), size


@given(st.lists(st.binary(max_size=12), max_size=12), st.lists(st.integers(0, 150), max_size=6))
@settings(max_examples=60)
def test_ranges_cut_anywhere_in_any_bytes(pieces: list[bytes], cuts: list[int]) -> None:
    text = b"1" + b"\n".join(pieces)
    with tempfile.NamedTemporaryFile(suffix=".svm") as handle:
        handle.write(text)
        handle.flush()
        file = file_of(handle.name)
        edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
        got = b""
        for k, (start, stop) in enumerate(pairwise(edges)):
            for piece in read_lines(span(k, file, start, stop), NONE, Limits(1)):
                got += piece.array[: piece.size].tobytes()
    assert got == text


def test_empty_files_have_no_blocks_and_large_ones_are_cut_evenly(write: Write) -> None:
    empty, large = file_of(write("empty", b"")), file_of(write("large", b"1\n" * 500))
    packed = file_of(write("packed.gz", gzip.compress(b"1\n" * 500)))
    blocks = cut_blocks([empty, large, packed], 300)
    assert [(one.file, one.start, one.stop) for block in blocks for one in block.spans] == [
        (large, 0, 250),
        (large, 250, 500),
        (large, 500, 750),
        (large, 750, 1000),
        (packed, 0, packed.size),
    ]


def test_small_neighbours_make_one_block(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """In input order, none larger than a block; compressed files count as the text that is likely in them."""
    sizes = [40, 30, 0, 30, 50, 250, 10]
    files = [file_of(write(f"{k}.svm", b"1" * size)) for k, size in enumerate(sizes)]
    blocks = cut_blocks(files, 100)
    shape = [[(files.index(one.file), one.start, one.stop) for one in block.spans] for block in blocks]
    assert shape == [
        [(0, 0, 40), (1, 0, 30), (3, 0, 30)],
        [(4, 0, 50)],
        [(5, 0, 83)],
        [(5, 83, 166)],
        [(5, 166, 250)],
        [(6, 0, 10)],
    ]
    assert [block.index for block in blocks] == list(range(6))
    assert [block.continues for block in blocks] == [False, False, False, True, True, False]
    packed = [file_of(write(f"{k}.svm.gz", gzip.compress(b"1\n"))) for k in range(4)]
    assert [len(block.spans) for block in cut_blocks(packed, 10 * packed[0].size)] == [2, 2]
    monkeypatch.setattr(inputs, "FILES", 3)
    assert [len(block.spans) for block in cut_blocks(packed, 10**6)] == [3, 1]


@pytest.mark.parametrize("suffix", ["", *PACK])
def test_a_block_of_several_files_gives_the_lines_of_each(write: Write, suffix: str) -> None:
    texts = list(SAMPLES.values())
    pack = PACK.get(suffix, bytes)
    files = [file_of(write(f"{k}.svm{suffix}", pack(text))) for k, text in enumerate(texts)]
    (block,) = cut_blocks(files, 10**6)
    got: list[list[bytes]] = [[] for _ in texts]
    for text in read_lines(block, NONE, Limits(7)):
        got[text.file] += text.array[: text.size].tobytes().splitlines(keepends=True)
    assert [b"".join(lines) for lines in got] == [b"".join(expected_lines(text)) for text in texts]


@pytest.mark.parametrize("change", ["shorter", "gone", "archive"])
def test_a_file_among_several_that_cannot_be_read_is_named(write: Write, change: str) -> None:
    names = ["a.svm", "b.svm", "c.svm"]
    files = [file_of(write(name, b"1 1:1\n" * 9)) for name in names]
    (block,) = cut_blocks(files, 10**6)
    path = Path(files[1].name)
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(b"1" if change == "shorter" else gzip.compress(b"1" * 54, 0))
    with pytest.raises(UserError, match=r"b\.svm"):
        list(read_lines(block, NONE, Limits(1000)))


def test_a_file_that_became_shorter_is_told(write: Write) -> None:
    path = write("in.svm", b"1 1:1\n" * 10)
    file = file_of(path)
    Path(path).write_bytes(b"1 1:1\n")
    with pytest.raises(UserError, match="shorter"):
        lines_of(span(0, file, 0, file.size))


# --- long lines -----------------------------------------------------------------------------------------------------


def lines_within(block: Block, limit: int, piece_size: int = 16) -> list[bytes]:
    """Lines as they are read, and ! in place of one that is too long."""
    lines: list[bytes] = []
    for text in read_lines(block, NONE, Limits(piece_size, limit)):
        lines += [b"!"] if text.flaw else text.array[: text.size].tobytes().splitlines(keepends=True)
    return lines


@pytest.mark.parametrize("suffix", ["", *PACK])
@pytest.mark.parametrize("tail", [4, 1 << 16])
@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_beyond_the_limit_is_marked_and_no_other_lost(
    write: Write, monkeypatch: pytest.MonkeyPatch, suffix: str, tail: int, ending: bytes
) -> None:
    monkeypatch.setattr(reading, "TAIL", tail)
    rng = random.Random(1)
    for case in range(30):
        lines = [b"1" * rng.choice([0, 1, 9, 10, 11, 12, 30, 200]) for _ in range(rng.randint(1, 9))]
        text = b"\n".join([b"#", *lines]) + ending
        expected = [line if len(line.rstrip(b"\n")) <= 10 else b"!" for line in expected_lines(text)]
        file = file_of(write(f"{case}.svm{suffix}", PACK.get(suffix, bytes)(text)))
        for size in (1, 7, 40, 10**6):
            blocks = cut_blocks([file], size)
            assert [line for block in blocks for line in lines_within(block, 10, size)] == expected, (text, size)


def test_blocks_inside_a_long_line_do_not_read_it_again(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are read twice at most: by the block where it starts, and by the one they lie in."""
    monkeypatch.setattr(reading, "TAIL", 16)
    read = 0

    def counted(fs: Any, paths: list[str], starts: list[int], stops: list[int]) -> list[bytes]:
        nonlocal read
        read += sum(stops) - sum(starts)
        return read_ranges(fs, paths, starts, stops)

    monkeypatch.setattr(reading, "read_ranges", counted)
    file = file_of(write("in.svm", b"1\n1" + b" 1:1" * 50_000 + b"\n1\n"))
    blocks = cut_blocks([file], 1000)
    got = [line for block in blocks for line in lines_of(block)]
    assert [len(line) for line in got] == [2, 200_002, 2]
    assert read < 2 * file.size


def test_of_a_line_that_is_too_long_only_so_much_is_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "TAIL", 16)
    read: list[int] = []

    def counted(fs: Any, paths: list[str], starts: list[int], stops: list[int]) -> list[bytes]:
        read.append(sum(stops) - sum(starts))
        return read_ranges(fs, paths, starts, stops)

    monkeypatch.setattr(reading, "read_ranges", counted)
    file = file_of(write("in.svm", b"1" * 1_000_000))
    assert lines_within(cut_blocks([file], 1000)[0], 5000) == [b"!"]
    assert sum(read) < 20_000


@pytest.mark.parametrize("what", [b"\0", b"1", b"\n"], ids=["zeros", "one line", "newlines"])
@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_decompression_bomb_stays_within_a_few_pieces_of_memory(write: Write, suffix: str, what: bytes) -> None:
    size, piece, limit = 64 << 20, 1 << 20, 2 << 20
    (block,) = cut_blocks([file_of(write(f"in.svm{suffix}", PACK[suffix](b"1\n" + what * size)))], 1000)
    tracemalloc.start()
    try:
        texts = [(text.size, text.flaw) for text in read_lines(block, NONE, Limits(piece, limit))]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    assert sum(bool(flaw) for _, flaw in texts) == (what != b"\n")
    assert sum(size for size, _ in texts) == 2 + (size if what == b"\n" else 0)


# --- which files ----------------------------------------------------------------------------------------------------


def test_files_come_in_the_order_given_and_once(write: Write, tmp_path: Path) -> None:
    for name in ("a.svm", "b.svm", "c.svm"):
        write(name, b"1\n")
    paths = [str(tmp_path / name) for name in ("b.svm", "a.svm", "b.svm")]
    assert found(*paths, str(tmp_path / "*.svm")) == ["b.svm", "a.svm", "c.svm"]


def test_one_file_under_several_spellings_is_one_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("sub/a.svm", b"1\n")
    monkeypatch.chdir(Path(path).parent)
    assert found(path, "a.svm", "./a.svm", f"file://{path}", "../sub/a.svm", "*.svm", ".") == ["a.svm"]


def test_a_folder_is_its_files_without_the_hidden_ones(write: Write, tmp_path: Path) -> None:
    for name in ("z.svm", "sub/a.svm", "_SUCCESS", ".part.crc", "_temporary/x.svm", ".git/y.svm", "sub/_x"):
        write(f"in/{name}", b"1\n")
    assert found(str(tmp_path / "in")) == ["a.svm", "z.svm"]
    assert found(str(tmp_path / "in") + "/") == ["a.svm", "z.svm"]


def test_a_folder_below_a_hidden_one_is_not_hidden_itself(write: Write, tmp_path: Path) -> None:
    write("_private/.in/a.svm", b"1\n")
    assert found(str(tmp_path / "_private/.in")) == ["a.svm"]


def test_globs(write: Write, tmp_path: Path) -> None:
    for name in ("day=1/a.svm", "day=2/b.svm", "day=2/b.txt", "other/c.svm"):
        write(name, b"1\n")
    assert found(f"{tmp_path}/day=*/*.svm") == ["a.svm", "b.svm"]
    assert found(f"{tmp_path}/**/*.svm") == ["a.svm", "b.svm", "c.svm"]
    assert found(f"{tmp_path}/day=[2-9]/?.svm") == ["b.svm"]


def test_a_glob_that_matches_folders_reads_them(write: Write, tmp_path: Path) -> None:
    """As a shell would pass them, were the pattern not quoted. Leaving them out in silence would lose data."""
    for name in ("day=1/a.svm", "day=2/b.svm", "day=x.svm"):
        write(name, b"1\n")
    assert found(f"{tmp_path}/day=*") == ["a.svm", "b.svm", "day=x.svm"]


def test_a_file_whose_name_looks_like_a_glob(write: Write) -> None:
    assert found(write("a[1]*.svm", b"1\n")) == ["a[1]*.svm"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("missing.svm", "no such file"), ("*.nothing", "nothing matches"), ("empty", "the folder is empty")],
)
def test_what_is_not_there_is_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=message) as caught:
        find_inputs([str(tmp_path / name)], NONE)
    assert name in str(caught.value)


def test_an_input_is_known_again_by_size_and_time(write: Write) -> None:
    path = write("a.svm", b"1\n")
    before = file_of(path).identity()
    assert file_of(path).identity() == before
    Path(path).write_bytes(b"1 1:1\n")
    assert file_of(path).identity() != before


# --- compressed files -----------------------------------------------------------------------------------------------

TEXT = b"".join(b"%d %d:%d # line\n" % (k % 2, k + 1, k) for k in range(40))


@pytest.mark.parametrize("piece_size", [1, 2, 3, 7, 100, 10**6])
@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("text", [TEXT, TEXT[:-1], b"\n\n", b"1", b""], ids=["text", "cut", "blank", "byte", "empty"])
def test_a_compressed_file_is_read_piece_by_piece(write: Write, suffix: str, piece_size: int, text: bytes) -> None:
    (block,) = cut_blocks([file_of(write(f"in.svm{suffix}", PACK[suffix](text)))], 10)
    assert lines_of(block, piece_size) == expected_lines(text)


@pytest.mark.parametrize("piece_size", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("suffix", PACK)
def test_a_compressed_file_may_start_with_a_bom(write: Write, suffix: str, piece_size: int) -> None:
    text = b"\xef\xbb\xbf" + TEXT
    (block,) = cut_blocks([file_of(write(f"in.svm{suffix}", PACK[suffix](text)))], 10)
    assert lines_of(block, piece_size) == expected_lines(text)


@pytest.mark.parametrize("suffix", PACK)
def test_archives_written_one_behind_the_other_are_one_text(write: Write, suffix: str) -> None:
    packed = PACK[suffix](TEXT[:100]) + PACK[suffix](TEXT[100:])
    (block,) = cut_blocks([file_of(write(f"in.svm{suffix}", packed))], 10)
    assert lines_of(block, 64) == expected_lines(TEXT)


@pytest.mark.parametrize("suffix", PACK)
def test_every_cut_of_an_archive_is_noticed(write: Write, tmp_path: Path, suffix: str) -> None:
    packed = PACK[suffix](TEXT)
    for cut in range(1, len(packed)):
        path = write(f"in.svm{suffix}", packed[:cut])
        (block,) = cut_blocks([file_of(path)], 10)
        with pytest.raises(UserError, match="cut-off archive") as caught:
            lines_of(block)
        assert path in str(caught.value)


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("content", [b"1 1:1\n0 2:2\n" * 9, b"\0" * 100], ids=["text", "zeros"])
def test_a_file_that_is_not_what_its_name_says(write: Write, suffix: str, content: bytes) -> None:
    (block,) = cut_blocks([file_of(write(f"in.svm{suffix}", content))], 10)
    with pytest.raises(UserError, match="damaged"):
        lines_of(block)


@pytest.mark.parametrize("suffix", PACK)
def test_a_damaged_archive_is_told(write: Write, suffix: str) -> None:
    packed = bytearray(PACK[suffix](TEXT * 20))
    packed[len(packed) // 2] ^= 0xFF
    (block,) = cut_blocks([file_of(write(f"in.svm{suffix}", bytes(packed)))], 10)
    try:
        assert lines_of(block) != expected_lines(TEXT * 20), "only zstd has no checksum by default"
        assert suffix == ".zst"
    except UserError as error:
        assert "damaged" in str(error)


@pytest.mark.parametrize("suffix", [*PACK, ".parquet"])
def test_an_archive_without_its_suffix_is_refused_with_advice(write: Write, suffix: str) -> None:
    content = PACK[suffix](TEXT) if suffix in PACK else b"PAR1" + bytes(20)
    (block, *_) = cut_blocks([file_of(write("in.svm", content))], 10**6)
    with pytest.raises(UserError, match=f"looks like a {suffix} file") as caught:
        lines_of(block)
    assert ("rename it" in str(caught.value)) == (suffix in PACK)


def test_the_helper_writes_what_others_read() -> None:
    assert pa.CompressedInputStream(io.BytesIO(zst(TEXT)), "zstd").read() == TEXT
