"""What is done over and over: each step runs a command as users do, disturbs it, and compares what it leaves."""

from __future__ import annotations

import contextlib
import io
import math
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.soak.cluster import Disturbance, SoakCluster
from benchmarks.soak.results import dataset_parts, flip_bit, metrics, models, predictions, write_examples
from pipeline.commands.convert import command as convert
from pipeline.commands.shared import errors_as_exit_codes
from pipeline.commands.submit import command as dask_submit

Rows = Sequence[tuple[Any, ...]]
ALGORITHMS = {"default": ("--gap", "1e-4"), "paper": ("--tol", "1e-7", "--max-rounds", "500")}
LOST = ("was lost", "does not answer", "cut off", "no worker is left", "has no workers")
INTERRUPTED = 130
LIMIT_SECONDS = 120.0  # a command takes a second or two; one that waits for a lost worker, up to 60
TRIES = 8  # of a command whose workers go away again and again
DISTURBED = 0.7  # of the steps
STOP_SECONDS = 4.0
TOLERANCE = 1e-9  # relative, of objectives and metrics: vectors may be added in another order


class Mismatch(Exception):
    """A result that is not the undisturbed one, or an end that is not the right one."""


class _Hangs(BaseException):
    """A command is not done in time. No Exception: the program takes a TimeoutError for a lost scheduler."""


def _too_long(*_: object) -> None:
    raise _Hangs


