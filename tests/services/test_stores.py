"""Everything that works on a disk works on S3 (moto's and rclone's) and on HDFS, and gives the same."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.hand_made import HandMade
from tests.pipeline.runs import make_rows, to_text
from tests.services.stores import (
    HERE,
    Disk,
    Place,
    assert_same_models,
    assert_same_run,
    call,
    data_of,
    kill,
    rows,
    spawn,
    wait_for_event,
)
from transforms import OutputExists, claim
from transforms.claim import ClaimKeeper
from transforms.errors import ClaimLost

pytestmark = [pytest.mark.storage, pytest.mark.timeout(180)]
TRAIN, TEST = to_text(*make_rows(n=300)), to_text(*make_rows(n=150, seed=1))
SHAPE = ("--partitions", "2", "--block-size", "8000")
PATH = ("--path-length", "4")
# Long enough to be killed or cancelled on the way.
LONG_PATH = ("--path-length", "12", "--algorithm", "paper", "--tol", "1e-13", "--max-rounds", "2000")


def do_everything(place: Place) -> None:
    """Each command once, or twice where the second time differs; inputs as a folder, a file and a glob."""
    url = place.url
    half = TRAIN.index(b"\n", len(TRAIN) // 2) + 1
    place.write("in/day=1/part-0.svm", TRAIN[:half])
    place.write("in/day=2/part-0.svm.gz", gzip.compress(TRAIN[half:]))
    place.write("in/_SUCCESS", b"")
    test = place.write("test.svm", TEST)
    call(place, "convert", f"{url}/in", f"{url}/data", *SHAPE, *HERE)
    call(place, "convert", "--inspect", f"{url}/data", "--quiet")
    call(place, "fit", f"{url}/data", "--output", f"{url}/run", *PATH, *HERE)
    call(place, "evaluate", f"{url}/run", test, *HERE)
    predict = ("predict", f"{url}/run", f"{url}/te?t*.svm", "--output", f"{url}/out/p.parquet", *HERE)
    call(place, *predict, "--lambda-index", "0")
    with pytest.raises(OutputExists, match="--overwrite"):
        call(place, *predict)
    call(place, *predict, "--overwrite")
    call(place, "report", f"{url}/run", "--quiet")
    call(place, "report", f"{url}/run", "--quiet")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """Everything done on a disk."""
    disk = Disk(tmp_path_factory.mktemp("disk"))
    do_everything(disk)
    return disk


@pytest.fixture
def quick_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 0.5)
    monkeypatch.setattr(claim, "PATIENCE_SECONDS", 3.0)


def test_every_command_does_what_it_does_on_a_disk(place: Place, disk: Disk) -> None:
    do_everything(place)
    assert data_of(place.files("data")) == data_of(disk.files("data"))
    assert_same_run(place.files("run"), disk.files("run"))
    assert set(place.files("run")) == set(disk.files("run"))
    assert place.files("out") == disk.files("out")
    report = place.files("run")["report.html"].decode()
    assert f"{place.url}/run" in report
    assert report.rstrip().endswith("</html>")


def test_a_pipeline_is_done_once(place: Place, disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    train, test = place.write("train.svm", TRAIN), place.write("test.svm", TEST)
    words = (
        "pipeline",
        "--train",
        train,
        "--test",
        test,
        "--choose-by-test",
        "--output",
        f"{place.url}/run",
        *SHAPE,
        *PATH,
    )
    call(place, *words, "--workers", "2")
    before = place.files("run")
    assert_same_run(before, disk.files("run"))
    capsys.readouterr()
    call(place, *words, "--workers", "2")
    told = capsys.readouterr().err
    assert [f"{stage}: up to date" in told for stage in ("convert", "fit", "evaluate", "report")] == [True] * 4
    assert place.files("run") == before


def test_a_killed_conversion_is_resumed_to_the_same_bytes(place: Place, disk: Disk, quick_claims: None) -> None:
    place.write("train.svm", TRAIN)
    words = ("convert", f"{place.url}/train.svm", f"{place.url}/data", "--resume", *SHAPE)
    process = spawn(place, *words, "--workers", "1", "--quiet")
    while not any(name.endswith(".fragment") for name in place.names("data")) and process.poll() is None:
        time.sleep(0.01)
    kill(process)
    assert "dataset.json" not in place.files("data")
    call(place, *words, *HERE)
    assert data_of(place.files("data")) == data_of(disk.files("data"))


def test_a_killed_fit_is_resumed_to_the_same_models(place: Place, disk: Disk, quick_claims: None) -> None:
    """From the last λ that was stored: those before it are not computed again."""
    place.write("train.svm", TRAIN)
    call(place, "convert", f"{place.url}/train.svm", f"{place.url}/data", *SHAPE, *HERE)
    words = ("fit", f"{place.url}/data", *LONG_PATH, "--workers", "2")
    process = spawn(place, *words, "--output", f"{place.url}/run", "--log-json")
    wait_for_event(process, event="solution", lambda_index=2)
    kill(process)
    assert not json.loads(place.files("run")["run.json"])["complete"]
    resumed = spawn(place, *words, "--output", f"{place.url}/run", "--resume", "--log-json")
    _, told = resumed.communicate()
    assert resumed.returncode == 0, told
    path = next(event for event in map(json.loads, told.splitlines()) if event.get("event") == "path")
    assert path["done"] >= 2
    whole = Disk(Path(disk.url))
    if not whole.files("long"):
        call(whole, "fit", f"{disk.url}/data", *LONG_PATH, *HERE, "--output", f"{disk.url}/long")
    assert_same_models(place.files("run"), whole.files("long"))
    assert not [name for name in place.files("run") if name.endswith(".tmp") or "claim" in name]


# --- two writers ----------------------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_told_who_the_first_is(place: Place, quick_claims: None) -> None:
    train = place.write("train.svm", TRAIN)
    call(place, "convert", train, f"{place.url}/data", *SHAPE, *HERE)
    fit = ("fit", f"{place.url}/data", "--output", f"{place.url}/run", *LONG_PATH, "--workers", "1")
    first = spawn(place, *fit, "--log-json")
    wait_for_event(first, event="solution", lambda_index=0)
    try:
        for option in ("--resume", "--overwrite"):
            with pytest.raises(OutputExists, match=f"process {first.pid} on .* is writing here"):
                call(place, *fit, option, "--quiet")
        assert first.poll() is None, "it works on"
    finally:
        kill(first)


def test_of_writers_that_start_together_one_may_write(place: Place, request: pytest.FixtureRequest) -> None:
    """And where creation is exclusive, only one is told so. rclone ignores the condition of a PUT."""
    for k in range(5):
        path = f"{place.fs._strip_protocol(place.url)}/claims-{k}/claim.json"
        keepers = [ClaimKeeper(place.url, place.options, path) for _ in range(4)]
        gate, won = threading.Barrier(len(keepers)), list[ClaimKeeper]()
        threads = [threading.Thread(target=_race, args=(keeper, gate, won)) for keeper in keepers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len([keeper for keeper in won if may_write(keeper, place)]) == 1
        assert len(won) == 1 or "rclone" in request.node.name
        for keeper in won:
            keeper.release()
        assert place.names(f"claims-{k}") == []


def may_write(keeper: ClaimKeeper, place: Place) -> bool:
    try:
        keeper.claim.check(place.fs)
    except ClaimLost:
        return False
    return True


def _race(keeper: ClaimKeeper, gate: threading.Barrier, won: list[ClaimKeeper]) -> None:
    gate.wait()
    try:
        keeper.take(takeover=False)
    except OutputExists:
        return
    won.append(keeper)


# --- a driver on the cluster ----------------------------------------------------------------------------------------


@pytest.fixture
def cluster(place: Place, tmp_path: Path) -> Iterator[HandMade]:
    """Two workers, started when the place is there: they inherit the environment that it needs."""
    made = HandMade(tmp_path)
    made.worker("a")
    made.worker("b")
    yield made
    made.close()


def test_a_driver_on_the_cluster_is_found_followed_and_cancelled(
    place: Place, cluster: HandMade, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    url, where = place.url, ("--scheduler", cluster.address)
    call(place, "convert", place.write("train.svm", TRAIN), f"{url}/data", *SHAPE, *where, "--quiet")
    call(place, "fit", f"{url}/data", "--output", f"{url}/run", *PATH, *where, "--detach")
    assert f"dask-submit attach {url}/run" in capsys.readouterr().err
    call(place, "attach", f"{url}/run", "--quiet")
    assert status(place, "run", capsys) == ("finished", 4)
    assert_same_run_but_measures(place.files("run"), disk.files("run"))

    long = ("fit", f"{url}/data", "--output", f"{url}/long", *LONG_PATH, *where)
    call(place, *long, "--detach")
    with pytest.raises(OutputExists, match=r"a run is at work on it: attach with `dask-submit attach"):
        call(place, *long)
    while status(place, "long", capsys)[1] < 1:
        time.sleep(0.2)
    call(place, "cancel", f"{url}/long")
    state, count = status(place, "long", capsys)
    assert (state, count < 12) == ("cancelled", True)
    assert "claim.json" not in place.files("long")
    call(place, "fit", f"{url}/data", "--output", f"{url}/long", *LONG_PATH, *where, "--resume", "--quiet")
    assert status(place, "long", capsys) == ("finished", 12)


def status(place: Place, run: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, int]:
    capsys.readouterr()
    call(place, "status", f"{place.url}/{run}", "--json")
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told["state"], told.get("done") or 0


def assert_same_run_but_measures(mine: dict[str, bytes], theirs: dict[str, bytes]) -> None:
    assert rows(mine, "coefficients") == rows(theirs, "coefficients")
