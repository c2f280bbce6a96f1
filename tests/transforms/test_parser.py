"""The parser: every way to write LIBSVM text, float32 bit for bit, and every kind of bad line."""

from __future__ import annotations

import struct
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.reference import LARGEST, MAX_ID, read_line, read_text, spellings, texts
from transforms import parser
from transforms.parser import EXPECTED, Parsed, padded, parse


def parsed(text: bytes, *, zero_based: bool = False, bad_lines: int = 1) -> Parsed:
    return parse(padded(text), len(text), zero_based=zero_based, bad_lines=bad_lines)


def rows_of(result: Parsed) -> list[dict[int, float]]:
    return [
        dict(zip(result.ids[a:b].tolist(), result.values[a:b].tolist(), strict=True))
        for a, b in zip(result.indptr[:-1], result.indptr[1:], strict=True)
    ]


def value_of(text: str) -> np.float32:
    """The one value of a line, through the parser; 0 when it was dropped."""
    result = parsed(f"1 7:{text}\n".encode())
    assert not result.bad, result.bad
    return np.float32(result.values[0] if result.values.size else 0.0)


def bits(value: np.float32) -> int:
    return int(np.abs(value).view(np.uint32)) if value == 0 else int(value.view(np.uint32))


# --- the format as people write it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "labels", "rows"),
    [
        (b"+1 1:1\n1 1:1\n-1 1:1\n0 1:1\n1.0 1:1\n", [1, 1, -1, 0, 1], [{1: 1}] * 5),
        (b"2 1:1\n1e0 1:1\n-1.0e+0 1:1\n.5 1:1\n5. 1:1\n", [2, 1, -1, 0.5, 5], [{1: 1}] * 5),
        (b"1 1:1.5e3 2:-2E-2 3:+4 4:.5 5:5. 6:007\n", [1], [{1: 1500, 2: -0.02, 3: 4, 4: 0.5, 5: 5, 6: 7}]),
        (b"1 3:1 # 4:1 a comment\n-1 5:1#close\n#1 1:1\n  # more\n", [1, -1], [{3: 1}, {5: 1}]),
        (b"1 qid:3 1:2\n-1 qid:abc 5:6\n1 qid:\n", [1, -1, 1], [{1: 2}, {5: 6}, {}]),
        (b"1 1:2\r\n-1 3:4\r\n\r\n", [1, -1], [{1: 2}, {3: 4}]),
        (b"\n\n  \n\t\n1 1:2\n\n\n-1 3:4\n\n", [1, -1], [{1: 2}, {3: 4}]),
        (b"1\t1:2\t\t3:4\n\t-1 \t5:6 \t\n", [1, -1], [{1: 2, 3: 4}, {5: 6}]),
        (b"1 1:2 3:4   \n-1 5:6\t\n1  \n", [1, -1, 1], [{1: 2, 3: 4}, {5: 6}, {}]),
        (b"1 1:2\n-1 3:4", [1, -1], [{1: 2}, {3: 4}]),
        (b"1", [1], [{}]),
        (b"1 1:1", [1], [{1: 1}]),
        (b"1 9:1 2:2 5:3\n", [1], [{9: 1, 2: 2, 5: 3}]),
        (b"1 1:0 2:0.0 3:-0 4:0e5 5:1 6:1e-60 7:0.000\n-1 1:0\n", [1, -1], [{5: 1}, {}]),
        (f"1 {MAX_ID}:3 {MAX_ID - 1}:2\n".encode(), [1], [{MAX_ID: 3, MAX_ID - 1: 2}]),
        (b"1 0001:3 0000000000000000002:4\n", [1], [{1: 3, 2: 4}]),
        (b"", [], []),
        (b"\n", [], []),
        (b"# only a comment", [], []),
    ],
)
def test_text_is_read_as_people_write_it(text: bytes, labels: list[float], rows: list[dict[int, float]]) -> None:
    result = parsed(text)
    assert result.bad == []
    assert result.labels.tolist() == labels
    expected = [{k: float(np.float32(v)) for k, v in row.items()} for row in rows]
    assert rows_of(result) == expected
    assert np.isnan(result.weights).all()


def test_feature_0_is_a_feature_when_ids_count_from_0() -> None:
    result = parsed(b"1 0:5 1:6\n", zero_based=True)
    assert rows_of(result) == [{0: 5, 1: 6}]


