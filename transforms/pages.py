"""The lists of a row group straight from Parquet's pages, for those who read the same row groups over and over.

Arrow decodes two levels beside each nonzero, to find where lists end: measured, 4.8 ns a nonzero in all. Where they end
is known once a row group was read. What is left then is to unpack the examples and to read the values: 0.7 ns.

Only what `parts.py` writes is understood: data pages of version 2, not compressed, of delta-packed integers and plain
floats. A row group is read so where that gives what Arrow gave, bit for bit. All others are left to Arrow each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.compiled import kernel, part, step
from transforms.schema import Mismatch
from transforms.validation import refuse_malformed_lists, refuse_malformed_values

DATA_PAGE_V2, PLAIN, DELTA_BINARY_PACKED = 3, 0, 5  # numbers of the Parquet format
HEADER = 1 << 10  # bytes that hold the header of a page
BEHIND = 8  # bytes that are read behind the last page, as integers are unpacked from eight bytes; a footer is longer


def _count_references(arrays: list[np.ndarray]) -> list[int]:
    return [getrefcount(array) for array in arrays]


UNUSED = _count_references([np.empty(0)])[0]  # of an array that only its list holds


class Memory:
    """Arrays of memory that was used before: fresh memory takes as long as decoding, as the system clears it.

    A piece of it is used again when nobody holds an array of it any more, whoever had it.
    """

    def __init__(self) -> None:
        self._pieces: list[np.ndarray] = []

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(piece.size for piece in self._pieces)

    def empty(self, size: int, dtype: Any) -> np.ndarray:
        """As np.empty(size, dtype)."""
        wanted = size * np.dtype(dtype).itemsize
        counts = _count_references(self._pieces)
        free = [piece for piece, count in zip(self._pieces, counts, strict=True) if count <= UNUSED]
        piece = min((one for one in free if one.size >= wanted), key=lambda one: one.size, default=None)
        if piece is None:
            if free:  # all of them too small
                self._pieces = [one for one in self._pieces if one is not free[-1]]
            piece = np.empty(wanted + wanted // 8, np.uint8)  # row groups differ a little
            self._pieces.append(piece)
        return piece[:wanted].view(dtype)


class Lists(NamedTuple):
    """Positions and values of features, as in a CSC matrix; data is None where every value is 1."""

    indptr: np.ndarray  # int64
    indices: np.ndarray | None  # int32; None where each feature is known to have a value for every example
    data: np.ndarray | None  # float32


@dataclass(frozen=True)
class Page:
    """So many numbers, encoded in these bytes of the file."""

    count: int
    start: int
    stop: int


@dataclass(frozen=True)
class Pages:
    """Where the lists of a row group stand in its file."""

    examples: list[Page]
    values: list[Page] | None
    indptr: np.ndarray

    def read_examples(self, source: pa.NativeFile, memory: Memory) -> np.ndarray:
        """The positions. Mismatch if the file is too short, or they are not packed as they should be."""
        first = self.examples[0].start
        packed = memory.empty(self.examples[-1].stop - first + BEHIND, np.uint8)
        _read_into(packed, source, first)
        words = np.ndarray(packed.size - 7, np.uint64, packed.data, 0, 1)  # words[k]: the eight bytes from byte k on
        indices = memory.empty(int(self.indptr[-1]), np.int32)
        for page, out in _shares(self.examples, indices):
            if not _unpack_deltas(packed, words, page.start - first, page.stop - first, out):
                raise Mismatch("a page of examples is broken")
        return indices

    def read_values(self, source: pa.NativeFile, memory: Memory) -> np.ndarray | None:
        """The values, if there are any. Mismatch if the file is too short."""
        if self.values is None:
            return None
        data = memory.empty(int(self.indptr[-1]), np.float32)
        for page, out in _shares(self.values, data):
            _read_into(out.view(np.uint8), source, page.start)
        return data


def _read_into(out: np.ndarray, source: pa.NativeFile, start: int) -> None:
    source.seek(start)
    if (found := source.readinto(out)) < out.size:
        raise Mismatch(f"{out.size - found} bytes are missing")


class PageReader:
    """Reads row groups of one file again and again."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._pages: dict[int, Pages | None] = {}  # of the row groups that Arrow has read

    def knows(self, group: int) -> bool:
        """Is this row group read by its pages?"""
        return self._pages.get(group) is not None

    def read(self, group: int, source: pa.NativeFile, n: int) -> Lists | None:
        """The lists over n examples, well-formed; None if the pages of this row group are not known."""
        pages = self._pages.get(group)
        if pages is None:
            return None
        data = pages.read_values(source, self._memory)
        if data is not None and data.size == (pages.indptr.size - 1) * n:  # every example, whatever the examples say
            refuse_malformed_values(data)
            return Lists(pages.indptr, None, data)
        indices = pages.read_examples(source, self._memory)
        refuse_malformed_lists(pages.indptr, indices, data, n)
        return Lists(pages.indptr, indices, data)

    def note(self, group: int, about: pq.FileMetaData, source: pa.NativeFile, lists: Lists) -> None:
        """Find the pages of a row group, given what Arrow made of it."""
        if group not in self._pages:
            self._pages[group] = _find_pages(about.row_group(group), source, lists, self._memory)


