"""A cluster whose hosts are network namespaces on links of 1 Gbit/s: slow links, short cuts and long ones."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.bench_net import make_dataset
from tests.net.hosts import FAST, Network, missing
from tests.pipeline.runs import driver_of, make_rows, to_text
from tests.reference import files_of

pytestmark = [pytest.mark.net, pytest.mark.timeout(240)]
SILENT = r"worker a at tcp://[\d.]+:\d+ does not answer \(last heard of (\d+) s ago\).*The fit goes on without it"
GOES_ON = "goes on without it"
# Workers outlast a cut of minutes; by default Dask ends them, and their nannies, when a connection is dead for 30 s.
OUTLAST = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "180s"}
NAMES = """
import sys
from distributed import Client
print(sorted(worker["name"] for worker in Client(sys.argv[1]).scheduler_info()["workers"].values()))
"""


def command(program: str, *words: object) -> list[str]:
    return [sys.executable, "-c", f"from pipeline.commands.{program} import main; main()", *map(str, words)]


def soon(what: Callable[[], object], process: subprocess.Popen[str] | None = None, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert process is None or process.poll() is None, "it ended before"
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Cluster:
    """A scheduler on the host `s`, where commands run, too, and workers on `a` and `b`."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network, self.folder = network, folder
        self.address = f"tcp://{network.add_host('s')}:8786"
        host = self.address[len("tcp://") : -len(":8786")]
        dask = [sys.executable, "-m", "dask"]
        network.start("s", [*dask, "scheduler", "--host", host, "--port", "8786", "--dashboard-address", f"{host}:0"])
        for name in "ab":
            where = ["--host", network.add_host(name), "--name", name, "--nthreads", "1", "--no-nanny"]
            network.start(name, [*dask, "worker", self.address, *where])
        while self.workers() != "['a', 'b']":
            time.sleep(0.2)

    def workers(self) -> str:
        process = self.network.start("s", [sys.executable, "-c", NAMES, self.address])
        return process.communicate(timeout=60)[0].strip()

    def start(self, program: str, *words: object) -> subprocess.Popen[str]:
        return self.network.start("s", command(program, *words, "--scheduler", self.address))

    def end(self, process: subprocess.Popen[str]) -> str:
        """What it said, once it is done."""
        process.communicate(timeout=200)
        log = self.network.log_of(process)
        assert process.returncode == 0, log
        return log

    def fit(self, output: str, algorithm: str = "paper", driver: str = "local") -> subprocess.Popen[str]:
        return self.start("submit", *fit_words(self.folder, output, algorithm), "--driver", driver)


def fit_words(folder: Path, output: str, algorithm: str) -> list[object]:
    words: list[object] = ["fit", folder / "data", "--output", folder / output, "--algorithm", algorithm]
    return [*words, "--path-length", 8, "--tol", "1e-10", "--blocks", 2]


def convert_words(folder: Path, output: str) -> list[object]:
    return [folder / "train.svm", folder / output, "--partitions", 6, "--block-size", "100kB"]


