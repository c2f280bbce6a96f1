"""Memory, threads and file descriptors of processes over time: do they grow?"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import psutil

# A process that was seen for less is not judged: caches, pools of threads and of connections fill for about 2 minutes.
LEAST_MINUTES = 10.0
WARM = 0.25  # of a process's samples, left out for the same reason
# What a process may gain from the first third of the other samples to the last: medians, which a peak does not move.
ALLOWED = {"rss": 60e6, "threads": 6.0, "files": 12.0}
UNITS = {"rss": (1e-6, "MB"), "threads": (1.0, "threads"), "files": (1.0, "files")}


Started = tuple[str, int, float]  # a process: its name, its id, and when it began, as ids are used again


@dataclass
class Growth:
    """Samples by process: (seconds, memory, threads, file descriptors)."""

    samples: dict[Started, list[tuple[float, float, float, float]]] = field(default_factory=dict)

    def sample(self, processes: dict[str, psutil.Process]) -> None:
        for name, process in processes.items():
            try:
                with process.oneshot():
                    started = (name, process.pid, process.create_time())
                    row = (time.monotonic(), process.memory_info().rss, process.num_threads(), process.num_fds())
            except psutil.NoSuchProcess:
                continue
            self.samples.setdefault(started, []).append(row)

    def report(self) -> tuple[list[str], bool]:
        """A line for each process that lived long enough, and whether all of these stayed flat."""
        judged = {one: rows for one, rows in self.samples.items() if rows[-1][0] - rows[0][0] >= 60 * LEAST_MINUTES}
        if not judged:
            return [f"no process was seen for {LEAST_MINUTES:.0f} minutes: growth is not judged"], True
        lines, flat = [], True
        for (name, pid, _), rows in judged.items():
            words, grows = _judge(np.array(rows)[int(WARM * len(rows)) :])
            lines.append(f"{name} ({pid}): {', '.join(words)}; {len(rows)} samples")
            flat = flat and not grows
        return lines, flat


def _judge(table: np.ndarray) -> tuple[list[str], bool]:
    """Words for each column of the samples of a process that has warmed up, and whether any grows."""
    words, grows = [], False
    for column, kind in enumerate(ALLOWED, start=1):
        slope = np.polyfit(table[:, 0] / 60, table[:, column], 1)[0]
        factor, unit = UNITS[kind]
        words.append(f"{table[-1, column] * factor:.0f} {unit} ({slope * factor:+.2f} a minute)")
        if _gain(table[:, column]) > ALLOWED[kind]:
            grows = True
            words[-1] += " GROWS"
    return words, grows


def _gain(values: np.ndarray) -> float:
    """From the first third to the last."""
    third = max(len(values) // 3, 1)
    return float(np.median(values[-third:]) - np.median(values[:third]))