class Steps:
    """The commands on one cluster, their undisturbed results, and counts of what was done."""

    def __init__(self, folder: Path, cluster: SoakCluster, chance: random.Random, endpoint: dict[str, Any] | None):
        self._folder, self._cluster, self._chance, self._endpoint = folder, cluster, chance, endpoint
        self.counts: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}  # that each command took when it was last left in peace
        self._text = folder / "train.svm"
        write_examples(self._text, n=12_000, p=1_500, per_row=25)
        self._references = {name: self._undisturbed(name) for name in ALGORITHMS}
        self._parts = dataset_parts(str(folder / "data"))

    def _undisturbed(self, algorithm: str) -> dict[str, Any]:
        """Convert once, fit, evaluate, predict, and keep all of it."""
        data, run, scores = self._folder / "data", self._run_of(algorithm), self._folder / f"{algorithm}.parquet"
        if not data.exists():
            self._must(0, convert, str(self._text), str(data), "--partitions", "4")
        self._must(0, dask_submit, "fit", str(data), "--output", str(run), *self._fit_words(algorithm))
        self._must(0, dask_submit, "evaluate", str(run), str(self._text))
        self._must(0, dask_submit, "predict", str(run), str(self._text), "--output", str(scores))
        return {"models": models(run), "metrics": metrics(run), "predictions": predictions(scores)}

    def _run_of(self, algorithm: str) -> Path:
        return self._folder / f"run-{algorithm}"

    def _fit_words(self, algorithm: str) -> tuple[str, ...]:
        driver = () if self._chance.random() < 0.5 else ("--driver", "local")
        return ("--algorithm", algorithm, *ALGORITHMS[algorithm], "--path-length", "6", "--blocks", "2", *driver)

    def all(self) -> list[Callable[[], None]]:
        """One turn, in order."""
        damage = [self.flip_a_part, self.flip_a_model, self.mix_in_a_bad_line]
        damage += [self.convert_to_a_failing_store] if self._endpoint else []
        fits = [lambda name=name: self.fit(name) for name in ALGORITHMS]
        return [self.convert, *fits, self.evaluate, self.predict, self._chance.choice(damage)]

    # What must come out as it did undisturbed

    def convert(self) -> None:
        output = self._fresh("converted")
        self._disturbed("convert", convert, (str(self._text), str(output), "--partitions", "4"), again=("--resume",))
        self._same("data set", dataset_parts(str(output)), self._parts)

    def fit(self, algorithm: str) -> None:
        output = self._fresh("fitted")
        words = ("fit", str(self._folder / "data"), "--output", str(output), *self._fit_words(algorithm))
        self._disturbed(f"fit {algorithm}", dask_submit, words, again=("--resume",))
        tolerance = TOLERANCE if algorithm == "paper" else 1e-4
        self._all_near(f"{algorithm}: models", models(output), self._references[algorithm]["models"], tolerance)

    def evaluate(self) -> None:
        algorithm = self._chance.choice(list(ALGORITHMS))
        run = self._fresh("judged")
        shutil.copytree(self._run_of(algorithm), run)
        self._disturbed("evaluate", dask_submit, ("evaluate", str(run), str(self._text)), again=())
        self._all_near("metrics", metrics(run), self._references[algorithm]["metrics"], TOLERANCE)

    def predict(self) -> None:
        algorithm = self._chance.choice(list(ALGORITHMS))
        output = self._fresh("predicted")
        words = ("predict", str(self._run_of(algorithm)), str(self._text), "--output", str(output))
        self._disturbed("predict", dask_submit, words, again=())
        self._same("predictions", predictions(output), self._references[algorithm]["predictions"])

    def convert_to_a_failing_store(self) -> None:
        """A quarter of the requests fail."""
        assert self._endpoint is not None
        url, options = f"{self._endpoint['url']}/{self._chance.randrange(10**9)}", self._endpoint["options"]
        self._must(0, convert, str(self._text), url, "--partitions", "4", "--storage-options", self._endpoint["file"])
        self._same("data set in a failing store", dataset_parts(url, options), self._parts)
        self.counts["convert to a failing store"] += 1

    # What must be refused

    def flip_a_part(self) -> None:
        data, output = self._fresh("damaged"), self._fresh("fitted")
        shutil.copytree(self._folder / "data", data)
        file = self._chance.choice(sorted(data.glob("part-*.parquet")))
        flip_bit(file, self._chance)
        told = self._must(2, dask_submit, "fit", str(data), "--output", str(output), *self._fit_words("default"))
        if file.name not in told:
            raise Mismatch(f"{file.name} is damaged, and the line does not name it: {told}")
        self.counts["flipped part refused"] += 1

    def flip_a_model(self) -> None:
        """Where the bit means nothing to the model, the predictions must be right."""
        run, output = self._fresh("damaged"), self._fresh("predicted")
        shutil.copytree(self._run_of("paper"), run)
        flip_bit(run / self._chance.choice(["coefficients.parquet", "path.parquet"]), self._chance)
        code, told = self._call(dask_submit, "predict", str(run), str(self._text), "--output", str(output))
        if code == 0:
            self._same("predictions", predictions(output), self._references["paper"]["predictions"])
        elif code != 2:
            raise Mismatch(f"a flipped bit in a run ends with exit code {code}: {told}")
        self.counts["flipped model refused" if code else "flipped model without effect"] += 1

    def mix_in_a_bad_line(self) -> None:
        """Refused with the line's number, or left out, and then the rest is what it was."""
        lines = self._text.read_text().splitlines(keepends=True)
        number = self._chance.randrange(len(lines))
        bad = self._fresh("bad.svm")
        bad.write_text("".join([*lines[:number], "+1 3:0.5 2:x\n", *lines[number:]]))
        output = self._fresh("converted")
        told = self._must(2, convert, str(bad), str(output), "--partitions", "4")
        if f"line {number + 1}," not in told:
            raise Mismatch(f"line {number + 1} is bad, and is not named: {told}")
        self._must(0, convert, str(bad), str(output), "--partitions", "4", "--on-bad-line", "skip", "--overwrite")
        self._same("data set without the bad line", dataset_parts(str(output)), self._parts)
        self.counts["bad line named, then left out"] += 1

    # How they are run and compared

    def _disturbed(self, name: str, command: click.Command, words: tuple[str, ...], again: tuple[str, ...]) -> None:
        """Run a command while a worker is killed or stopped; what was lost with it is continued."""
        for attempt in range(TRIES):
            began = time.monotonic()
            with self._disturbance(name) as disturbance:
                code, told = self._call(command, *words, *(again if attempt else ()))
                took = time.monotonic() - began
            self._cluster.wait()
            if disturbance is not None and disturbance.struck:
                self.counts[f"{name}: while a worker was {disturbance.kind}"] += 1
            elif code == 0:
                self._seconds[name] = took
            if code == 0:
                self.counts[name] += 1
                return
            if code != 1 or not any(one in told for one in LOST):
                raise Mismatch(f"{name} ends with exit code {code}: {told}")
            self.counts[f"{name}: continued after a loss"] += 1
        raise Mismatch(f"{name} was not done after {TRIES} tries")

    def _disturbance(self, name: str) -> contextlib.AbstractContextManager[Disturbance | None]:
        """Some time within the seconds that the command took when it was last left in peace."""
        if name not in self._seconds or self._chance.random() > DISTURBED:
            return contextlib.nullcontext()
        _, victim = self._chance.choice(sorted(self._cluster.workers().items(), key=lambda item: item[0])[1:])
        stop = STOP_SECONDS if self._chance.random() < 0.4 else None
        return Disturbance(victim, self._chance.uniform(0.0, self._seconds[name]), stop)

    def _must(self, code: int, command: click.Command, *words: str) -> str:
        found, told = self._call(command, *words)
        if found != code:
            raise Mismatch(f"{' '.join(words)} ends with exit code {found}, not {code}: {told}")
        return told

    def _call(self, command: click.Command, *words: str) -> tuple[int, str]:
        """A command in this process, as its entry point runs it: exit code, and what it printed."""
        printed = io.StringIO()
        signal.signal(signal.SIGALRM, _too_long)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS, LIMIT_SECONDS)  # again, if its cleaning up hangs
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                with errors_as_exit_codes(command.name or ""):
                    code = command.main([*words, "--scheduler", self._cluster.address], standalone_mode=False)
            except SystemExit as ended:
                code = ended.code
            except _Hangs:
                told = printed.getvalue().strip()[-2000:]
                raise Mismatch(f"{' '.join(words)} hangs: not done after {LIMIT_SECONDS:.0f} s: {told}") from None
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        return int(code or 0), printed.getvalue().strip()[-2000:]

    def _fresh(self, name: str) -> Path:
        path = self._folder / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        return path

    def _same(self, what: str, mine: Any, reference: Any) -> None:
        if mine != reference:
            raise Mismatch(f"{what}: not what it was undisturbed")

    def _all_near(self, what: str, mine: Rows, reference: Rows, tolerance: float) -> None:
        if len(mine) != len(reference):
            raise Mismatch(f"{what}: {len(mine)} where there were {len(reference)} undisturbed")
        for one, other in zip(mine, reference, strict=True):
            self._near(what, one, other, tolerance)

    def _near(self, what: str, mine: tuple[Any, ...], reference: tuple[Any, ...], tolerance: float) -> None:
        """Numbers are near; below 1e-4, lists (features, weights) are the same and near, too."""
        for one, other in zip(mine, reference, strict=True):
            if isinstance(one, list):
                near = tolerance > 1e-5 or (len(one) == len(other) and all(map(self._close, one, other)))
            else:
                near = math.isclose(one, other, rel_tol=tolerance)
            if not near:
                raise Mismatch(f"{what}: {one!r:.200} where it was {other!r:.200} undisturbed")

    @staticmethod
    def _close(one: float, other: float) -> bool:
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
