"""A cluster that talks TLS only: everything works there, and whoever does not belong is told why within seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.cluster import ClusterOptions, open_client
from pipeline.tls import TlsFiles
from tests.pipeline.hand_made import HandMade
from tests.pipeline.runs import make_rows, to_text
from tests.services.certificates import Certificates, make_certificates
from transforms import UserError

pytestmark = pytest.mark.timeout(300)
LONG = ("--algorithm", "paper", "--tol", "1e-13", "--max-rounds", "20000", "--path-length", "20")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("others"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ours: Certificates) -> Iterator[HandMade]:
    """A scheduler and two workers that refuse what is not encrypted."""
    made = HandMade(tmp_path_factory.mktemp("cluster"), {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}, ours)
    made.worker("a")
    made.worker("b")
    yield made
    made.close()


def run(*words: str, environment: dict[str, str] | None = None, program: str = "submit") -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"from pipeline.commands.{program} import main; main()", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env=os.environ | (environment or {}),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def files_of(certificates: Certificates) -> TlsFiles:
    return TlsFiles(str(certificates.ca_file), str(certificates.cert), str(certificates.key))


def addresses(cluster: HandMade) -> set[str]:
    """Every address that the scheduler and the workers know or are connected to."""

    def of_scheduler(dask_scheduler: Any) -> list[str]:
        peers = [comm.peer_address for comm in dask_scheduler._comms]
        return [dask_scheduler.address, *dask_scheduler.workers, *peers]

    def of_worker(dask_worker: Any) -> list[str]:
        peers = [comm.peer_address for comm in dask_worker._comms]
        pools = [dask_worker.rpc, *([dask_worker._client.rpc] if dask_worker._client else [])]
        called = [address for pool in pools for address in (*pool.available, *pool.occupied)]
        return [dask_worker.address, dask_worker.scheduler.address, *called, *peers]

    found = set(cluster.client.run_on_scheduler(of_scheduler))
    return found.union(*cluster.client.run(of_worker).values())


def test_everything_works_over_tls_alone(cluster: HandMade, ours: Certificates, tmp_path: Path) -> None:
    there = ("--scheduler", cluster.address, *ours.options)
    assert cluster.address.startswith("tls://")
    text = tmp_path / "train.svm"
    text.write_bytes(to_text(*make_rows()))
    data, finished, long = (str(tmp_path / name) for name in ("data", "run", "long"))
    run(str(text), data, "--partitions", "2", *there, program="convert")
    run("fit", data, "--output", finished, "--path-length", "3", *there)
    assert json.loads((tmp_path / "run" / "driver.json").read_text())["state"] == "finished"
    run("evaluate", finished, str(text), *there)
    run("predict", finished, str(text), "--output", str(tmp_path / "p.parquet"), *there)
    assert pq.read_table(tmp_path / "p.parquet").num_rows == 200
    run("fit", data, "--output", long, *LONG, "--detach", *there)
    while not (tmp_path / "long" / "path.parquet").exists():
        time.sleep(0.1)
    assert {one.partition("://")[0] for one in addresses(cluster)} == {"tls"}, "while a driver and its actors work"
    assert json.loads(run("status", long, "--json", *ours.options))["state"] == "running"
    assert "cancelled" in run("cancel", long, *ours.options)
    run("fit", data, "--output", long, *LONG[:-1], "3", "--overwrite", "--detach", *there)
    run("attach", long, *ours.options)
    written = [path.read_text() for path in tmp_path.rglob("*.json")]
    assert not [text for text in written for line in ours.key_lines if line in text]


def test_certificates_come_from_dask_or_from_the_file_of_options(
    cluster: HandMade, ours: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "train.svm").write_bytes(to_text(*make_rows()))
    words = (str(tmp_path / "train.svm"), str(tmp_path / "data"), "--partitions", "2", "--overwrite")
    dask = {
        "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(ours.ca_file),
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT": str(ours.cert),
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY": str(ours.key),
    }
    run(*words, "--scheduler", cluster.address, environment=dask, program="convert")
    options = {"scheduler": cluster.address}
    options |= {"tls-ca-file": str(ours.ca_file), "tls-cert": str(ours.cert), "tls-key": str(ours.key)}
    (tmp_path / "options.yaml").write_text(json.dumps(options))
    run(*words, "--config", str(tmp_path / "options.yaml"), program="convert")


def refused(scheduler: str | None, tls: TlsFiles) -> str:
    with pytest.raises(UserError) as caught, open_client(ClusterOptions(scheduler=scheduler, tls=tls)):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_who_does_not_belong_is_told_why(cluster: HandMade, ours: Certificates, others: Certificates) -> None:
    assert "it uses TLS: give its address as tls://" in refused(cluster.address.replace("tls:", "tcp:"), TlsFiles())
    assert "its certificate does not fit the CA" in refused(cluster.address, files_of(others))
    stranger = TlsFiles(str(ours.ca_file), str(others.cert), str(others.key))
    assert "does not accept the certificate of this client" in refused(cluster.address, stranger)
    told = refused(cluster.address, TlsFiles())
    assert "needs certificates, and --tls-ca-file is missing" in told
    assert "distributed.comm.tls.ca-file" in told


def test_wrong_files_are_refused_by_name(cluster: HandMade, ours: Certificates, others: Certificates) -> None:
    there, ca, cert, key = cluster.address, str(ours.ca_file), str(ours.cert), str(ours.key)
    assert "--tls-key /no/key.pem: cannot read it: No such file" in refused(there, TlsFiles(ca, cert, "/no/key.pem"))
    assert f"--tls-cert {key}: not a certificate" in refused(there, TlsFiles(ca, key, key))
    assert f"--tls-ca-file {key}: not a certificate" in refused(there, TlsFiles(key, cert, key))
    assert f"--tls-key {others.key}: not the key of the certificate" in refused(
        there, TlsFiles(ca, cert, str(others.key))
    )
    assert f"--tls-cert {cert}: not a certificate with its key in PEM form; give its key with --tls-key" in refused(
        there, TlsFiles(ca, cert)
    )
    assert "--tls-ca-file needs --scheduler" in refused(None, TlsFiles(ca, cert, key))
    assert "--tls-cert does not go with the address tcp://" in refused("tcp://127.0.0.1:1", TlsFiles(None, cert, key))


def test_key_that_this_user_may_not_read_is_refused(
    cluster: HandMade, ours: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the refusal is the system's own words."""
    opened = Path.open

    def open_as_another(self: Path, *args: Any, **more: Any) -> Any:
        if self == ours.key:
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *args, **more)

    monkeypatch.setattr(Path, "open", open_as_another)
    assert f"--tls-key {ours.key}: cannot read it: Permission denied" in refused(cluster.address, files_of(ours))


def test_key_with_a_passphrase_is_refused_and_nobody_is_asked(cluster: HandMade, ours: Certificates) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(ours.key.read_bytes(), None)
    locked = ours.key.with_name("locked.pem")
    form, lock = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"passphrase")
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, lock))
    told = refused(cluster.address, TlsFiles(str(ours.ca_file), str(ours.cert), str(locked)))
    assert f"--tls-key {locked}: the key has a passphrase" in told


def test_plain_scheduler_is_refused_by_a_client_that_wants_tls(tmp_path: Path, ours: Certificates) -> None:
    plain = HandMade(tmp_path)
    try:
        told = refused(plain.address.replace("tcp:", "tls:"), files_of(ours))
        assert "it does not use TLS: give its address as tcp://" in told
        assert "it does not use TLS" in refused(plain.address.removeprefix("tcp://"), files_of(ours))
    finally:
        plain.close()
