"""What the commands share: options about cluster and storage, logging, errors as one line, exit codes.

Exit codes: 0 done, 2 bad usage or bad input, 1 anything else, 130 interrupted.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from transforms.errors import ClusterLost, UserError
from transforms.secrets import hide_in_urls, holds_secret, make_scrubber
from transforms.version import __version__

if TYPE_CHECKING:
    from pipeline.tls import TlsFiles

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
logger = logging.getLogger("dglmnet")
CLUSTER_LOGGERS = ("distributed", "asyncio", "tornado")
# A group of commands that is called without one shows its help; before 8.2 click did so without an error.
NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
AGAIN_SECONDS = 0.02  # until a signal that came in a bad moment is sent again


class JsonObject(click.ParamType):
    """A JSON object, or @FILE that holds one, so that secrets need not stand on a command line."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        try:
            content = json.loads(Path(value[1:]).read_text() if value.startswith("@") else value)
        except OSError as error:
            self.fail(f"cannot read {value[1:]}: {error.strerror}", param, ctx)
        except ValueError:
            self.fail("expected a JSON object such as '{\"anon\": true}', or @FILE", param, ctx)
        if not isinstance(content, dict):
            self.fail("expected a JSON object such as '{\"anon\": true}', or @FILE", param, ctx)
        if _is_typed(value, param, ctx) and holds_secret(content):
            OUTPUT.typed_secret = True
        return content