@pytest.mark.parametrize(("text", "weight"), [("2", 2), ("0", 0), ("0.25", 0.25), ("+1e-3", 1e-3), ("1e-40", 1e-40)])
def test_label_colon_weight_is_an_example_weight(text: str, weight: float) -> None:
    result = parsed(f"-1:{text} 3:4\n+1:{text}\n".encode())
    assert result.labels.tolist() == [-1, 1]
    assert result.weights.tolist() == [float(np.float32(weight))] * 2
    assert rows_of(result) == [{3: 4}, {}]


def test_lines_are_counted_blank_ones_and_comments_too() -> None:
    assert parsed(b"1 1:1\n\n# x\n-1 1:1").lines == 4
    assert parsed(b"1 1:1\n\n# x\n-1 1:1\n").lines == 4


@pytest.mark.parametrize(
    ("text", "ones"),
    [
        (b"1 1:1 2:1\n-1 3:1\n", True),
        (b"1 1:1.0 2:1e0 3:+1 4:0 5:01\n", True),
        (b"1\n-1\n", True),
        (b"1 1:1 2:2\n", False),
        (b"1 1:-1\n", False),
    ],
)
def test_all_ones_are_noticed(text: bytes, ones: bool) -> None:
    assert parsed(text).all_ones is ones


@given(texts(), st.booleans())
@settings(max_examples=150)
def test_random_text_is_read_as_the_reference_reads_it(text: bytes, zero_based: bool) -> None:
    text = text.removeprefix(b"\xef\xbb\xbf")
    reference = read_text(text)
    result = parsed(text, zero_based=zero_based)
    assert result.bad == []
    assert result.labels.tolist() == reference.labels
    columns: dict[int, dict[int, float]] = {}
    for example_id, row in enumerate(rows_of(result)):
        for feature, value in row.items():
            columns.setdefault(feature, {})[example_id] = value
    assert columns == reference.columns


@given(texts(weighted=True))
@settings(max_examples=50)
def test_random_weights_are_read_as_the_reference_reads_them(text: bytes) -> None:
    text = text.removeprefix(b"\xef\xbb\xbf")
    assert parsed(text).weights.tolist() == read_text(text).weights


# --- values, bit for bit --------------------------------------------------------------------------------------------


def assert_exact(text: str) -> None:
    expected = np.float32(float(text))
    assert bits(value_of(text)) == bits(expected), f"{text}: {value_of(text)!r}, expected {expected!r}"


@given(spellings())
@settings(max_examples=600)
def test_a_value_is_float_rounded_to_float32(text: str) -> None:
    assert_exact(text)


@given(st.integers(0, 2**31 - 1), st.sampled_from([0, 1, -1]), st.integers(17, 60))
@settings(max_examples=400)
def test_values_beside_a_float32_midpoint_round_to_the_right_side(pattern: int, side: int, digits: int) -> None:
    """The midpoint of two neighbouring float32, exactly or ever so slightly off."""
    (low,) = struct.unpack("<f", struct.pack("<I", min(pattern, 0x7F7FFFFE)))
    (high,) = struct.unpack("<f", struct.pack("<I", min(pattern, 0x7F7FFFFE) + 1))
    with localcontext() as context:
        context.prec = 200
        middle = (Decimal(low) + Decimal(high)) / 2
        context.prec = digits
        text = str(middle * (1 + side * Decimal(10) ** (1 - digits)))
    assert_exact(text.replace("E", "e"))


@given(st.integers(0, 10**30), st.integers(-80, 10), st.booleans())
@settings(max_examples=300)
def test_long_mantissas_and_any_exponent(mantissa: int, exponent: int, point: bool) -> None:
    digits = str(mantissa)
    text = f"{digits[0]}.{digits[1:]}e{exponent + len(digits) - 1}" if point else f"{digits}e{exponent}"
    if abs(float(text)) < LARGEST:
        assert_exact(text)


@given(st.integers(1, 2**23), st.integers(1, 40))
@settings(max_examples=200)
def test_subnormals(steps: int, digits: int) -> None:
    assert_exact(f"{steps * 2.0**-149:.{digits}e}")


