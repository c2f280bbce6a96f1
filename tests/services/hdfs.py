"""A real HDFS for tests: a NameNode and DataNodes of Hadoop on loopback, each a process of its own."""

from __future__ import annotations

import json
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.services.install_hdfs import JARS
from tests.services.processes import ServerFailed, free_port, start_server, stop_server, wait_until

_SERVERS = "org.apache.hadoop.hdfs.server"
NAMENODE, DATANODE = f"{_SERVERS}.namenode.NameNode", f"{_SERVERS}.datanode.DataNode"
# Hadoop 2.7 is older than Java's modules and looks into these.
_OPENED = ["java.base/java.lang", "java.base/java.util", "java.base/java.nio", "java.base/sun.nio.ch"]
_KERBEROS = "java.security.jgss/sun.security.krb5"
_JAVA = [
    *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"),
    *(f"--add-opens={name}=ALL-UNNAMED" for name in [*_OPENED, _KERBEROS]),
    f"--add-exports={_KERBEROS}=ALL-UNNAMED",
]
_LOG = """
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c{1}: %m%n
"""
BLOCK = 1 << 20  # the smallest that HDFS allows: files of a few megabytes have several blocks
ATTEMPTS = 3  # to find a port that nobody takes before the NameNode does


@dataclass(frozen=True)
class Folder:
    """A folder on HDFS, and what fsspec needs to reach it."""

    url: str
    path: str
    options: dict[str, Any]
    fs: Any

    def write(self, path: str, content: bytes) -> str:
        self.fs.pipe_file(f"{self.path}/{path}", content)
        return f"{self.url}/{path}"

    def names(self, folder: str) -> list[str]:
        """The files under a folder, by their relative names."""
        base = f"{self.path}/{folder}"
        return [path[len(base) + 1 :] for path in self.fs.find(base)] if self.fs.exists(base) else []

    def files(self, folder: str) -> dict[str, bytes]:
        """Every file under a folder, by its relative name."""
        return {name: self.fs.cat_file(f"{self.path}/{folder}/{name}") for name in self.names(folder)}


