"""What the paper says of its data sets and of its fits on 16 servers (tables 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A row of the paper's tables."""

    rows: int
    features: int
    nonzeros: float
    text_gb: float
    iterations: int
    seconds: float
    search: float  # share of the line search
    vw_seconds: float  # Vowpal Wabbit's, a pass


PUBLISHED = {
    "epsilon": Published(400_000, 2_000, 8.0e8, 12, 182, 1_667, 0.05, 30),
    "webspam": Published(315_000, 16_600_000, 1.2e9, 21, 269, 6_318, 0.06, 50),
    "dna": Published(45_000_000, 800, 9.0e9, 71, 123, 17_626, 0.25, 59),
}
TEST_SHARE = 0.1  # rows of the test set for each of the training set