def _find_pages(group: pq.RowGroupMetaData, source: pa.NativeFile, lists: Lists, memory: Memory) -> Pages | None:
    """The pages of a row group that Arrow has read; None unless they give the same lists, bit for bit.

    Only for a row group that was read: pyarrow lets a broken footer end the process when it is asked for a column.
    """
    chunks = [group.column(k) for k in range(3, group.num_columns)]
    if any(one.has_dictionary_page or one.compression != "UNCOMPRESSED" for one in chunks):
        return None
    assert lists.indices is not None, "Arrow reads them"
    try:
        examples = _list_pages(source, chunks[0], DELTA_BINARY_PACKED, lists.indices.size)
        values = None if lists.data is None else _list_pages(source, chunks[1], PLAIN, lists.data.size)
        pages = Pages(examples, values, lists.indptr.copy())
        same = _same_bits(pages.read_examples(source, memory), lists.indices)
        return pages if same and _same_bits(pages.read_values(source, memory), lists.data) else None
    except (Mismatch, IndexError, KeyError, TypeError):  # of a header that holds something else
        return None


def _same_bits(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(one.view(np.int32), other.view(np.int32))


def _shares(pages: list[Page], array: np.ndarray) -> list[tuple[Page, np.ndarray]]:
    """Each page with its share of the array."""
    ends = np.cumsum([page.count for page in pages]).tolist()
    return [(page, array[end - page.count : end]) for page, end in zip(pages, ends, strict=True)]


def _list_pages(source: pa.NativeFile, chunk: pq.ColumnChunkMetaData, encoding: int, size: int) -> list[Page]:
    """The pages of a column, which holds so many numbers; each has a header before it, in Thrift's compact protocol."""
    pages, at, end = [], chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
    while at < end:
        header, begin = _read_struct(source.read_at(min(HEADER, end - at), at), 0)
        about = header[8]  # what a data page of version 2 has
        first, stop = at + begin + about[5] + about[6], at + begin + header[3]  # behind the levels
        known = header[1] == DATA_PAGE_V2 and about[4] == encoding and about[2] == 0
        if not known or not at < first <= stop <= end or not 0 <= about[1] <= size:
            raise Mismatch("a page of another kind")
        if encoding == PLAIN and stop - first != 4 * about[1]:
            raise Mismatch("a page of another size")
        pages.append(Page(about[1], first, stop))
        at = stop
    if not pages or sum(page.count for page in pages) != size:
        raise Mismatch("pages of another size")
    return pages


def _read_struct(content: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct in Thrift's compact protocol, by their numbers, and where it ends.

    PageHeader: 1 type, 3 bytes, 8 of version 2. Of these: 1 values, 2 nulls, 4 encoding, 5 and 6 bytes of levels.
    """
    fields: dict[int, Any] = {}
    number = 0
    while (head := content[at]) != 0:
        at += 1
        if not head >> 4 or depth > 2:
            raise Mismatch("a header of another kind")
        number, kind = number + (head >> 4), head & 15
        if kind in (1, 2):
            fields[number] = kind == 1
        elif kind in (4, 5, 6):
            value, at = _read_varint(content, at)
            fields[number] = value >> 1 ^ -(value & 1)
        elif kind == 8:
            size, at = _read_varint(content, at)
            at += size
        elif kind == 12:
            fields[number], at = _read_struct(content, at, depth + 1)
        else:
            raise Mismatch("a header of another kind")
    return fields, at + 1


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while content[at] & 128:
        if shift > 63:
            raise Mismatch("a header of another kind")
        value |= (content[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return value | content[at] << shift, at + 1


@part
def _varint(raw, at, stop):  # type: ignore[no-untyped-def]
    """A number of 7 bits a byte, and where it ends; beyond `stop` if it is broken."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < stop and shift < 64:
        byte = np.uint64(raw[at])
        at += 1
        value |= (byte & np.uint64(127)) << shift
        shift += np.uint64(7)
        if byte < 128:
            return value, at
    return value, stop + 1


@part
def _zigzag(value):  # type: ignore[no-untyped-def]
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


@kernel
def _unpack_deltas(raw, words, at, stop, out):  # type: ignore[no-untyped-def]
    """out = the integers of a DELTA_BINARY_PACKED page, raw[at:stop]; False if it holds no such."""
    block, at = _varint(raw, at, stop)
    parts, at = _varint(raw, at, stop)
    count, at = _varint(raw, at, stop)
    first, at = _varint(raw, at, stop)
    if at > stop or block != 128 or parts != 4 or count != out.size or out.size == 0:
        return False
    last = _zigzag(first)
    out[0] = last
    done = 1
    while done < out.size:
        least, at = _varint(raw, at, stop)
        widths, at = at, at + 4
        if at > stop:
            return False
        base = _zigzag(least)
        for quarter in range(4):
            width, count = np.int64(raw[widths + quarter]), min(32, out.size - done)
            if count > 0 and (width > 32 or at + 4 * width > stop):
                return False
            last = _add_deltas(words, at, width, base, last, out, done, count)
            done, at = done + count, at + 4 * width
    return True


@step
def _add_deltas(words, at, width, base, last, out, first, count):  # type: ignore[no-untyped-def]
    """out[first : first + count] = last + cumsum(base + d), d being numbers of `width` bits from byte `at` on.

    Returns the last of them. Positions are unsigned: no test for negative ones.
    """
    w, bit, k = np.uint64(width), np.uint64(8 * at), np.uint64(first)
    mask, stop = (np.uint64(1) << w) - np.uint64(1), k + np.uint64(count)
    if width <= 14:  # four of them are in one word
        while k + np.uint64(4) <= stop:
            word = words[bit >> np.uint64(3)] >> (bit & np.uint64(7))
            a = base + np.int64(word & mask)
            b = base + np.int64((word >> w) & mask)
            c = base + np.int64((word >> (w + w)) & mask)
            d = base + np.int64((word >> (w + w + w)) & mask)
            out[k] = last + a
            out[k + np.uint64(1)] = last + (a + b)
            out[k + np.uint64(2)] = last + ((a + b) + c)
            last += (a + b) + (c + d)
            out[k + np.uint64(3)] = last
            bit += np.uint64(4) * w
            k += np.uint64(4)
    while k < stop:
        last += base + np.int64((words[bit >> np.uint64(3)] >> (bit & np.uint64(7))) & mask)
        out[k] = last
        bit += w
        k += np.uint64(1)
    return last