def _is_typed(value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
    """Does the value itself stand on the command line?"""
    if param is None or ctx is None or value.startswith("@"):
        return False
    return ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE


def _hide(ctx: click.Context, param: click.Parameter, value: dict[str, Any] | None) -> dict[str, Any] | None:
    OUTPUT.hide(value or {})
    return value


class Size(click.ParamType):
    """A number of bytes, such as 16MB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from dask.utils import parse_bytes  # here, as --help and the tab key need not wait for Dask

        try:
            return int(parse_bytes(value))
        except ValueError:
            self.fail(f"{value!r}: expected a size such as 16MB", param, ctx)


class Location(click.types.StringParamType):
    """A path, or a URL that fsspec knows. The tab key completes paths."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class LocationArgument(click.Argument):
    """An argument that is a path or URL, or several; --config may give it as well."""

    def __init__(self, *positional: Any, **options: Any) -> None:
        super().__init__(*positional, **{"type": Location()} | options)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """As click does; but before 8.3 it took "none given" for a value, and looked no further."""
        given = {name: value for name, value in opts.items() if (name, value) != (self.name, ())}
        return super().consume_value(ctx, given)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--scheduler, or the shape of the embedded cluster. The command gets them as `cluster`, a ClusterOptions."""
    options: list[Decorator] = [
        click.option("--scheduler", metavar="ADDRESS", help="Use the Dask cluster at this address (tcp://host:8786)."),
        click.option("--workers", type=click.IntRange(1), help="Workers of the embedded cluster. [default: all cores]"),
        click.option("--processes", is_flag=True, help="Run the embedded workers as processes, not threads."),
        click.option("--memory-limit", metavar="SIZE", help="Memory of one worker, such as 4GB; implies --processes."),
        *tls_options(),
    ]

    @functools.wraps(command)
    def with_cluster(
        *args: Any, scheduler: str | None, workers: int | None, processes: bool, memory_limit: str | None, **rest: Any
    ) -> Any:
        from pipeline.cluster_options import ClusterOptions

        tls = take_tls(rest)
        cluster = ClusterOptions(scheduler, workers, processes or memory_limit is not None, memory_limit, tls)
        return command(*args, cluster=cluster, **rest)

    return apply_options(options, with_cluster)


def tls_options() -> list[Decorator]:
    """Certificates for a scheduler at tls://; see take_tls."""
    kind: dict[str, Any] = {"type": Location(), "metavar": "FILE"}
    return [
        click.option("--tls-ca-file", **kind, help="For tls:// addresses: the certificate (PEM) of the cluster's CA."),
        click.option("--tls-cert", **kind, help="This client's certificate, signed by that CA."),
        click.option("--tls-key", **kind, help="The key of that certificate, unless it is in the same file."),
    ]


def take_tls(options: dict[str, Any]) -> TlsFiles:
    """Take what tls_options gathered out of a command's options."""
    from pipeline.tls import TlsFiles

    return TlsFiles(*(options.pop(name) for name in ("tls_ca_file", "tls_cert", "tls_key")))


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Storage, what is printed, and a file with options."""
    options: list[Decorator] = [
        click.option(
            "--config",
            type=Location(),
            metavar="FILE",
            is_eager=True,
            expose_value=False,
            callback=_fill_defaults,
            help="Take options from this YAML file; those of the command line win. `dask-submit config` prints one.",
        ),
        click.option(
            "--storage-options",
            type=JsonObject(),
            callback=_hide,
            metavar="JSON",
            help="Options for remote storage, as fsspec takes them: a JSON object or @FILE.",
        ),
        click.option("--quiet", is_flag=True, help="Print errors only."),
        click.option("--log-json", is_flag=True, help="Log a JSON object a line, for machines, and draw no bars."),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
            default="info",
            show_default=True,
            help="How much to log.",
        ),
    ]
    return apply_options(options, command)


version_option: Decorator = click.version_option(__version__, prog_name="dglmnet", message="%(prog)s %(version)s")


def _fill_defaults(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Options that the command line leaves out come from the file, then from Dask's configuration."""
    if ctx.resilient_parsing:
        return
    from pipeline.config.schema import defaults_for  # here, as it needs the commands, which need this module

    ctx.default_map = defaults_for(ctx.command.name or "", value)


def apply_options(options: list[Decorator], command: Callable[..., Any]) -> Callable[..., Any]:
    """Several options as one decorator, in the order that --help shows them."""
    for option in reversed(options):
        command = option(command)
    return command


class Output:
    """What a command writes for people to read: no secrets."""

    def __init__(self) -> None:
        self.scrub: Callable[[str], str] = hide_in_urls
        self.typed_secret = False  # on the command line, where other users of the machine see it

    def hide(self, storage: dict[str, Any]) -> None:
        """From now on, the values of these storage options are not shown."""
        self.scrub = make_scrubber(storage)

    def warn(self) -> None:
        if self.typed_secret:
            self.typed_secret = False
            logger.warning(
                "warning: --storage-options holds what looks like a secret, and the list of processes shows it to "
                "everyone on this machine: put it in a file and pass --storage-options @FILE"
            )


OUTPUT = Output()


class PlainFormatter(logging.Formatter):
    """A line as it is, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return OUTPUT.scrub(super().format(record))


class JsonFormatter(logging.Formatter):
    """A JSON object a line: time, level, and the event's own fields or the message; of other libraries their name."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        event = getattr(record, "event", None) or {"message": record.getMessage()}
        if record.name != logger.name:
            event = {"logger": record.name} | event
        if record.exc_info:
            event = event | {"trace": self.formatException(record.exc_info)}
        event = {name: OUTPUT.scrub(value) if isinstance(value, str) else value for name, value in event.items()}
        return json.dumps({"time": when, "level": record.levelname.lower()} | event)


def set_up_logging(level: str, *, quiet: bool, log_json: bool) -> None:
    """Log lines of this package, its warnings, and what other libraries have to say, to standard error."""
    handler = logging.StreamHandler()
    plain = PlainFormatter("%(asctime)s %(message)s", datefmt="%H:%M:%S")
    handler.setFormatter(JsonFormatter() if log_json else plain)
    warnings.showwarning = lambda message, *rest, **more: logger.warning("warning: %s", message)
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.ERROR if quiet else level.upper())
    _log_of_others(handler, debug=level == "debug")
    OUTPUT.warn()


def _log_of_others(handler: logging.Handler, *, debug: bool) -> None:
    """One handler for every library, in place of those that Dask brings along: no line has another form.

    What Dask, and asyncio and tornado beneath it, have to say while a cluster ends is not for the users of a command; a
    failed task is told by the command. Dask sets the levels of its loggers whenever it is imported, which may be later.
    """
    for other in logging.root.manager.loggerDict.values():
        if isinstance(other, logging.Logger) and other.handlers and other is not logger:
            other.handlers, other.propagate = [], True
    logging.root.handlers = [handler]
    least = logging.INFO if debug else logging.CRITICAL
    handler.addFilter(lambda record: record.name.split(".")[0] not in CLUSTER_LOGGERS or record.levelno >= least)


