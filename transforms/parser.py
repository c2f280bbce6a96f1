"""Parse LIBSVM text: a block of whole lines into labels, row pointers, feature ids and float32 values.

The inner loop of the Map step (section 3 of the paper). Digits are read eight at a time from one 64-bit
load; the grammar and every error it can find are in `parse_lines`. A parsed value equals `float(text)` rounded
to float32, bit for bit: where the fast arithmetic cannot prove that, the position is put on a list and the
text is handed to Python's own `float` afterwards (about one value in 10^8 of those with 17 digits and more).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from transforms.compiled import kernel, part, step

MAX_ID = 2**62
LARGEST_LABEL = float(np.finfo(np.float32).max)  # as of values: squares and sums of them stay finite
PADDING = 16  # bytes past the text that the 64-bit loads may touch

# What parse_lines reports of a bad line, and what it expected instead.
UNSURE, FLOAT32, EXACT = range(3)  # how far a parsed number can be trusted: not, rounded to float32, in full
OK, BAD_LABEL, BAD_WEIGHT, NO_COLON, BAD_ID, ID_RANGE = range(6)
ID_ZERO, BAD_VALUE, NOT_FINITE, RANGE, DUPLICATE, NUL = range(6, 12)
EXPECTED = {
    BAD_LABEL: "expected a label: a number at the start of the line",
    BAD_WEIGHT: "expected a finite weight >= 0 after 'label:'",
    NO_COLON: "expected id:value, but found no colon after the id",
    BAD_ID: "expected id:value, the id a whole number",
    ID_RANGE: "expected a feature id of at most 2^62",
    ID_ZERO: "feature id 0, but ids are 1-based by default: pass --zero-based if this input counts from 0",
    BAD_VALUE: "expected a number after the colon",
    NOT_FINITE: "nan and inf are not allowed: expected a finite number",
    RANGE: "value does not fit float32 (largest 3.4e38)",
    DUPLICATE: "the same feature id stands twice in this line",
    NUL: "a NUL byte: is this a binary or compressed file?",
}

_DIGITS = np.uint64(0x3030303030303030)
_OVER_9 = np.uint64(0x4646464646464646)
_HIGH = np.uint64(0x8080808080808080)
_PAIRS = np.uint64(0x000000FF000000FF)
_MUL_1 = np.uint64(0x000F424000000064)
_MUL_2 = np.uint64(0x0000271000000001)
_TEN = np.uint64(10)
_POW10 = np.array([float(f"1e{k}") for k in range(309)])
_UPOW10 = np.array([10**k for k in range(20)], dtype=np.uint64)
_2_53 = np.uint64(2**53)
_GUARD = 2.0**-50  # four units in the last place: more than the inexact path can be wrong by
_SAFE_LOW = 1e-36  # below it float32 loses digits
_TOO_LARGE = 2.0**128 - 2.0**103  # from here on float32 rounds to infinity,
_TOO_LARGE_DIGITS = np.uint64(3402823567797336427)  # that is beyond these 19 digits, as float64 rounds first


@intrinsic
def _load_byte(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        return builder.load(pointer)

    return types.uint8(types.int64), codegen


@intrinsic
def _load_8_bytes(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(types.int64), codegen


@intrinsic
def _trailing_zeros(typingctx: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@step
def _digit_run(at):  # type: ignore[no-untyped-def]
    """Number of digits (0 to 8) at address `at`, and their value: int(text[:count])."""
    word = _load_8_bytes(at)
    not_digit = ((word + _OVER_9) | (word - _DIGITS)) & _HIGH
    count = _trailing_zeros(not_digit) >> 3  # cttz(0) is 64, so eight digits give 8
    if count == 0:
        return np.int64(0), np.uint64(0)
    word = (word - _DIGITS) << np.uint64(64 - 8 * count)
    word = word * _TEN + (word >> np.uint64(8))
    value = ((word & _PAIRS) * _MUL_1 + ((word >> np.uint64(16)) & _PAIRS) * _MUL_2) >> np.uint64(32)
    return count, value & np.uint64(0xFFFFFFFF)


@step
def _digits(at):  # type: ignore[no-untyped-def]
    """All digits at `at`: their count, and their value when there are at most 19 (it wraps beyond)."""
    count, value = _digit_run(at)
    total = count
    while count == 8:
        count, more = _digit_run(at + total)
        value = value * _UPOW10[count] + more
        total += count
    return total, value


@step
def _is_end(byte):  # type: ignore[no-untyped-def]
    """Does a token end here: blank, tab, CR, vertical tab, form feed, newline, or a comment's #."""
    return byte == 32 or (9 <= byte <= 13) or byte == 35