@pytest.mark.parametrize(
    "text",
    [
        "1e-45",
        "7e-46",
        "7.1e-46",
        "1.401298464324817e-45",
        "7.00649232162408535461864791644958065640130970938257885878534141944895541342930300743319094181060791015625e-46",
        "1.1754943508222875e-38",
        "1.1754942106924411e-38",
        "3.4028234663852886e38",
        "3.4028235e38",
        "3.40282346638528859811704183484516925440e38",
        "340282346638528859811704183484516925440",
        "340282356779733600000000000000000000000",
        "16777217",
        "16777217.0000000000000000000001",
        "16777216.9999999999999999999999",
        "0." + "0" * 30 + "123456789012345678901234567890",
        "0." + "0" * 400 + "1e401",
        "1" + "0" * 400 + "e-400",
        "123456789012345678901234567890e-25",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999",
        "0.1",
        "0.30000000000000004",
        "1e22",
        "1e23",
        "9.999999999999999e22",
        "1" * 1000 + "e-990",
    ],
)
def test_hard_values(text: str) -> None:
    assert_exact(text)
    assert_exact("-" + text)


@pytest.mark.parametrize("text", ["3.4028235677973362e+38", "3.402823567797336e38", "3.40282356779733638e38"])
def test_values_next_to_the_largest_float32_are_that(text: str) -> None:
    """Below the midpoint of the largest float32 and the next power of two: float32(float(text)) is finite."""
    assert np.isfinite(np.float32(float(text)))
    assert_exact(text)


@pytest.mark.parametrize("text", ["1e00000000001", "1e-0000000000", "5e+00000000000000000000002", "1E0000000000"])
def test_exponents_may_have_leading_zeros(text: str) -> None:
    assert_exact(text)


@pytest.mark.parametrize("text", ["1e-999999999", "1e-99999999999999999999999", "0e99999999999999999999", "0e999"])
def test_huge_exponents_that_mean_zero_are_zero(text: str) -> None:
    assert bits(value_of(text)) == 0


@given(spellings(st.floats(-1e30, 1e30)))
@settings(max_examples=200)
@example("0.3333333333333333333333")
@example("123456789012345678901234")
def test_a_label_is_float_of_its_text(text: str) -> None:
    """Two spellings of one label must not count as two labels."""
    result = parsed(f"{text} 1:1\n".encode())
    assert result.labels.tolist() == [float(text)]


# --- bad lines ------------------------------------------------------------------------------------------------------

