"""dask-submit config: print a file for --config with every option that there is, or check one."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import click

from pipeline.commands.shared import Location
from pipeline.config.schema import Schema, schema, settings
from pipeline.config.source import canonical, entries_of_file

CONFIG_EXAMPLES = """
\b
Examples:
  dask-submit config > options.yaml
  dask-submit config --check options.yaml
  dask-submit fit data/train --config options.yaml
"""
HEADER = """\
# Options for --config FILE, each with its default or with what it takes: remove the # of those that you set.
# The command line wins over this file; this file wins over Dask's configuration (dglmnet.*, DASK_DGLMNET__*).

# For every command that has the option; a command's own section wins.
"""


@click.command("config", epilog=CONFIG_EXAMPLES)
@click.option("--check", type=Location(), metavar="FILE", help="Check a file instead, whole, and run nothing.")
def config_command(check: str | None) -> int:
    """Print a YAML file with all options of all commands, for --config, or check one."""
    if check is None:
        click.echo("".join(template(schema())), nl=False)
        return 0
    found = settings(entries_of_file(check), schema())
    click.echo(f"{check} is fine. It sets{'' if any(found.values()) else ' nothing.'}")
    for command, values in found.items():
        if values:
            click.echo(f"  for {command}: {', '.join(map(canonical, values))}")
    return 0


def template(known: Schema) -> Iterator[str]:
    """The file: what most commands share on top, then a section for each command."""
    shared = _shared(known)
    yield HEADER
    yield from _block(shared, "")
    for command, keys in known.items():
        own = {key: parameter for key, parameter in keys.items() if _same(shared.get(key)) != _same(parameter)}
        yield f"\n{command}:\n"
        yield from _block(own, "  ")


def _same(parameter: click.Parameter | None) -> Any:
    """What makes options of two commands one and the same."""
    return None if parameter is None else parameter.to_info_dict()


def _shared(known: Schema) -> dict[str, click.Parameter]:
    """Options that more than half of the commands have, all the same."""
    first: dict[str, click.Parameter] = {}
    for keys in known.values():
        first = keys | first
    counts = {key: sum(_same(keys.get(key)) == _same(one) for keys in known.values()) for key, one in first.items()}
    return {key: one for key, one in first.items() if 2 * counts[key] > len(known)}


def _block(keys: dict[str, click.Parameter], indent: str) -> Iterator[str]:
    for key, parameter in keys.items():
        for line in textwrap.wrap(_words(parameter), 110 - len(indent)):
            yield f"{indent}# {line}\n"
        yield f"{indent}#{key}: {_example(parameter)}\n"


def _words(parameter: click.Parameter) -> str:
    """An option's help, if it has one, its choices, and whether it must be given."""
    choices = getattr(parameter.type, "choices", None)
    words = [
        getattr(parameter, "help", None) or "",
        f"One of {', '.join(choices)}." if choices else "",
        "Required." if parameter.required else "",
    ]
    return " ".join(filter(None, words))


def _example(parameter: click.Parameter) -> str:
    """The default, or a word for what is expected."""
    default = parameter.to_info_dict()["default"]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return "false" if default is False else "true"  # where there is no default, it may be switched off
    if default is not None:
        return str(default)
    metavar = parameter.human_readable_name if isinstance(parameter, click.Argument) else parameter.metavar
    first, *rest = re.split(r"[^\w/@]+", metavar or parameter.type.name.upper().split()[0])
    several = parameter.nargs != 1 or parameter.multiple or parameter.type.name == "numbers"
    return f"[{', '.join([first, '...', *rest[:1]])}]".replace(", ]", "]") if several else first
