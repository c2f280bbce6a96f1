"""Memory, threads and file descriptors of processes over time: do they grow?"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import psutil

WARM = 0.25  # of the samples: caches fill, kernels are loaded
FEWEST = 12  # samples of a process that say something
# What a process may gain from the second quarter of its samples to the last: medians, which a peak does not move.
ALLOWED = {"rss": 60e6, "threads": 6.0, "files": 12.0}
UNITS = {"rss": (1e-6, "MB"), "threads": (1.0, "threads"), "files": (1.0, "files")}


@dataclass
class Growth:
    """Samples by process: (seconds, memory, threads, file descriptors)."""

    samples: dict[str, list[tuple[float, float, float, float]]] = field(default_factory=dict)

    def sample(self, processes: dict[str, psutil.Process]) -> None:
        for name, process in processes.items():
            try:
                with process.oneshot():
                    row = (time.monotonic(), process.memory_info().rss, process.num_threads(), process.num_fds())
            except psutil.NoSuchProcess:
                continue
            self.samples.setdefault(f"{name} ({process.pid})", []).append(row)

    def report(self) -> tuple[list[str], bool]:
        """A line for each process that lived long enough, and whether all stayed flat."""
        lines, flat = [], True
        for name, rows in self.samples.items():
            if len(rows) < FEWEST:
                continue
            table = np.array(rows)[int(WARM * len(rows)) :]
            words = []
            for column, kind in enumerate(ALLOWED, start=1):
                gained, slope = _gain(table[:, column]), np.polyfit(table[:, 0] / 60, table[:, column], 1)[0]
                factor, unit = UNITS[kind]
                words.append(f"{table[-1, column] * factor:.0f} {unit} ({slope * factor:+.2f} a minute)")
                if gained > ALLOWED[kind]:
                    flat = False
                    words[-1] += " GROWS"
            lines.append(f"{name}: {', '.join(words)}; {len(rows)} samples")
        return lines, flat


def _gain(values: np.ndarray) -> float:
    """From the first third of what is left after warming up to the last."""
    third = max(len(values) // 3, 1)
    return float(np.median(values[-third:]) - np.median(values[:third]))
