"""The stages of an experiment: make text, convert, fit, evaluate. All but the first are the commands of a user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.paper_sizes.pieces import LOOKALIKES, PARTS, Amount, write_part
from benchmarks.paper_sizes.published import PUBLISHED, TEST_SHARE
from benchmarks.paper_sizes.record import Record
from benchmarks.paper_sizes.usage import Watch
from transforms import open_dataset

STAGES = ("text", "convert", "fit", "evaluate")
LAMBDAS = 20


class CommandFailed(Exception):
    """A command ended with an error, which it has told itself."""


class Experiment:
    """One data set at one scale, in a folder of its own: train/, test/, data/, run/, record.json."""

    def __init__(self, name: str, scale: float, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name, self.scale, self.folder = name, scale, folder
        self.record = Record(folder, name, scale)
        train = max(1, round(PUBLISHED[name].rows * scale))
        self.rows = {"train": train, "test": max(1, round(TEST_SHARE * train))}

    def run(self, stages: Sequence[str] = STAGES) -> None:
        """Do these stages, as far as they are not finished. One that is done anew makes later ones unfinished."""
        for stage in STAGES:
            if stage not in stages or self._is_finished(stage):
                continue
            if self.record.is_finished(stage):
                self.record.forget([*STAGES[STAGES.index(stage) :]])
            work: Callable[[], dict[str, Any]] = getattr(self, f"_{stage}")
            watch = Watch(self.folder)
            try:
                with watch:
                    facts = work()
            finally:
                self.record.add_usage(stage, watch.usage)
            self.record.note(stage, finished=True, **facts)

    def _is_finished(self, stage: str) -> bool:
        """By the record, and what it left is still there. Text is needed for a conversion only."""
        left = {
            "text": ("train", "data/dataset.json"),
            "convert": ("data/dataset.json",),
            "fit": ("run/path.parquet",),
            "evaluate": ("run/path.parquet",),
        }
        return self.record.is_finished(stage) and any((self.folder / name).exists() for name in left[stage])

    def _text(self) -> dict[str, Any]:
        made = LOOKALIKES[self.name](self.scale)
        for part in PARTS:
            done = Amount(**self.record.of("text").get(part, {}))
            for amount in write_part(made, part, self.rows[part], self.folder / part, os.cpu_count() or 1, done):
                self.record.note("text", **{part: asdict(amount)})
        return {}

    def _convert(self) -> dict[str, Any]:
        self._command("convert-libsvm", str(self.folder / "train"), str(self.folder / "data"), "--resume")
        data = open_dataset(str(self.folder / "data"))
        size = sum(file.stat().st_size for file in (self.folder / "data").iterdir())
        return {"rows": data.n, "features": data.p, "nonzeros": data.nnz, "bytes": size}

    def _fit(self) -> dict[str, Any]:
        words = ("--tol", "1e-4", "--path-length", str(LAMBDAS), "--path-ratio", "0.5", "--resume")
        self._command("dask-submit", "fit", str(self.folder / "data"), "--output", str(self.folder / "run"), *words)
        path = self.path()
        return {
            "path_seconds": round(sum(row["seconds"] for row in path), 2),
            "passes": sum(row["rounds"] for row in path),
            "largest_gap": max(row["gap"] / row["objective"] for row in path),
            "met": sum(row["converged"] for row in path),
            "nonzeros": path[-1]["nonzeros"],
        }

    def _evaluate(self) -> dict[str, Any]:
        self._command("dask-submit", "evaluate", str(self.folder / "run"), str(self.folder / "test"))
        best = max(self.path(), key=lambda row: row["auprc"])
        return {"auprc": best["auprc"], "auc": best["auc"], "best_index": best["index"]}

    def path(self) -> list[dict[str, Any]]:
        """path.parquet, a row per λ."""
        rows: list[dict[str, Any]] = pq.read_table(self.folder / "run" / "path.parquet").to_pylist()
        return rows

    def delete_text(self) -> None:
        """The training text, which nothing needs once it is converted."""
        if self.record.is_finished("convert") and (self.folder / "train").exists():
            shutil.rmtree(self.folder / "train")
            self.record.note("text", deleted=True)

    def _command(self, name: str, *words: str) -> None:
        """Run one of the program's commands, in the environment of this interpreter."""
        command = [str(Path(sys.executable).with_name(name)), *words, "--log-level", "warning"]
        if subprocess.run(command, check=False).returncode != 0:
            raise CommandFailed(" ".join(command))
