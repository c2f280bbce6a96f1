"""dask-submit: the group of commands. Each lives in a file of its own in this folder."""

from __future__ import annotations

import click

from pipeline.commands.group import CommandGroup
from pipeline.commands.shared import run_command, version_option

# A new command is one line here: its name, where it is, and its line in --help. It is loaded when it is called, so that
# --help and the tab key are quick. It appears under `dask dglmnet` by itself, and with --config takes its own section.
COMMANDS = {
    "pipeline": (
        "pipeline.commands.pipeline:pipeline_command",
        "Convert text, fit the whole path, judge its models and write the report, all in RUN.",
    ),
    "fit": ("pipeline.commands.fit:fit_command", "Compute the regularisation path of a data set."),
    "evaluate": ("pipeline.commands.score:evaluate_command", "Judge every model of a run by test data."),
    "predict": ("pipeline.commands.score:predict_command", "Predict probabilities by a model of a run."),
    "show": ("pipeline.commands.show:show_command", "Print a run: its models, the best, and its strongest features."),
    "report": ("pipeline.commands.report:report_command", "Write a run as a page with plots and tables: report.html."),
    "attach": ("pipeline.commands.driver:attach_command", "Follow a run on the cluster to its end."),
    "status": ("pipeline.commands.driver:status_command", "Say how a run stands."),
    "cancel": ("pipeline.commands.driver:cancel_command", "End a run on the cluster."),
    "doctor": ("pipeline.commands.doctor:doctor_command", "Find out what is wrong with a cluster, or this machine."),
    "config": ("pipeline.commands.config:config_command", "Print a file of options for --config, or check one."),
}


@click.group("dask-submit", cls=CommandGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@version_option
def command() -> None:
    """Train L1-regularised logistic regression on a data set made by convert-libsvm, judge it, and predict by it."""


def main() -> None:
    """The entry point."""
    run_command(command)