def objectives(folder: Path, output: str) -> np.ndarray:
    return np.asarray(pq.read_table(folder / output / "path.parquet")["objective"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := missing():
        pytest.skip(reason)
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated"))  # so that the namespaces are removed
    folder = tmp_path_factory.mktemp("net")
    (folder / "train.svm").write_bytes(to_text(*make_rows(n=3000, p=300)))
    subprocess.run(command("convert", *convert_words(folder, "data"), "--workers", "2"), check=True)
    for algorithm in ("paper", "default"):
        words = fit_words(folder, f"{algorithm}-here", algorithm)
        subprocess.run(command("submit", *words, "--workers", "2"), check=True)
    with Network(folder, {"PYTHONPATH": str(Path.cwd()), **OUTLAST}) as network:
        yield Cluster(network, folder)


def assert_same(cluster: Cluster, output: str, algorithm: str = "paper") -> None:
    expected = objectives(cluster.folder, f"{algorithm}-here")
    np.testing.assert_allclose(objectives(cluster.folder, output), expected, rtol=1e-9)


def begun(cluster: Cluster, output: str) -> Callable[[], bool]:
    return (cluster.folder / output / "path.parquet").exists


def test_conversion_over_the_network_gives_the_same_bytes(cluster: Cluster) -> None:
    cluster.end(cluster.start("convert", *convert_words(cluster.folder, "far")))
    assert files_of(cluster.folder / "far") == files_of(cluster.folder / "data")


@pytest.mark.parametrize("algorithm", ["paper", "default"])
@pytest.mark.parametrize("driver", ["local", "cluster"])
def test_fit_over_the_network_gives_the_same_models(cluster: Cluster, algorithm: str, driver: str) -> None:
    output = f"{algorithm}-{driver}"
    cluster.end(cluster.fit(output, algorithm, driver))
    assert_same(cluster, output, algorithm)


MANY = 200_000  # examples: vectors long enough to be exchanged between workers


@pytest.fixture(scope="module")
def many(cluster: Cluster) -> Path:
    """Data of many examples, and its models by an undisturbed fit."""
    make_dataset(MANY, 4, str(cluster.folder / "many"))
    for algorithm in ("paper", "default"):
        subprocess.run(command("submit", *many_words(cluster.folder, "here", algorithm), "--workers", "2"), check=True)
    return cluster.folder


def many_words(folder: Path, output: str, algorithm: str) -> list[object]:
    words: list[object] = ["fit", folder / "many", "--output", folder / f"many-{algorithm}-{output}"]
    return [*words, "--algorithm", algorithm, "--path-length", 6, "--blocks", 2]


@pytest.mark.parametrize("algorithm", ["paper", "default"])
def test_driver_sends_a_vector_once_for_all_workers(cluster: Cluster, many: Path, algorithm: str) -> None:
    before = cluster.network.sent("s")
    cluster.end(cluster.start("submit", *many_words(many, "far", algorithm), "--driver", "local"))
    output = f"many-{algorithm}-far"
    np.testing.assert_allclose(objectives(many, output), objectives(many, f"many-{algorithm}-here"), rtol=1e-9)
    rounds, lambdas = pq.read_table(many / output / "trace.parquet").num_rows, 6
    # One at the start and one a round; in paper mode also where a λ begins.
    given = 1 + rounds + (lambdas if algorithm == "paper" else 0)
    assert cluster.network.sent("s") - before < 1.4 * given * 8 * MANY


def test_exchange_between_workers_rides_out_a_short_cut(cluster: Cluster, many: Path) -> None:
    process = cluster.start("submit", *many_words(many, "cut", "paper"), "--driver", "local")
    soon(begun(cluster, "many-paper-cut"), process)
    cluster.network.cut("a")
    time.sleep(4)
    assert process.poll() is None  # it was in the middle
    cluster.network.mend("a")
    assert GOES_ON not in cluster.end(process)
    expected = objectives(many, "many-paper-here")
    np.testing.assert_allclose(objectives(many, "many-paper-cut"), expected, rtol=1e-9)


def test_slow_link_slows_and_does_not_break(cluster: Cluster) -> None:
    cluster.network.shape("a", "10mbit")
    log = cluster.end(cluster.fit("slow"))
    cluster.network.shape("a", FAST)
    assert GOES_ON not in log
    assert_same(cluster, "slow")


def test_short_cut_is_ridden_out(cluster: Cluster) -> None:
    process = cluster.fit("short")
    soon(begun(cluster, "short"), process)
    cluster.network.cut("a")
    time.sleep(4)
    assert process.poll() is None  # it was in the middle
    cluster.network.mend("a")
    assert GOES_ON not in cluster.end(process)
    assert_same(cluster, "short")


def test_long_cut_is_a_lost_worker_that_is_used_again_when_it_is_back(cluster: Cluster) -> None:
    process = cluster.fit("cut")
    soon(begun(cluster, "cut"), process)
    cluster.network.cut("a")
    soon(lambda: re.search(SILENT, cluster.network.log_of(process).replace("\n", " ")), process)
    cluster.network.mend("a")
    log = cluster.end(process).replace("\n", " ")
    told = re.findall(SILENT, log)
    assert len(told) == 1
    assert int(told[0]) <= 30
    assert_same(cluster, "cut")
    assert cluster.workers() == "['a', 'b']"
    assert GOES_ON not in cluster.end(cluster.fit("back"))
    assert_same(cluster, "back")


def test_detached_driver_behind_a_cut_link_goes_on_at_another_worker(cluster: Cluster) -> None:
    run = cluster.folder / "detached"
    for host in "ab":  # so that it takes some time
        cluster.network.shape(host, "1mbit")
    cluster.end(cluster.start("submit", *fit_words(cluster.folder, "detached", "paper"), "--detach"))
    soon(begun(cluster, "detached"))
    host = str(driver_of(run).worker).split()[0]
    cluster.network.cut(host)
    assert not driver_of(run).over, "it was in the middle"
    for each in "ab":
        cluster.network.shape(each, FAST)
    soon(lambda: driver_of(run).starts == 2)
    cluster.network.mend(host)
    soon(lambda: driver_of(run).over)
    assert (driver_of(run).state, driver_of(run).starts) == ("finished", 2)
    assert_same(cluster, "detached")
    assert cluster.workers() == "['a', 'b']"