@part
def _number(at):  # type: ignore[no-untyped-def]
    """Read [+-]digits[.digits][e[+-]digits]: (address after it, value, UNSURE or FLOAT32 or EXACT, status)."""
    byte = _load_byte(at)
    negative = byte == 45
    if negative or byte == 43:
        at += 1
        byte = _load_byte(at)
    start = at
    digits, mantissa = _digits(at)
    at += digits
    exponent = np.int64(0)
    if _load_byte(at) == 46:
        fraction, value = _digits(at + 1)
        digits += fraction
        at += 1 + fraction
        exponent = -fraction
        mantissa = mantissa * _UPOW10[min(fraction, 19)] + value
    if digits == 0:
        lower, following = byte | np.uint8(32), _load_byte(at + 1) | np.uint8(32)
        is_word = (lower == 110 and following == 97) or (lower == 105 and following == 110)  # na(n), in(f); not "no"
        return at, 0.0, EXACT, NOT_FINITE if is_word else BAD_VALUE
    if digits > 19:
        mantissa, exponent = _leading_digits(start)
    if _load_byte(at) | np.uint8(32) == 101:
        sign = _load_byte(at + 1)
        skip = 2 if sign == 45 or sign == 43 else 1
        zeros = at + skip
        while _load_byte(zeros) == 48 and 48 <= _load_byte(zeros + 1) <= 57:
            zeros += 1
        count, power = _digits(zeros)
        if count == 0:
            return at, 0.0, EXACT, BAD_VALUE
        at = zeros + count
        bounded = np.int64(power) if count <= 9 else np.int64(10**9)
        exponent += -bounded if sign == 45 else bounded
    value, trust, code = _scale(mantissa, exponent)
    if digits > 19:
        trust = min(trust, FLOAT32)  # digits were left out
    return at, -value if negative else value, trust, code


@part
def _leading_digits(at):  # type: ignore[no-untyped-def]
    """Of a number with more than 19 digits: the first 19 that count, and the power of ten they are worth."""
    mantissa, kept, exponent, after_point = np.uint64(0), np.int64(0), np.int64(0), False
    while True:
        byte = _load_byte(at)
        if byte == 46 and not after_point:
            after_point = True
        elif 48 <= byte <= 57:
            if kept < 19:
                mantissa = mantissa * _TEN + np.uint64(byte - 48)
                kept += mantissa > 0
                exponent -= after_point
            else:
                exponent += not after_point
        else:
            return mantissa, exponent
        at += 1


@step
def _scale(mantissa, exponent):  # type: ignore[no-untyped-def]
    """mantissa * 10^exponent, how far it can be trusted, and the status.

    With mantissa <= 2^53 and |exponent| <= 22 both factors are exact, so the one rounding is the right one: EXACT.
    Otherwise the result is off by at most 2 units in the last place, which matters to float32 only next to a
    rounding boundary: FLOAT32 away from one, UNSURE near it.
    """
    if mantissa == 0:
        return 0.0, EXACT, OK
    if exponent < -300:  # at most 1e20 * 1e-301: nothing in float32
        return 0.0, FLOAT32, OK
    if exponent > 300:
        return np.inf, FLOAT32, RANGE
    value = np.float64(mantissa)
    if exponent < 0:
        value = value / _POW10[-exponent]
    elif exponent > 0:
        value = value * _POW10[exponent]
    if mantissa <= _2_53 and -22 <= exponent <= 22:
        return value, EXACT, OK
    if value > _TOO_LARGE * (1.0 - _GUARD):
        while mantissa < _UPOW10[18]:
            mantissa *= _TEN
        too_large = value > _TOO_LARGE * (1.0 + _GUARD) or mantissa > _TOO_LARGE_DIGITS
        return value, UNSURE, RANGE if too_large else OK
    if value < _SAFE_LOW:
        return value, UNSURE, OK
    same = np.float32(value * (1.0 - _GUARD)) == np.float32(value * (1.0 + _GUARD))
    return value, FLOAT32 if same else UNSURE, OK


@step
def _skip_blanks(at):  # type: ignore[no-untyped-def]
    byte = _load_byte(at)
    while byte == 32 or byte == 9 or (11 <= byte <= 13):
        at += 1
        byte = _load_byte(at)
    return at, byte


