"""How a run stands: from its driver if that is at work, or else from the files of the run folder alone."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pipeline.cluster import open_scheduler
from pipeline.display import relative_gap
from pipeline.driver.moving import SILENCE_SECONDS
from pipeline.driver.record import (
    CUT_OFF,
    FINISHED,
    MOST_STARTS,
    RUNNING,
    SUBMITTED,
    DriverRecord,
    RunFolder,
    is_trusted,
)
from pipeline.driver.submission import ask_summary, standing
from pipeline.run import read_path
from pipeline.run_record import read_run_record
from pipeline.stored import CLAIM, PATH, RUN_JSON
from pipeline.tls import TlsFiles, complete_address, make_security
from transforms import UserError
from transforms.claim import ClaimKeeper
from transforms.liveness import UNREACHABLE
from transforms.storage import explained, open_storage

Status = dict[str, Any]


def read_status(folder: RunFolder, scheduler: str | None = None, tls: TlsFiles | None = None) -> Status:
    """What is known of a run, as plain data. `scheduler`: where to ask, if not where driver.json says."""
    record, status = folder.read(), _from_files(folder)
    if record is None:
        return status | _without_driver(folder, status)
    status |= {
        name: getattr(record, name)
        for name in ("command", "scheduler", "worker", "submitted", "started", "ended", "starts")
    }
    if record.over:
        # A run may have been finished later, by a driver in a terminal's process.
        finished = record.command == "fit" and status["complete"]
        state = {"state": FINISHED, "message": None} if finished else {"state": record.state, "message": record.message}
        return status | state
    if scheduler is None and not is_trusted(record.scheduler):
        hint = f"its scheduler was not asked: add --scheduler {record.scheduler} if you trust it"
        return status | _without_scheduler(folder, record, hint)
    return status | _from_driver(folder, record, scheduler or record.scheduler, tls or TlsFiles())


def _from_files(folder: RunFolder) -> Status:
    """What run.json and path.parquet say: the λ that are done, the last of them."""
    fs, path = open_storage(folder.url, folder.storage)
    with explained(folder.shown):
        fs.invalidate_cache()
        run = read_run_record(fs, path) if fs.exists(f"{path}/{RUN_JSON}") else None
        rows = read_path(folder.url, folder.storage) if fs.exists(f"{path}/{PATH}") else []
    status: Status = {
        "run": folder.shown,
        "complete": run is not None and run.complete,
        "lambdas": len(run.lambdas) if run and run.lambdas else None,
        "done": len(rows),
    }
    if rows:
        last = rows[-1]
        status["last"] = {name: last[name] for name in ("lambda", "rounds", "objective", "gap", "nonzeros")}
    return status


def kept_line(folder: RunFolder, command: str) -> str:
    """What a run keeps that was interrupted, and how to go on with it."""
    status = _from_files(folder)
    how = "continue with --resume" if command == "fit" and status["done"] else "run the same command again"
    if not status["done"]:
        return f"no λ is done yet: {how}"
    return f"{status['done']} of {status['lambdas']} λ are kept in {folder.shown}: {how}"


def _without_driver(folder: RunFolder, status: Status) -> Status:
    """The state of a run whose driver was a terminal's process."""
    if status["complete"]:
        return {"state": FINISHED}
    holder = _claim_holder(folder)
    if holder:
        return {"state": RUNNING, "worker": f"process {holder.get('pid')} on {holder.get('host')}"}
    fs, path = open_storage(folder.url, folder.storage)
    if not fs.exists(f"{path}/{RUN_JSON}"):
        raise UserError(f"{folder.shown}: there is no run here")
    return {"state": CUT_OFF, "message": "continue with --resume"}


def _claim_holder(folder: RunFolder) -> dict[str, Any] | None:
    _, path = open_storage(folder.url, folder.storage)
    return ClaimKeeper(folder.url, folder.storage, f"{path}/{CLAIM}").at_work()


