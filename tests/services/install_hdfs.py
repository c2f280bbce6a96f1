"""Fetch the programs of HDFS for the tests: `python -m tests.services.install_hdfs`, once per environment.

The source distribution of pyspark 2.4.8 carries Hadoop 2.7.3 with its NameNode and DataNode; later ones carry only the
client. pip cannot build it with today's Python, so the file itself is taken from the index that pip is set up with, and
the jars that HDFS needs (35 of 215 MB) are kept in the environment's folder `hadoop`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

PYSPARK = "2.4.8"
JARS = Path(sys.prefix) / "hadoop"
JAVA_PACKAGE = "openjdk-17-jre-headless"
# fmt: off
_NEEDED = {
    "hadoop-annotations", "hadoop-auth", "hadoop-common", "hadoop-hdfs", "commons-cli", "commons-codec",
    "commons-collections", "commons-configuration", "commons-io", "commons-lang", "commons-logging", "guava",
    "htrace-core", "jackson-core-asl", "jackson-mapper-asl", "javax.servlet-api", "javax.ws.rs-api", "jetty",
    "jetty-util", "leveldbjni-all", "log4j", "netty", "netty-all", "protobuf-java", "slf4j-api", "slf4j-log4j12",
    "xercesImpl", "xmlenc",
}
# fmt: on


def missing() -> str | None:
    """What HDFS needs and this machine does not have, with the remedy, or None."""
    if not JARS.is_dir():
        return f"Hadoop is not in {JARS}: run make test-storage, or python -m tests.services.install_hdfs"
    if shutil.which("java") is None:
        return f"there is no java: install {JAVA_PACKAGE}"
    return None


def main() -> None:
    if shutil.which("java") is None:
        _install_java()
    if not JARS.is_dir():
        _install_jars()


def _install_java() -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        _say(f"there is no java: install {JAVA_PACKAGE}. Without it the tests on HDFS skip")
        return
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", JAVA_PACKAGE]):
        done = subprocess.run(["apt-get", "-qq", *words], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            _say(f"apt-get {words[0]} failed, so there is no java and the tests on HDFS skip: {done.stderr.strip()}")
            return


def _install_jars() -> None:
    """All of them or none: they are collected beside and renamed once the download's checksum is right."""
    beside = JARS.with_name("hadoop.part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    _say(f"fetching Hadoop 2.7.3 (210 MB, once) into {JARS}")
    try:
        _download(beside)
    except OSError as error:  # pip's network errors are among them
        sys.exit(f"the download of pyspark {PYSPARK} failed: {error}")
    found = {_library(jar.name) for jar in beside.iterdir()}
    if lacking := _NEEDED - found:
        sys.exit(f"pyspark {PYSPARK} does not carry {', '.join(sorted(lacking))}")
    beside.rename(JARS)


def _download(folder: Path) -> None:
    """Stream the distribution from pip's index and keep the jars that are needed."""
    from pip._internal.commands import create_command
    from pip._vendor.packaging.specifiers import SpecifierSet

    command: Any = create_command("download")
    options, _ = command.parse_args(["--no-binary", ":all:", "pyspark"])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options=options, session=session)
        best = finder.find_best_candidate("pyspark", SpecifierSet(f"=={PYSPARK}")).best_candidate
        if best is None:
            sys.exit(f"pip's index has no source distribution of pyspark {PYSPARK}")
        with session.get(
            best.link.url_without_fragment, stream=True, headers={"Accept-Encoding": "identity"}
        ) as answer:
            answer.raise_for_status()
            stream = _Hashed(answer.raw)
            _extract(stream, folder)
    if best.link.hash is not None and stream.digest(best.link.hash_name) != best.link.hash:
        sys.exit(f"the download of pyspark {PYSPARK} is damaged: its {best.link.hash_name} is not the index's")


class _Hashed:
    """A stream that keeps the checksum of what is read from it."""

    def __init__(self, raw: Any) -> None:
        self._raw, self._hash = raw, hashlib.sha256()

    def read(self, size: int) -> bytes:
        piece: bytes = self._raw.read(size)
        self._hash.update(piece)
        return piece

    def digest(self, name: str) -> str:
        assert name == "sha256", f"the index gives {name}"
        while self.read(1 << 20):
            pass  # what follows the archive's end counts too
        return self._hash.hexdigest()


def _extract(stream: _Hashed, folder: Path) -> None:
    with tarfile.open(fileobj=stream, mode="r|gz") as archive:  # type: ignore[call-overload]
        for member in archive:
            name = Path(member.name).name
            if "/deps/jars/" in member.name and _library(name) in _NEEDED:
                content = archive.extractfile(member)
                assert content is not None
                with (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)


def _library(jar: str) -> str:
    """The name without its version: hadoop-hdfs of hadoop-hdfs-2.7.3.jar."""
    return re.sub(r"-\d.*\.jar$", "", jar)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