@part
def _skip_line(at):  # type: ignore[no-untyped-def]
    """The address of the newline, and of the first NUL byte before it (0: none)."""
    nul = np.int64(0)
    byte = _load_byte(at)
    while byte != 10:
        if byte == 0 and nul == 0:
            nul = at
        at += 1
        byte = _load_byte(at)
    return at, nul


@part
def _is_qid(at):  # type: ignore[no-untyped-def]
    return _load_8_bytes(at) & np.uint64(0xFFFFFFFF) == np.uint64(0x3A646971)  # "qid:" as a little-endian word


@part
def _sift_down(heap, at, size):  # type: ignore[no-untyped-def]
    """Let heap[at] sink to its place among heap[:size], the largest first."""
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and heap[child] < heap[child + 1]:
            child += 1
        if heap[at] >= heap[child]:
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@part
def _has_duplicate(ids, first, last):  # type: ignore[no-untyped-def]
    """np.unique(ids[first:last]).size < last - first, by a heap sort: np.sort would take a second to compile."""
    size = last - first
    heap = np.empty(size, np.int64)
    for k in range(size):
        heap[k] = ids[first + k]
    for k in range(size // 2 - 1, -1, -1):
        _sift_down(heap, k, size)
    for end in range(size - 1, 0, -1):
        heap[0], heap[end] = heap[end], heap[0]
        _sift_down(heap, np.int64(0), end)
        if end + 1 < size and heap[end] == heap[end + 1]:
            return True
    return size > 1 and heap[0] == heap[1]


@part
def _note(unsure, count, what, start, end):  # type: ignore[no-untyped-def]
    unsure[count, 0], unsure[count, 1], unsure[count, 2] = what, start, end
    return count + 1


@part
def _parse_label(at, base, row, unsure, n_unsure):  # type: ignore[no-untyped-def]
    """label or label:weight: (address after it, label, weight or NaN, n_unsure, status)."""
    token = at
    at, label, trust, code = _number(at)
    if code == BAD_VALUE or (code == OK and not _is_end(_load_byte(at)) and _load_byte(at) != 58):
        code = BAD_LABEL
    if code != OK:
        return at if _load_byte(at) == 0 else token, label, np.nan, n_unsure, code
    if trust != EXACT:
        n_unsure = _note(unsure, n_unsure, -1 - 2 * row, token - base, at - base)
    if _load_byte(at) != 58:
        return at, label, np.nan, n_unsure, OK
    token = at + 1
    at, weight, trust, code = _number(token)
    if code != OK or np.float32(weight) < 0.0 or not _is_end(_load_byte(at)):
        return at if _load_byte(at) == 0 else token, label, weight, n_unsure, BAD_WEIGHT
    if trust == UNSURE:
        n_unsure = _note(unsure, n_unsure, -2 - 2 * row, token - base, at - base)
    return at, label, weight, n_unsure, OK


@part
def _parse_features(at, base, first_id, ids, values, nnz, unsure, n_unsure):  # type: ignore[no-untyped-def]
    """The id:value pairs of one line: (address where they end, nnz, n_unsure, all ones, status)."""
    row_start, previous = nnz, np.int64(-1)
    ascending = all_ones = True
    while True:
        at, byte = _skip_blanks(at)
        if byte == 10 or byte == 35:
            break
        count, value = _digits(at)
        if _load_byte(at + count) != 58 or count == 0:
            if _is_qid(at):
                while not _is_end(_load_byte(at)) and _load_byte(at) != 0:
                    at += 1
                continue
            missing = count > 0 and _is_end(_load_byte(at + count))
            bad = at + count if _load_byte(at + count) == 0 else at
            return bad, nnz, n_unsure, False, NO_COLON if missing else BAD_ID
        if count > 19 or value > np.uint64(MAX_ID):
            return at, nnz, n_unsure, False, ID_RANGE
        feature = np.int64(value)
        if feature < first_id:
            return at, nnz, n_unsure, False, ID_ZERO
        if feature <= previous:
            ascending = False
        previous = feature
        ids[nnz] = feature
        at += count + 1
        # "1" and a blank is by far the commonest value: all-ones data.
        if _load_byte(at) == 49 and _load_byte(at + 1) <= 32 and _is_end(_load_byte(at + 1)):
            at += 1
            values[nnz] = np.float32(1.0)
        else:
            token = at
            at, number, trust, code = _number(at)
            if code == OK and not _is_end(_load_byte(at)):
                code = BAD_VALUE
            if code != OK:
                return at if _load_byte(at) == 0 else token, nnz, n_unsure, False, code
            if trust == UNSURE:
                n_unsure = _note(unsure, n_unsure, nnz, token - base, at - base)
            values[nnz] = np.float32(number)
            all_ones = all_ones and trust != UNSURE and values[nnz] == 1.0
        nnz += 1
    if not ascending and _has_duplicate(ids, row_start, nnz):
        return at, nnz, n_unsure, False, DUPLICATE
    return at, nnz, n_unsure, all_ones, OK


@kernel
def parse_lines(text, stop, first_id, labels, weights, indptr, ids, values, unsure, bad):  # type: ignore[no-untyped-def]
    """Parse text[:stop], whole lines, into the arrays given; a newline and PADDING bytes must follow.

    labels, weights: one per row (weight NaN where none is written). indptr, ids, values: the rows in CSR form.
    unsure: (what, start, end) of numbers left to Python's float, `what` being a position in values or, for
    the label and the weight of row i, -1-2i and -2-2i. bad: (line, line start, position, code) of the first bad
    lines; one is enough to stop when `bad` has room for one only.
    Returns (rows, nnz, lines, unsure, bad, are all values one).
    """
    base = np.int64(text.ctypes.data)
    at, end = base, base + stop
    rows = nnz = lines = n_unsure = n_bad = np.int64(0)
    all_ones = True
    indptr[0] = 0
    while at < end:
        lines += 1
        line_start, row_nnz, row_unsure, row_ones, code = at, nnz, n_unsure, True, OK
        at, byte = _skip_blanks(at)
        blank = byte == 10 or byte == 35
        if not blank:
            at, label, weight, row_unsure, code = _parse_label(at, base, rows, unsure, n_unsure)
            if code == OK:
                at, row_nnz, row_unsure, row_ones, code = _parse_features(
                    at, base, first_id, ids, values, nnz, unsure, row_unsure
                )
            if code != OK and _load_byte(at) == 0:
                code = NUL
        position = at
        at, nul = _skip_line(at)
        at += 1
        if code == OK and nul != 0:
            code, position = NUL, nul
        if code != OK:
            if n_bad < bad.shape[0]:
                bad[n_bad, 0], bad[n_bad, 1] = lines, line_start - base
                bad[n_bad, 2], bad[n_bad, 3] = position - base, code
            n_bad += 1
            if bad.shape[0] == 1:
                break
        elif not blank:
            labels[rows], weights[rows] = label, weight
            rows += 1
            nnz, n_unsure = row_nnz, row_unsure
            indptr[rows] = nnz
            all_ones = all_ones and row_ones
    return rows, nnz, lines, n_unsure, n_bad, all_ones


@kernel
def drop_zeros(indptr, ids, values):  # type: ignore[no-untyped-def]
    """Close the gaps that explicit zeros leave, in place; returns the nonzeros left."""
    kept = start = np.int64(0)
    for row in range(indptr.size - 1):
        stop = indptr[row + 1]
        for k in range(start, stop):
            if values[k] != 0.0:
                ids[kept], values[kept] = ids[k], values[k]
                kept += 1
        start = stop
        indptr[row + 1] = kept
    return kept


@dataclass(frozen=True)
class BadSpot:
    """A bad line as the parser saw it: where in the block it is, and what is wrong with it."""

    line: int  # 1-based, counted from the start of the text parsed
    column: int  # 1-based
    text: str  # the offending piece, shortened
    expected: str
    file: int = 0  # position of its file among those of the block
    code: int = OK  # what is wrong with it, of EXPECTED; OK if the line could not even be read


@dataclass(frozen=True)
class Parsed:
    """The examples of a block of text, by example (CSR), explicit zeros left out."""

    labels: np.ndarray  # float64, as written
    weights: np.ndarray  # float32, NaN where none is written
    indptr: np.ndarray  # int64
    ids: np.ndarray  # int64, as written
    values: np.ndarray  # float32
    all_ones: bool
    lines: int
    bad_count: int
    bad: list[BadSpot]  # the first few


def are_labels(numbers: np.ndarray) -> bool:
    """Could text have held these as labels? NaN is none."""
    return bool((np.abs(numbers) <= LARGEST_LABEL).all())


def padded(text: bytes) -> np.ndarray:
    """The text as the array that parse() wants: with room behind it."""
    array = np.zeros(len(text) + PADDING, dtype=np.uint8)
    array[: len(text)] = np.frombuffer(text, dtype=np.uint8)
    return array


def parse(text: np.ndarray, stop: int, *, zero_based: bool = False, bad_lines: int = 1) -> Parsed:
    """Parse text[:stop], whole lines (the last newline may be missing); text has PADDING spare bytes at the end.

    bad_lines is how many bad lines to keep a record of; with 1, parsing stops at the first.
    """
    text[stop : stop + PADDING] = 0
    text[stop] = 10
    # Upper bounds ("1\n", "1:1 ", "1:1e-40 "); pages that are never touched take no memory.
    most_rows, most = stop // 2 + 1, stop // 4 + 1
    labels, weights = np.empty(most_rows), np.empty(most_rows, np.float32)
    indptr, ids, values = np.empty(most_rows + 1, np.int64), np.empty(most, np.int64), np.empty(most, np.float32)
    unsure, bad = np.empty((stop // 5 + 1, 3), np.int64), np.empty((bad_lines, 4), np.int64)
    rows, nnz, lines, n_unsure, n_bad, all_ones = parse_lines(
        text, stop, 0 if zero_based else 1, labels, weights, indptr, ids, values, unsure, bad
    )
    labels, weights, indptr = labels[:rows], weights[:rows], indptr[: rows + 1]
    for what, start, end in unsure[:n_unsure].tolist():
        number = float(text[start:end].tobytes())
        if what >= 0:
            values[what] = number
        else:
            (labels if what % 2 else weights)[(-1 - what) // 2] = number
    zeros = not all_ones and not values[:nnz].all()
    if zeros:
        nnz = drop_zeros(indptr, ids, values)
    if zeros or n_unsure:  # what is left, or what Python made of a number, may be 1
        all_ones = bool((values[:nnz] == 1).all())
    spots = [_spot(text, stop, *row) for row in bad[: min(n_bad, bad_lines)].tolist()]
    return Parsed(labels, weights, indptr, ids[:nnz], values[:nnz], all_ones, lines, n_bad, spots)


def join(pieces: Sequence[Parsed]) -> Parsed:
    """The examples of several texts, one after the other; a single one is left as it is."""
    if len(pieces) == 1:
        return pieces[0]
    starts = np.cumsum([0, *(piece.ids.size for piece in pieces)]).tolist()
    ends = [piece.indptr[1:] + start for piece, start in zip(pieces, starts, strict=False)]
    return Parsed(
        np.concatenate([np.empty(0), *(piece.labels for piece in pieces)]),
        np.concatenate([np.empty(0, np.float32), *(piece.weights for piece in pieces)]),
        np.concatenate([np.zeros(1, np.int64), *ends]),
        np.concatenate([np.empty(0, np.int64), *(piece.ids for piece in pieces)]),
        np.concatenate([np.empty(0, np.float32), *(piece.values for piece in pieces)]),
        all(piece.all_ones for piece in pieces),
        sum(piece.lines for piece in pieces),
        sum(piece.bad_count for piece in pieces),
        [spot for piece in pieces for spot in piece.bad],
    )


def trimmed(parsed: Parsed) -> Parsed:
    """The same in arrays of its own: the parser's are views of far larger ones, which would stay in memory."""
    arrays = {name: getattr(parsed, name).copy() for name in ("labels", "weights", "indptr", "ids", "values")}
    return replace(parsed, **arrays)


def bad_line(expected: str) -> Parsed:
    """One bad line and nothing else."""
    return replace(parse(padded(b""), 0), lines=1, bad_count=1, bad=[BadSpot(1, 1, "", expected)])


def _spot(text: np.ndarray, stop: int, line: int, line_start: int, position: int, code: int) -> BadSpot:
    """Put a bad line into words."""
    rest = text[line_start:stop].tobytes()
    content = rest[: rest.find(b"\n")] if b"\n" in rest else rest
    column = position - line_start
    if code == DUPLICATE:
        column = _second_occurrence(content)
    token = [] if content[column : column + 1].isspace() else content[column:].split(maxsplit=1)[:1]
    shown = token[0][:40].decode("utf-8", "backslashreplace") if token else ""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in shown)
    ellipsis = "…" if token and len(token[0]) > 40 else ""
    return BadSpot(line, column + 1, shown + ellipsis, EXPECTED[code], code=code)


def _second_occurrence(line: bytes) -> int:
    """Offset of the first id:value whose id stood in the line before."""
    seen: set[int] = set()
    label = re.match(rb"\s*\S*", line)
    assert label is not None
    for match in re.compile(rb"(?<=[ \t\r\v\f])([0-9]+):").finditer(line.split(b"#")[0], label.end()):
        if int(match[1]) in seen:
            return match.start()
        seen.add(int(match[1]))
    return 0
