"""Network namespaces as hosts: each has its own address and a link to a switch that can be slowed down and cut."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path

FAST = "1gbit"


def missing() -> str | None:
    """Why there can be no namespaces here, if so."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"`{program}` is not installed: apt-get install iproute2"
    name = f"dglmnet-{uuid.uuid4().hex[:8]}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"network namespaces cannot be made here: {tried.stderr.strip()}"
    _run("ip", "netns", "delete", name)
    return None


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


class Network:
    """Hosts on a switch. Use as a context manager: processes and namespaces end with it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, os.environ | environment
        self._prefix = f"dglmnet-{uuid.uuid4().hex[:8]}"
        self._namespaces: list[str] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._switch = self._add_namespace("switch")
        self._hosts: dict[str, str] = {}

    def __enter__(self) -> Network:
        try:
            _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
            _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        for name in self._namespaces:  # links and the bridge go with them
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        self._namespaces = []

    def _add_namespace(self, name: str) -> str:
        full = f"{self._prefix}-{name}"
        _run("ip", "netns", "add", full)
        self._namespaces.append(full)
        return full

    def add_host(self, name: str) -> str:
        """Its address."""
        space = self._add_namespace(name)
        self._hosts[name] = f"10.77.0.{len(self._hosts) + 1}"
        link = ("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", space)
        _run("ip", "-n", self._switch, *link)
        _run("ip", "-n", self._switch, "link", "set", f"to-{name}", "master", "bridge", "up")
        _run("ip", "-n", space, "address", "add", f"{self._hosts[name]}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", space, "link", "set", device, "up")
        self.shape(name, FAST)
        return self._hosts[name]

    def shape(self, name: str, rate: str) -> None:
        """Give a host's link this rate, both ways."""
        how = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "200ms")
        _run("tc", "-n", f"{self._prefix}-{name}", "qdisc", "replace", "dev", "eth0", *how)
        _run("tc", "-n", self._switch, "qdisc", "replace", "dev", f"to-{name}", *how)

    def cut(self, name: str) -> None:
        _run("ip", "-n", self._switch, "link", "set", f"to-{name}", "down")

    def mend(self, name: str) -> None:
        _run("ip", "-n", self._switch, "link", "set", f"to-{name}", "up")

    def sent(self, name: str) -> int:
        """Bytes that a host has sent."""
        words = ["ip", "-n", f"{self._prefix}-{name}", "-s", "-j", "link", "show", "eth0"]
        shown = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        return int(shown[0]["stats64"]["tx"]["bytes"])

    def start(self, name: str, words: list[str]) -> subprocess.Popen[str]:
        """A process on a host. What it says on stderr goes to a file, `log_of`."""
        with (self._folder / f"{len(self._processes)}.log").open("w") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", f"{self._prefix}-{name}", *words],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._processes.append(process)
        return process

    def log_of(self, process: subprocess.Popen[str]) -> str:
        return (self._folder / f"{self._processes.index(process)}.log").read_text()
