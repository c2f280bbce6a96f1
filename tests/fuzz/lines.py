"""Texts for the parser's fuzzer: lines of LIBSVM that are right, nearly right, or right at a limit, then damaged."""

from __future__ import annotations

import random
import struct
from decimal import Decimal

IDS = [0, 1, 2, 9, 10, 2**31 - 1, 2**31, 2**32, 10**8 - 1, 10**8, 10**16, 2**53, 2**62 - 1, 2**62, 2**62 + 1]
IDS += [2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, 10**18, 10**19 - 1, 10**19]
HARD = """
0 -0 +0 1 -1 +1 1. .5 -.5 00001 1.0 0.1 1e0 1E5 1e+5 1e-5 1e00005 0e9 0e999999999 0e-99999999999 1e22 1e23 1e-22
9007199254740992 9007199254740993 9007199254740991e22 123456789012345678 1234567890123456789 12345678901234567890
18446744073709551615 18446744073709551616 99999999999999999999 3.4028234663852886e38 3.4028235e38 3.4028235677e38
3.4028235677973366e38 340282356779733661637539395458142568447 340282356779733661637539395458142568448 3.5e38 1e39
1e300 1e301 1e308 1e309 1e99999999999999999999 1e-37 1.17549435e-38 1e-38 1.4e-45 7.1e-46 7e-46 1e-46 1e-300
1e-301 1e-324 1e-400 1e-99999999999999999999 0.00000000000000000000000000000000000001 -1e-310 -1e-46 -1e-45
100000000000000000000000000000000000000 16777217 16777216.5 0.1000000014901161193847656250 1.00000005960464477539
nan NaN inf -inf +Infinity 0x10 1_000 1e 1e+ 1e- e5 . - + -. +. -- +-1 1.2.3 1,5 1e5.5 1e5e5 ١ 1d5 1f 1L
"""
NUMBERS = HARD.split()
BYTES = [0, 9, 10, 11, 12, 13, 32, 35, 43, 45, 46, 48, 49, 57, 58, 69, 101, 127, 128, 160, 194, 239, 255]
PIECES = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\n\n",
    b" ",
    b"\t",
    b"#",
    b":",
    b"::",
    b"qid:7",
    b" qid:7 ",
    b"qid:",
    b"\xef\xbb\xbf",
]
PIECES += [b"\xff\xfe", b"\xc3\xa9", b"1:1", b" 1:1 1:1", b"0" * 30, b"9" * 40, b"e", b"-", b".", b" " * 17]


def make_text(rng: random.Random) -> bytes:
    """One case."""
    newline = b"\r\n" if rng.random() < 0.15 else b"\n"
    text = newline.join(_line(rng) for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 5, 9])))
    text += newline if rng.random() < 0.7 else b""
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 4])):
        text = _damaged(rng, text)
    return text


def _line(rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        return rng.choice([b"", b" ", b"\t#", b"# a comment 1:2", b"\r", b"#" * 20, b" " * rng.randrange(40)])
    gap = b" " if rng.random() < 0.8 else rng.choice([b"\t", b"  ", b" \v", b"\f", b"\r ", b" " * 9])
    label = rng.choice([b"1", b"-1", b"+1", b"0"]) if rng.random() < 0.7 else _number(rng)
    if rng.random() < 0.2:
        label += b":" + _number(rng)
    pairs = [_id(rng) + b":" + (b"1" if rng.random() < 0.4 else _number(rng)) for _ in range(_count(rng))]
    if pairs and rng.random() < 0.1:
        pairs.append(rng.choice(pairs))
    if rng.random() < 0.1:
        pairs.insert(rng.randrange(len(pairs) + 1), b"qid:%d" % rng.randrange(100))
    if rng.random() < 0.5:
        pairs.sort(key=lambda pair: (len(pair.split(b":")[0]), pair))
    end = b"" if rng.random() < 0.8 else rng.choice([b" ", b"\t", b" # note", b"#", b" #\xff", b"\r", b" " * 20])
    return gap.join([label, *pairs]) + end


def _count(rng: random.Random) -> int:
    return rng.choice([0, 1, 2, 3, 5, 8]) if rng.random() < 0.98 else rng.randrange(200)


def _id(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.7:
        return b"%d" % rng.randrange(1, 10 ** rng.randrange(1, 10))
    if kind < 0.8:
        return b"%d" % rng.choice(IDS)
    if kind < 0.9:
        return b"0" * rng.randrange(1, 20) + b"%d" % rng.randrange(10**6)
    return b"%d" % rng.randrange(10 ** rng.randrange(1, 22))


def _number(rng: random.Random) -> bytes:
    """A number as text: of some digits, known to be hard, next to a rounding boundary, or any float there is."""
    kind = rng.randrange(7)
    if kind == 0:
        return rng.choice(NUMBERS).encode()
    if kind == 1:
        return f"{rng.choice(['', '-', '+'])}{rng.randrange(10 ** rng.randrange(1, 6))}".encode()
    if kind == 2:
        return repr(_float32(rng)).encode()
    if kind == 3:
        return repr(struct.unpack("<d", rng.randbytes(8))[0]).encode()
    if kind == 4:
        return _near_boundary(rng)
    if kind == 5:
        return f"{rng.gauss(0, 1):.{rng.randrange(20)}{rng.choice('feg')}}".encode()
    return _digits(rng)


def _float32(rng: random.Random) -> float:
    value: float = struct.unpack("<f", rng.randbytes(4))[0]
    return value


def _near_boundary(rng: random.Random) -> bytes:
    """Half-way between two neighbouring float32 values, exactly or a digit off it."""
    bits = rng.randrange(0x7F7FFFFF) if rng.random() < 0.7 else rng.randrange(0x00800000)
    low, high = (struct.unpack("<f", struct.pack("<I", bits + k))[0] for k in (0, 1))
    middle = (Decimal(low) + Decimal(high)) / 2
    text = f"{middle:.{rng.choice([8, 16, 18, 19, 20, 30, 120])}e}"
    if rng.random() < 0.3:
        text = f"{middle:f}"[: rng.randrange(1, 200)]
    return text.encode()


def _digits(rng: random.Random) -> bytes:
    """Digits in all lengths that matter to loads of eight, with a point and an exponent here and there."""
    digits = "".join(rng.choice("0123456789") for _ in range(rng.choice([1, 7, 8, 9, 15, 16, 17, 18, 19, 20, 21, 40])))
    if rng.random() < 0.3:
        digits = rng.choice("09") * len(digits)
    if rng.random() < 0.6:
        at = rng.randrange(len(digits) + 1)
        digits = f"{digits[:at]}.{digits[at:]}"
    if rng.random() < 0.4:
        digits += f"{rng.choice('eE')}{rng.choice(['', '-', '+'])}{rng.randrange(10 ** rng.randrange(1, 4))}"
    return (rng.choice(["", "-", "+"]) + digits).encode()


def _damaged(rng: random.Random, text: bytes) -> bytes:
    at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    kind = rng.randrange(6)
    if kind == 0:
        return text[:at] + bytes([rng.choice(BYTES)]) + text[at + 1 :]
    if kind == 1:
        return text[:at] + rng.choice(PIECES) + text[at:]
    if kind == 2:
        return text[:at] + text[min(end, at + 5) :]
    if kind == 3:
        return text[:end] + text[at : min(end, at + 60)] + text[end:]
    if kind == 4:
        return text[:at]
    return text[:at] + rng.randbytes(rng.randrange(1, 4)) + text[at:]