LONG = "9" * 100
BAD = [
    # text, code, column, what is shown
    ("abc 1:1", parser.BAD_LABEL, 1, "abc"),
    ("1x 1:1", parser.BAD_LABEL, 1, "1x"),
    ("  x", parser.BAD_LABEL, 3, "x"),
    ("- 1:1", parser.BAD_LABEL, 1, "-"),
    ("1e 1:1", parser.BAD_LABEL, 1, "1e"),
    ("+abc 1:1", parser.BAD_LABEL, 1, "+abc"),
    ("1,2 1:1", parser.BAD_LABEL, 1, "1,2"),
    ("no 1:1", parser.BAD_LABEL, 1, "no"),
    ("nan 1:1", parser.NOT_FINITE, 1, "nan"),
    ("-inf 1:1", parser.NOT_FINITE, 1, "-inf"),
    ("1e39 1:1", parser.RANGE, 1, "1e39"),
    ("1:-1 1:1", parser.BAD_WEIGHT, 3, "-1"),
    ("1:nan 1:1", parser.BAD_WEIGHT, 3, "nan"),
    ("1:x 1:1", parser.BAD_WEIGHT, 3, "x"),
    ("1:1e39 1:1", parser.BAD_WEIGHT, 3, "1e39"),
    ("1:2:3 1:1", parser.BAD_WEIGHT, 3, "2:3"),
    ("1: 2:1", parser.BAD_WEIGHT, 3, ""),
    ("1 5 6:1", parser.NO_COLON, 3, "5"),
    ("1 5", parser.NO_COLON, 3, "5"),
    ("1 5#", parser.NO_COLON, 3, "5#"),
    ("1 2:3\t77\t", parser.NO_COLON, 7, "77"),
    ("1 a:1", parser.BAD_ID, 3, "a:1"),
    ("1 1.5:1", parser.BAD_ID, 3, "1.5:1"),
    ("1 -3:1", parser.BAD_ID, 3, "-3:1"),
    ("1 +3:1", parser.BAD_ID, 3, "+3:1"),
    ("1 :1", parser.BAD_ID, 3, ":1"),
    ("1 1:1 qix:1", parser.BAD_ID, 7, "qix:1"),
    (f"1 {MAX_ID + 1}:1", parser.ID_RANGE, 3, f"{MAX_ID + 1}:1"),
    ("1 18446744073709551617:1", parser.ID_RANGE, 3, "18446744073709551617:1"),
    (f"1 {LONG}:1", parser.ID_RANGE, 3, "9" * 40 + "…"),
    ("1 0:1", parser.ID_ZERO, 3, "0:1"),
    ("1 1:1 000:1", parser.ID_ZERO, 7, "000:1"),
    ("1 1:x", parser.BAD_VALUE, 5, "x"),
    ("1 1:", parser.BAD_VALUE, 5, ""),
    ("1 3: 4:1", parser.BAD_VALUE, 5, ""),
    ("1 1:1x", parser.BAD_VALUE, 5, "1x"),
    ("1 1:1:2", parser.BAD_VALUE, 5, "1:2"),
    ("1 1:1e", parser.BAD_VALUE, 5, "1e"),
    ("1 1:1e+", parser.BAD_VALUE, 5, "1e+"),
    ("1 1:.", parser.BAD_VALUE, 5, "."),
    ("1 1:--1", parser.BAD_VALUE, 5, "--1"),
    ("1 1:1.2.3", parser.BAD_VALUE, 5, "1.2.3"),
    ("1 1:0x10", parser.BAD_VALUE, 5, "0x10"),
    ("1 1:1_000", parser.BAD_VALUE, 5, "1_000"),
    ("1 1:1,5", parser.BAD_VALUE, 5, "1,5"),
    ("1 1:nan", parser.NOT_FINITE, 5, "nan"),
    ("1 1:NaN", parser.NOT_FINITE, 5, "NaN"),
    ("1 2:2 1:-inf", parser.NOT_FINITE, 9, "-inf"),
    ("1 1:Infinity", parser.NOT_FINITE, 5, "Infinity"),
    ("1 1:3.5e38", parser.RANGE, 5, "3.5e38"),
    ("1 1:1e400", parser.RANGE, 5, "1e400"),
    ("1 1:1e99999999999999999999", parser.RANGE, 5, "1e99999999999999999999"),
    ("1 1:-1" + "0" * 39, parser.RANGE, 5, "-1" + "0" * 38 + "…"),
    ("1 1:1 1:1", parser.DUPLICATE, 7, "1:1"),
    ("1 3:1 1:1 2:0 3:0", parser.DUPLICATE, 15, "3:0"),
    ("1 2:1 002:1", parser.DUPLICATE, 7, "002:1"),
    ("1:2 1:3 2:4 2:5", parser.DUPLICATE, 13, "2:5"),
    (" 1:2 1:3 2:4 2:5", parser.DUPLICATE, 14, "2:5"),
    ("1 7:1 qid:7 7:2#7:3", parser.DUPLICATE, 13, "7:2#7:3"),
    ("\0", parser.NUL, 1, "\\x00"),
    ("1\0 1:1", parser.NUL, 2, "\\x00"),
    ("1 1:1\0", parser.NUL, 6, "\\x00"),
    ("1 1:\0", parser.NUL, 5, "\\x00"),
    ("1 1\0:1", parser.NUL, 4, "\\x00:1"),
    ("1 1:1 \0", parser.NUL, 7, "\\x00"),
    ("1 1:1 # \0", parser.NUL, 9, "\\x00"),
    ("# \0", parser.NUL, 3, "\\x00"),
    ("1 qid:\0", parser.NUL, 7, "\\x00"),
]


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""], ids=["lf", "crlf", "end"])
@pytest.mark.parametrize(("line", "code", "column", "shown"), BAD, ids=[repr(line)[:40] for line, *_ in BAD])
def test_a_bad_line_is_named(line: str, code: int, column: int, shown: str, ending: str) -> None:
    result = parsed(b"1 1:1\n\n" + (line + ending).encode())
    (spot,) = result.bad
    assert (spot.line, spot.column, spot.expected, spot.text) == (3, column, EXPECTED[code], shown)
    assert result.bad_count == 1


def test_the_hint_for_id_0_names_the_option() -> None:
    assert "--zero-based" in parsed(b"1 0:1\n").bad[0].expected