def _from_driver(folder: RunFolder, record: DriverRecord, scheduler: str, tls: TlsFiles) -> Status:
    """The state of a run whose driver was submitted and has not said that it ended."""
    make_security(complete_address(scheduler, tls), tls)  # an option that is wrong is told, not taken for an absence
    try:
        with open_scheduler(scheduler, tls) as client:
            found = standing(client, record.key)
            if found is None or not found.at_work:
                return _ended_unseen(folder, record)
            if found.silent > SILENCE_SECONDS:
                silence = f"{found.worker} has not been heard of for {found.silent:.0f} s"
                return {"state": CUT_OFF, "message": f"{silence}: it goes on at another worker when one answers"}
            if found.waits and record.starts:
                return {"state": record.state, "message": "lost with its worker: it goes on when there is one for it"}
            return {"state": record.state} | _now(client, record.key, found.worker)
    except (UserError, *UNREACHABLE):
        return _without_scheduler(folder, record, f"the scheduler at {scheduler} does not answer")


def _ended_unseen(folder: RunFolder, before: DriverRecord) -> Status:
    """The scheduler has no such task at work: it ended this moment, or it is lost."""
    record = folder.read()
    if record is not None and record.over:
        return {"state": record.state, "message": record.message, "ended": record.ended}
    return {"state": CUT_OFF, "message": f"its driver is gone. {before.again}"}


def _now(client: Any, key: str, worker: str | None) -> Status:
    """The stage, and the round at work, as the driver says."""
    summary = None
    with suppress(*UNREACHABLE):
        summary = worker and ask_summary(client, key, worker)
    now: Status = {}
    for event in summary[1] if summary else []:
        if event["call"] == "stage":
            now["stage"] = event["args"][0]
        elif event["call"] == "round":
            row = event["args"][0]
            names = ("round", "objective", "gap", "nonzeros", "lambda_index")
            now["at"] = {"lambda": row["lam"]} | {name: row.get(name) for name in names}
        elif event["call"] == "begin":
            now["lambdas"] = len(event["args"][0])
    return now


def _without_scheduler(folder: RunFolder, record: DriverRecord, why: str) -> Status:
    """From the files alone: a claim that is kept fresh means that the driver lives."""
    message = f"{why}; this is what the files of the run say"
    alive = _claim_holder(folder) is not None
    return {"state": RUNNING if alive else CUT_OFF, "message": message + ("" if alive else f". {record.again}")}


def status_lines(status: Status) -> list[str]:
    """For people."""
    waiting = " (waits for a worker)" if status["state"] == SUBMITTED else ""
    message = status.get("message")
    lines = [f"{status['run']}: {status['state']}{waiting}" + (f": {message}" if message else "")]
    total = status["lambdas"]
    stage = f"{status['stage']}, " if status.get("stage") else ""
    lines.append(f"  {stage}{status['done']} of {total} λ done" if total else f"  {stage}no λ done yet")
    if "last" in status:
        lines.append(f"  last λ: {_figures(status['last'], 'rounds')}")
    if "at" in status:
        lines.append(f"  at work: {_figures(status['at'], 'round')}")
    if status.get("started"):
        lines.append(f"  since {status['started']}" + (f", until {status['ended']}" if status.get("ended") else ""))
    if status.get("worker"):
        at = f", scheduler {status['scheduler']}" if status.get("scheduler") else ""
        starts = status.get("starts", 0)
        times = f", start {starts} of {MOST_STARTS}: it was lost with its worker" if starts > 1 else ""
        lines.append(f"  driver: {status['worker']}{at}{times}")
    return lines


def _figures(row: dict[str, Any], rounds: str) -> str:
    return (
        f"λ = {row['lambda']:.5g}, {rounds} {row[rounds]}, objective {row['objective']:.8g}, "
        f"rel. gap {relative_gap(row['gap'], row['objective'])}, {row['nonzeros']:,} nonzeros"
    )