def run_command(command: click.Command) -> None:
    """Run a click command; every error becomes one line and an exit code."""
    with errors_as_exit_codes(command.name or ""):
        code = command.main(prog_name=command.name, standalone_mode=False)
    sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def errors_as_exit_codes(name: str) -> Iterator[None]:
    """An error ends the process, with one line, begun by `name`, and its exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where Ctrl-C is ignored
        signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    except Interrupted as error:
        _end_interrupted(name, error.message)
    except NO_ARGUMENTS as error:
        error.show()  # the help
        sys.exit(error.exit_code)
    except click.UsageError as error:
        _fail(name, _usage_line(error), error.exit_code)
    except click.ClickException as error:
        _fail(name, error.format_message(), error.exit_code)
    except UserError as error:
        _fail(name, str(error), 2)
    except ClusterLost as error:
        _fail(name, str(error), 1)
    except (KeyboardInterrupt, click.Abort):
        _end_interrupted(name, "interrupted")
    except click.exceptions.Exit:
        raise
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        sys.exit(1)
    except Exception as error:
        if logger.isEnabledFor(logging.DEBUG):
            click.echo(OUTPUT.scrub(traceback.format_exc()).rstrip(), err=True)
            sys.exit(1)
        from transforms.storage import explain, redact  # here, as --help and the tab key need not wait for it

        what = explain(error)
        if what is not None:
            _fail(name, redact(what), 2)
        _fail(name, f"{type(error).__name__}: {error} (more with --log-level debug)", 1)


def _end_interrupted(name: str, message: str) -> None:
    """The line is the last one: a question to a worker that was never sent is no news."""
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    _fail(name, message, 130)


def _usage_line(error: click.UsageError) -> str:
    """What click says of wrong usage, and where the right one is told."""
    message = error.format_message()
    if error.ctx is None:
        return message
    return f"{message}{'' if message.endswith(('.', '?', '!')) else '.'} See {error.ctx.command_path} --help"


def _reader_is_gone() -> bool:
    """Has whoever read our standard output had enough, as `head` has? Then nothing more is written to it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def printable(text: str) -> str:
    """Text of unknown origin on one line, without what a terminal would obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))


def print_table(table: Any, width: int | None = None) -> None:
    """Print a table of rich's. Its texts are no markup: a name may hold brackets and colons."""
    from rich.console import Console

    Console(markup=False, emoji=False, width=width).print(table)


def _fail(name: str, message: str, code: int) -> None:
    if not logger.handlers and "--log-json" in sys.argv:  # the error is in the command line: nothing is set up yet
        set_up_logging("info", quiet=False, log_json=True)
    say(f"{name}: error: {printable(OUTPUT.scrub(message))}", logging.ERROR)
    sys.exit(code)


def say(line: str, level: int = logging.INFO) -> None:
    """A line on standard error; with --log-json, an object as all others there."""
    if any(isinstance(handler.formatter, JsonFormatter) for handler in logger.handlers):
        logger.log(level, line)
    else:
        click.echo(line, err=True)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Ctrl-C and SIGTERM end the work cleanly. A second SIGTERM must not cut the cleaning up short."""
    if _is_collecting(frame):
        again = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), signum))
        again.daemon = True
        again.start()
        return
    if signum == signal.SIGINT:
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def _is_collecting(frame: FrameType | None) -> bool:
    """Is garbage being collected? Python drops what is raised there, in a finaliser or in Dask's callback."""
    while frame is not None:
        if frame.f_code.co_name in ("__del__", "_gc_callback"):
            return True
        frame = frame.f_back
    return False


class Interrupted(click.ClickException):
    """Ctrl-C or SIGTERM, with what is to be said about it."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, but there is nobody to ask what to do."""