class Hdfs:
    """A NameNode and `count` DataNodes; every block is on two of them. Its servers can be stopped and started.

    With three, one may die and new blocks soon find two others. With two, the NameNode goes on naming the dead one for
    12 seconds, as it would rather have two copies.
    """

    def __init__(self, home: Path, count: int = 3) -> None:
        self._home, self._count = home, count
        self._namenode: subprocess.Popen[bytes] | None = None
        self._datanodes: dict[int, subprocess.Popen[bytes]] = {}
        for name in ("hdfs", "datanode", "static"):
            (home / "classes" / "webapps" / name / "WEB-INF").mkdir(parents=True)
            (home / "classes" / "webapps" / name / "WEB-INF" / "web.xml").write_text("<web-app/>")
        self._start_first_time()
        for k in range(count):
            self.start_datanode(k, wait=False)
        self._wait(count)

    @property
    def url(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}"

    @property
    def configuration(self) -> Path:
        """A folder for HADOOP_CONF_DIR: its core-site.xml makes this the default file system."""
        return self._home / "client"

    def make_folder(self) -> Folder:
        """A new folder of its own."""
        import fsspec

        fs, path = fsspec.url_to_fs(f"{self.url}/test-{uuid.uuid4().hex[:12]}")
        fs.makedirs(path)
        return Folder(f"{self.url}{path}", path, {}, fs)

    def start_namenode(self) -> None:
        """Start it again, and wait until it has heard from every running DataNode and allows writing."""
        self._run_namenode()
        self._wait(len(self._datanodes))

    def stop_namenode(self) -> None:
        if self._namenode is not None:
            stop_server(self._namenode)
            self._namenode = None

    def start_datanode(self, k: int, *, wait: bool = True) -> None:
        home = self._home / f"datanode-{k}"
        if not home.exists():
            home.mkdir()
            _configure(home, self._site() | {"dfs.datanode.data.dir": f"file://{home}/data"}, self.url)
        self._datanodes[k] = start_server(self._java(home, DATANODE), self._log(f"datanode-{k}"))
        if wait:
            self._wait(len(self._datanodes))

    def kill_datanode(self, k: int) -> None:
        """As a power cut would: the NameNode notices when heartbeats stay out, clients when their connection breaks."""
        stop_server(self._datanodes.pop(k))

    def restore(self) -> None:
        """Start again what was stopped."""
        if self._namenode is None:
            self._run_namenode()
        for k in set(range(self._count)) - set(self._datanodes):
            self.start_datanode(k, wait=False)
        self._wait(self._count)

    def live_datanodes(self) -> int:
        """How many DataNodes the NameNode lets clients write to; 0 where it does not answer or refuses writing."""
        query = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http}{query}", timeout=10) as answer:
                state = json.load(answer)["beans"][0]
        except (OSError, IndexError, ValueError):
            return 0
        if state["FSState"] != "Operational":
            return 0
        return int(state["NumLiveDataNodes"]) - int(state["NumStaleDataNodes"])

    def close(self) -> None:
        self.stop_namenode()
        for k in list(self._datanodes):
            self.kill_datanode(k)

    def _start_first_time(self) -> None:
        for attempt in range(ATTEMPTS):
            self.port, self._http = free_port(), free_port()
            home = self._home / "namenode"
            for folder in (home, self.configuration):
                folder.mkdir(exist_ok=True)
                _configure(folder, self._site() | {"dfs.namenode.name.dir": f"file://{home}/name"}, self.url)
            try:
                self._format()
                self._run_namenode()
                return
            except ServerFailed:
                if attempt == ATTEMPTS - 1:
                    raise

    def _format(self) -> None:
        words = [*self._java(self._home / "namenode", NAMENODE), "-format", "-force", "-nonInteractive"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerFailed(f"the NameNode cannot format its folder: {done.stdout[-1000:]}{done.stderr[-2000:]}")

    def _run_namenode(self) -> None:
        log = self._log("namenode")
        self._namenode = start_server(self._java(self._home / "namenode", NAMENODE), log)
        wait_until(self._answers, self._namenode, log)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self._http}/jmx?qry=none", timeout=10).close()
        except OSError:
            return False
        return True

    def _wait(self, count: int) -> None:
        assert self._namenode is not None
        wait_until(lambda: self.live_datanodes() >= count, self._namenode, self._log("namenode"))

    def _java(self, home: Path, main: str) -> list[str]:
        return [*_JAVA, "-cp", f"{home}:{self._home}/classes:{JARS}/*", main]

    def _log(self, name: str) -> Path:
        return self._home / f"{name}.log"

    def _site(self) -> dict[str, str]:
        nowhere = "127.0.0.1:0"
        return {
            "dfs.replication": "2",
            "dfs.blocksize": str(BLOCK),
            "dfs.permissions.enabled": "false",
            # Requires Jersey, which does not go with the jars at hand.
            "dfs.webhdfs.enabled": "false",
            "dfs.namenode.http-address": f"127.0.0.1:{self._http}",
            "dfs.datanode.address": nowhere,
            "dfs.datanode.http.address": nowhere,
            "dfs.datanode.ipc.address": nowhere,
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.safemode.extension": "0",
            # A DataNode that is silent for 3 s gets nothing to write, and after 2 × 1 + 10 × 1 s it counts as dead.
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "1000",
            "dfs.namenode.stale.datanode.interval": "3000",
            "dfs.namenode.avoid.write.stale.datanode": "true",
            "dfs.namenode.write.stale.datanode.ratio": "1.0",
            "dfs.namenode.replication.considerLoad": "false",
        }


def _configure(folder: Path, site: dict[str, str], url: str) -> None:
    core = {"fs.defaultFS": url, "hadoop.tmp.dir": f"{folder}/tmp"}
    for name, values in (("core-site.xml", core), ("hdfs-site.xml", site)):
        lines = [
            f"<property><name>{key}</name><value>{escape(value)}</value></property>" for key, value in values.items()
        ]
        (folder / name).write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))
    (folder / "log4j.properties").write_text(_LOG)


@contextmanager
def hdfs_servers(home: Path, count: int = 3) -> Iterator[Hdfs]:
    """A running HDFS that keeps everything under `home`. Its processes end with this one."""
    servers = Hdfs(home, count)
    try:
        yield servers
    finally:
        servers.close()
