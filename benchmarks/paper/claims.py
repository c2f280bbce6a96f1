"""The paper's claims, as numbers: quality at each sparsity, shares of time, iterations, what the precautions do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.paper.cpu import PAPER_BLOCKS, SERVERS
from benchmarks.paper.results import Rows
from benchmarks.paper.settings import Steps
from benchmarks.paper_sizes.published import PUBLISHED, Published

LIKE = {"splice": "dna", "imdb": "webspam", "news20": "webspam"}  # which of the paper's sets a real one resembles


@dataclass
class Found:
    """All that was measured of a data set."""

    name: str
    about: dict[str, Any]  # examples, features, nonzeros, generated
    paths: dict[str, Rows]
    online: dict[Steps, Rows]
    vw: dict[Steps, Rows]
    cpu: Rows = field(default_factory=list)
    precautions: dict[str, Rows] = field(default_factory=dict)

    @property
    def published(self) -> Published | None:
        return PUBLISHED.get(LIKE.get(self.name, self.name))


def points(rows: Iterable[dict[str, Any]]) -> np.ndarray:
    """(nonzeros, AUPRC) of models that have nonzeros."""
    found = [(row["nonzeros"], row["auprc"]) for row in rows if row["nonzeros"]]
    return np.array(found, dtype=float).reshape(-1, 2)


def reached(path: Rows, nonzeros: np.ndarray) -> np.ndarray:
    """The AUPRC that a path reaches with so many nonzeros or fewer: between two models, on the line between them.

    Below its sparsest model a path reaches nothing that can be compared: NaN.
    """
    own = points(path)
    own = own[np.argsort(own[:, 0], kind="stable")]
    best = np.maximum.accumulate(own[:, 1])
    line = np.interp(np.log(nonzeros), np.log(own[:, 0]), best)
    return np.where(nonzeros < own[0, 0], np.nan, line)


@dataclass(frozen=True)
class Quality:
    """How a cloud of models compares with a path."""

    compared: int
    above: int  # better by more than a hair
    most: float  # by how much, at the most
    at: int  # nonzeros there
    best: float
    best_of_path: float


HAIR = 0.002


def compare(path: Rows, cloud: Iterable[dict[str, Any]]) -> Quality:
    found = points(cloud)
    excess = found[:, 1] - reached(path, found[:, 0])
    known = np.flatnonzero(~np.isnan(excess))
    if not known.size:
        return Quality(0, 0, np.nan, 0, np.nan, float(points(path)[:, 1].max()))
    worst = int(known[np.argmax(excess[known])])
    above = int((excess[known] > HAIR).sum())
    best = float(found[:, 1].max())
    return Quality(known.size, above, float(excess[worst]), int(found[worst, 0]), best, float(points(path)[:, 1].max()))


def cloud_of(grid: dict[Steps, Rows], reading: str | None = None) -> Rows:
    """All models, or those of one reading of the paper's "decay"."""
    return [row for steps, rows in grid.items() if reading in (None, steps.reading) for row in rows]


@dataclass(frozen=True)
class Times:
    """A row of Table 3, in CPU seconds."""

    iterations: int
    cpu: float
    search: float  # share of the line search
    search_beside: float  # in paper mode, if each of as many blocks as the paper had servers had one
    online: float  # of a pass
    convert: float  # of the transposition

    @property
    def each(self) -> float:
        return self.cpu / self.iterations


def times(found: Found, mode: str) -> Times:
    rows = {row["what"]: row for row in found.cpu}
    mine, servers = rows[mode], rows[SERVERS]
    beside = servers["search"] / servers["side_by_side"]
    share = mine["search"] / mine["cpu"]
    return Times(mine["rounds"], mine["cpu"], share, beside, rows["pass"]["cpu"], rows["convert"]["cpu"])


def published_ns(published: Published) -> float:
    """What an iteration of the paper took, in nanoseconds of a server for each nonzero."""
    return 1e9 * PAPER_BLOCKS * published.seconds / published.iterations / published.nonzeros