def test_text_that_cannot_be_printed_is_escaped() -> None:
    (spot,) = parsed(b"1 1:\xff\x1b[31m\n").bad
    assert spot.text == "\\xff\\x1b[31m"


@pytest.mark.parametrize("line", [line for line, *_ in BAD], ids=lambda line: repr(line)[:40])
def test_a_skipped_line_leaves_no_trace_in_its_neighbours(line: str) -> None:
    good = b"1 1:2 5:1e-40\n"
    result = parsed(good + line.encode() + b"\n-1:1e-41\n" + line.encode() + b"\n" + good, bad_lines=10)
    assert result.labels.tolist() == [1, -1, 1]
    tiny = float(np.float32(1e-40))
    assert rows_of(result) == [{1: 2, 5: tiny}, {}, {1: 2, 5: tiny}]
    assert result.weights[1] == np.float32(1e-41)
    assert [spot.line for spot in result.bad] == [2, 4]
    assert (result.bad_count, result.lines) == (2, 5)


def test_all_bad_lines_are_counted_and_the_first_few_named() -> None:
    result = parsed(b"x\n1 1:1\n" * 25, bad_lines=10)
    assert result.bad_count == 25
    assert [spot.line for spot in result.bad] == list(range(1, 21, 2))
    assert result.labels.size == 25


def test_raising_stops_at_the_first_bad_line() -> None:
    result = parsed(b"1 1:1\nx\ny\n")
    assert (result.bad_count, result.bad[0].line) == (1, 2)


@given(st.binary(max_size=60))
@settings(max_examples=400)
def test_arbitrary_bytes_agree_with_the_reference_on_good_and_bad(text: bytes) -> None:
    _agree(text)


@given(st.lists(st.sampled_from([*"0123456789", *" \t\r\n\0:#+-.eE", "qid:", "nan", "1:1", " 2:3", "\n1 "])))
@settings(max_examples=800)
@example(["1", " ", "q", "qid:", "\0", "\n"])
@example([" ", "1", ":", "1", "\v"])
def test_bytes_that_look_like_libsvm_agree_with_the_reference(pieces: list[str]) -> None:
    _agree("".join(pieces).encode())


def _agree(text: bytes) -> None:
    text = text.removeprefix(b"\xef\xbb\xbf")  # not the parser's business
    reference = read_text(text)
    result = parsed(text, bad_lines=100)
    assert [spot.line for spot in result.bad] == reference.bad_lines
    assert result.labels.size == len(reference.labels)
    assert sum(map(len, reference.columns.values())) == result.ids.size
    for spot in result.bad:
        line = text.split(b"\n")[spot.line - 1]
        assert 1 <= spot.column <= len(line) + 1
        assert len(spot.text) <= 4 * 41


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=16))
@settings(max_examples=100)
def test_what_stands_behind_the_text_does_not_matter(text: bytes, behind: bytes) -> None:
    """The 64-bit loads look past the end; nothing they see there may count."""
    array = padded(text)
    array[len(text) : len(text) + len(behind)] = np.frombuffer(behind, np.uint8)
    dirty, clean = parse(array, len(text), bad_lines=50), parsed(text, bad_lines=50)
    assert rows_of(dirty) == rows_of(clean)
    assert dirty.bad == clean.bad


def test_a_line_of_a_million_features() -> None:
    text = b"1 " + b" ".join(b"%d:1" % k for k in range(1, 10**6 + 1))
    result = parsed(text)
    assert np.array_equal(result.ids, np.arange(1, 10**6 + 1))
    assert result.all_ones


def test_the_reference_itself_reads_a_plain_line() -> None:
    assert read_line(b"-1:2 3:4 5:0.5 # x") == (-1.0, 2.0, {3: 4.0, 5: 0.5})


def test_a_value_that_rounds_to_one_counts_as_one() -> None:
    """Next to a rounding boundary it is Python's float that decides."""
    text = b"1 2:1.0000000596046447\n"
    parsed = parse(padded(text), len(text))
    assert parsed.values.tolist() == [1.0]
    assert parsed.all_ones


def test_a_weight_is_negative_if_it_is_as_float32() -> None:
    for weight, fine in (("-0", True), ("-1e-310", True), ("-4e-65", True), ("-1e-46", True), ("-1e-45", False)):
        text = f"1:{weight} 1:1\n".encode()
        assert parse(padded(text), len(text)).bad_count == (not fine), weight
