"""dask dglmnet: the commands of dask-submit, and convert-libsvm, as commands of Dask's own command line.

Dask finds the group by the entry-point group `dask_cli`, and loads it whenever `dask` is called: nothing slow may be
imported here. A command that dask-submit gets is here too.
"""

from __future__ import annotations

from typing import Any

import click

from pipeline.commands.group import CommandGroup
from pipeline.commands.shared import errors_as_exit_codes
from pipeline.commands.submit import command as dask_submit

CONVERT = ("pipeline.commands.convert:command", "Convert LIBSVM text into a data set split by features.")


class DaskGroup(CommandGroup):
    """Its commands end as they do under their own names: with one line for an error, and with the same exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *dask_submit.list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or dask_submit.get_command(ctx, cmd_name)

    def short_help_of(self, ctx: click.Context, name: str) -> str:
        return super().short_help_of(ctx, name) if name in self.lazy else dask_submit.short_help_of(ctx, name)

    def invoke(self, ctx: click.Context) -> Any:
        with errors_as_exit_codes(ctx.command_path):
            code = super().invoke(ctx)
        ctx.exit(code if isinstance(code, int) else 0)


@click.group("dglmnet", cls=DaskGroup, lazy={"convert-libsvm": CONVERT})
def command() -> None:
    """L1-regularised logistic regression on data that outgrows one machine: convert, train, judge, predict."""
