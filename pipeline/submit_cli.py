"""dask-submit: the group of commands. Each lives in a file of its own, NAME_cli.py."""

from __future__ import annotations

import click

from pipeline.cli import run_command
from pipeline.fit_cli import fit_command
from pipeline.score_cli import evaluate_command, predict_command


@click.group("dask-submit", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Train L1-regularised logistic regression on a data set made by convert-libsvm, judge it, and predict by it."""


command.add_command(fit_command)
command.add_command(evaluate_command)
command.add_command(predict_command)


def main() -> None:
    """The entry point."""
    run_command(command)
