"""Where the work runs: an embedded Dask cluster (threads of this process, or local processes), or a running one."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import dask
from dask.system import CPU_COUNT
from dask.utils import parse_bytes
from distributed import Client, LocalCluster
from distributed.system import MEMORY_LIMIT

from pipeline.cluster_options import ClusterOptions
from pipeline.reach import reach_scheduler
from pipeline.tls import TlsFiles, complete_address, make_security
from transforms import UserError, __version__
from transforms.embedded import nothing_kept, pageless
from transforms.liveness import ask_scheduler, ask_workers, expel, go_on_without, registered_workers

logger = logging.getLogger("dglmnet")
__all__ = ["ClusterOptions", "check_workers", "open_client", "open_scheduler"]
REACH_SECONDS = 3
CONNECT_SECONDS = 8


@contextmanager
def open_client(options: ClusterOptions) -> Iterator[Client]:
    """A client of the cluster that the options describe; an embedded cluster ends with it."""
    if options.scheduler is not None:
        with open_scheduler(options.scheduler, options.tls) as client:
            check_workers(client)
            direct = _workers_in_reach(client)
        if not direct:
            logger.info("the workers cannot be reached from here: vectors go through the scheduler, which is slower")
        with _connect(options.scheduler, options.tls, direct=direct) as client:
            yield client
        return
    if options.tls.given():
        raise UserError(f"{options.tls.given()[0]} needs --scheduler: an embedded cluster does not leave this machine")
    with (
        nothing_kept(),
        dask.config.set(_embedded_config()),
        _embedded(options) as cluster,
        _client_of(cluster) as client,
    ):
        yield client


@contextmanager
def open_scheduler(address: str, tls: TlsFiles) -> Iterator[Client]:
    """A client that asks the scheduler only: for work whose driver is on the cluster."""
    complete = complete_address(address, tls)
    reach_scheduler(complete, make_security(complete, tls))
    with _connect(address, tls, direct=False) as client:
        yield client


def _embedded(options: ClusterOptions) -> LocalCluster:
    """Workers of one thread each. In this process they share memory, so only processes have a limit of their own."""
    workers = options.workers or CPU_COUNT
    limit = _memory_limit(options, workers)
    with _deaf_to_ctrl_c() if options.processes else nullcontext():
        return _local_cluster(options, workers, limit)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started in here ignore Ctrl-C, which a terminal sends to all: this process ends them in good order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _local_cluster(options: ClusterOptions, workers: int, limit: int) -> LocalCluster:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=options.processes,
        memory_limit=limit if options.processes else 0,
        host="127.0.0.1" if options.processes else None,
        silence_logs=logging.CRITICAL,  # a task that failed is reported once, by the command
        **pageless(processes=options.processes),
    )


def _embedded_config() -> dict[str, object]:
    """Nothing of ours can be spilled: tasks leave files behind and actors stay, so spilling would only cost time."""
    return {"distributed.worker.memory.spill": False}


def _memory_limit(options: ClusterOptions, workers: int) -> int:
    if options.memory_limit is None:
        return int(MEMORY_LIMIT) // workers
    try:
        limit = int(parse_bytes(options.memory_limit))
    except ValueError:
        raise UserError(f"memory limit {options.memory_limit!r}: expected a size such as 512MB or 4GiB") from None
    if limit < 64 << 20:
        raise UserError(f"memory limit {options.memory_limit!r}: a worker needs at least 64 MB")
    return limit


def _client_of(cluster: LocalCluster) -> Client:
    return Client(cluster, direct_to_workers=True)


def _workers_in_reach(client: Client) -> bool:
    """Can this machine talk to every worker itself? A client outside the cluster's network often cannot."""
    addresses = list(registered_workers(client))

    async def ask() -> None:
        await asyncio.gather(*(client.rpc(address).identity() for address in addresses))

    try:
        client.sync(ask, callback_timeout=REACH_SECONDS)
    except (OSError, TimeoutError):
        return False
    return True


def _connect(address: str, tls: TlsFiles, *, direct: bool) -> Client:
    """A client of a scheduler that was there a moment ago."""
    address = complete_address(address, tls)
    try:
        return Client(
            address,
            security=make_security(address, tls),
            timeout=CONNECT_SECONDS,
            set_as_default=False,
            direct_to_workers=direct,
        )
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"cannot reach a Dask scheduler at {address}: {reason}. Is `dask scheduler` running there?"
        ) from None


def installed_version() -> str:
    """What check_workers asks every worker."""
    return __version__


def check_workers(client: Client) -> None:
    """Scheduler and workers must have this package, in this version: raise, naming those that do not.

    Those that do not answer are told, and taken out of the cluster.
    """
    _check_scheduler(client)
    answers, silent = ask_workers(client, installed_version)
    if not answers and not silent:
        raise UserError(f"the scheduler at {client.scheduler.address} has no workers: start some with `dask worker`")
    for worker, answer in answers.items():
        if answer != __version__:
            what = f"has dglmnet {answer}" if isinstance(answer, str) else f"cannot load dglmnet ({answer})"
            raise UserError(f"worker {worker} {what}; this is {__version__}. Install the same version on every worker")
    go_on_without(answers, silent)
    expel(client, [worker.address for worker in silent])


def _check_scheduler(client: Client) -> None:
    """It reads the graph of a job, so it needs the package, too."""

    def look(dask_scheduler: object) -> tuple[bool, str]:
        try:
            from transforms.version import __version__ as version
        except Exception as error:
            return False, f"{type(error).__name__}: {error}"
        return True, version

    loaded, found = ask_scheduler(client, look)
    if not loaded or found != __version__:
        what = f"has dglmnet {found}" if loaded else f"cannot load dglmnet ({found})"
        where = client.scheduler.address
        raise UserError(f"the scheduler at {where} {what}; this is {__version__}. Install the same version there")
