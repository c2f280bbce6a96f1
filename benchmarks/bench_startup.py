"""How long commands take to begin: CPU seconds of --help, of refusals, of imports, and of each command beyond its work.

    python -m benchmarks.bench_startup [--data TRAIN --test TEST] [--repeats 3]

Each is a process of its own, kernels compiled before, the quickest of some repeats. Of a command that works, `work` is
the CPU time of the same work done a second time in one process, where all is loaded; `start` is the rest. Without
--data, text is generated.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from pipeline.demo import write_text

SUBMIT, CONVERT = "pipeline.commands.submit", "pipeline.commands.convert"
COMMANDS = (
    "pipeline",
    "fit",
    "evaluate",
    "predict",
    "show",
    "report",
    "attach",
    "status",
    "cancel",
    "doctor",
    "config",
)
RUN = "import sys; from {module} import main; sys.argv = ['command', *{words!r}]; main()"
AGAIN = """
import sys, time
from {module} import command
for _ in range(2):
    begun = time.process_time()
    command.main({words!r}, standalone_mode=False)
print(time.process_time() - begun, file=sys.stderr)
"""


def cpu(program: str, code: int = 0) -> float:
    """CPU seconds of a Python program, which must end with this code."""
    before = os.times()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode != code:
        raise RuntimeError(f"ended with {done.returncode}: {done.stderr}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def work_again(module: str, words: list[str]) -> float:
    """CPU seconds of a command the second time in a process."""
    program = AGAIN.format(module=module, words=words)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stderr.splitlines()[-1])


class Table:
    def __init__(self, repeats: int) -> None:
        self.repeats = repeats
        click.echo(f"{'':44}{'CPU s':>8}{'work':>8}{'start':>8}")

    def add(self, name: str, program: str, code: int = 0, work: float | None = None) -> None:
        took = min(cpu(program, code) for _ in range(self.repeats))
        more = "" if work is None else f"{work:8.2f}{took - work:8.2f}"
        click.echo(f"{name:44}{took:8.2f}{more}")

    def command(self, name: str, module: str, *words: str, code: int = 0, works: bool = False) -> None:
        work = work_again(module, list(words)) if works else None
        self.add(name, RUN.format(module=module, words=words), code, work)


@click.command()
@click.option("--data", type=click.Path(exists=True), help="LIBSVM text to train on.")
@click.option("--test", type=click.Path(exists=True), help="LIBSVM text to judge by.")
@click.option("--repeats", default=3, show_default=True)
def main(data: str | None, test: str | None, repeats: int) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        if data is None:
            data = f"{folder}/train.svm"
            write_text(Path(data), 5_000, 500, 7)
        test = test or data
        dataset, run, rows, missing = (f"{folder}/{name}" for name in ("data", "run", "p.csv", "missing"))
        table = Table(repeats)
        table.add("python -c pass", "pass")
        table.add("import dglmnet", "import dglmnet")
        table.command("convert-libsvm --help", CONVERT, "--help")
        for name in COMMANDS:
            table.command(f"{name} --help", SUBMIT, name, "--help")
        table.command("convert-libsvm", CONVERT, data, dataset, "--overwrite", "--quiet", works=True)
        table.command("fit", SUBMIT, "fit", dataset, "--output", run, "--overwrite", "--quiet", works=True)
        table.command("evaluate", SUBMIT, "evaluate", run, test, "--quiet", works=True)
        table.command("predict", SUBMIT, "predict", run, test, "--output", rows, "--overwrite", "--quiet", works=True)
        table.command("show", SUBMIT, "show", run, works=True)
        table.command("report", SUBMIT, "report", run, "--quiet", works=True)
        table.command("convert-libsvm: output is there", CONVERT, data, dataset, code=2)
        table.command("convert-libsvm: no such input", CONVERT, missing, f"{folder}/new", code=2)
        table.command("convert-libsvm: no such option", CONVERT, "--nonsense", code=2)
        table.command("fit: output is there", SUBMIT, "fit", dataset, "--output", run, code=2)
        table.command("fit: no such data set", SUBMIT, "fit", missing, "--output", f"{folder}/new", code=2)
        table.command("fit: no such option", SUBMIT, "fit", dataset, "--output", run, "--nonsense", code=2)
        table.command("pipeline: no such input", SUBMIT, "pipeline", "--train", missing, "--output", run, code=2)
        table.command("predict: output is there", SUBMIT, "predict", run, test, "--output", rows, code=2)
        table.command("evaluate: no such run", SUBMIT, "evaluate", missing, test, code=2)


if __name__ == "__main__":
    main()
