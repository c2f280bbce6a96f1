"""Are client, scheduler and workers of the same make?

Dask itself warns of any difference in what it needs. Here a difference is wrong where it breaks: Dask's messages and
graphs are made for one release; functions travel as the bytecode of one minor version of Python; cloudpickle and numpy
promise to read what others of their major version wrote; and dglmnet refuses workers of another version. Kernels, files
and stores are each process's own, so that numba, pyarrow and fsspec may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.doctor.questions import Cluster, Failure
from pipeline.doctor.row import OK, WARN, WRONG, Row

ALL = 99
EQUAL_PARTS = {  # how many leading parts of a version must be equal
    "python": 2,
    "dask": ALL,
    "distributed": ALL,
    "cloudpickle": 1,
    "numpy": 1,
    "numba": 0,
    "pyarrow": 0,
    "fsspec": 0,
    "dglmnet": ALL,
}
PATIENCE_SECONDS = 20.0  # for the first import of numba and all that belongs to it


def read_versions() -> Callable[..., dict[str, Any]]:
    """A function that travels by value: "dglmnet" is what can be imported, or None and under "failure" the reason."""

    def look(_: Any, packages: list[str]) -> dict[str, Any]:
        import platform
        from importlib import import_module
        from importlib.metadata import PackageNotFoundError, version

        found: dict[str, Any] = {"python": platform.python_version(), "failure": ""}
        for name in packages:
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = None
        try:
            import_module("pipeline.resident")
            found["dglmnet"] = import_module("transforms.version").__version__
        except Exception as error:  # numba raises what it likes where it finds no folder for its cache
            found["dglmnet"], found["failure"] = None, f"{type(error).__name__}: {error}"
        return found

    return look


def check_versions_here() -> list[Row]:
    found = read_versions()(None, _by_metadata())
    return [_compare(package, {"here": found}) for package in EQUAL_PARTS]


def check_versions(cluster: Cluster) -> list[Row]:
    """A row for each package. Workers that cannot load dglmnet, or have another, are noted as unable."""
    packages = _by_metadata()
    found = {"here": read_versions()(None, packages), "scheduler": cluster.ask_scheduler(read_versions(), packages)}
    found |= cluster.ask(read_versions(), packages, patience=PATIENCE_SECONDS)
    known = {name: answer for name, answer in found.items() if not isinstance(answer, Failure)}
    able = {name for name, answer in known.items() if answer["dglmnet"] == known["here"]["dglmnet"]}
    cluster.unable |= {address for address, name in cluster.names.items() if name not in able}
    silent = [
        Row("versions", name, answer.reason, WRONG, "see its log; restart it or end it")
        for name, answer in found.items()
        if isinstance(answer, Failure)
    ]
    return [*silent, *(_compare(package, known) for package in EQUAL_PARTS)]


def _by_metadata() -> list[str]:
    return [name for name in EQUAL_PARTS if name not in ("python", "dglmnet")]


def _compare(package: str, found: Mapping[str, dict[str, Any]]) -> Row:
    holders: dict[str | None, list[str]] = {}
    for name, versions in found.items():
        holders.setdefault(versions[package], []).append(name)
    if None in holders:
        return _missing(package, holders[None], found)
    if len(holders) == 1:
        return Row(package, "everywhere" if len(found) > 1 else "here", str(next(iter(holders))), OK)
    where = _listed([name for name, versions in found.items() if versions[package] != found["here"][package]])
    said = "; ".join(f"{version} on {_listed(names)}" for version, names in holders.items())
    parts = EQUAL_PARTS[package]
    if len({tuple(str(version).split(".")[:parts]) for version in holders}) > 1:
        return Row(package, where, said, WRONG, f"install the same {package} everywhere: {_reason(package)}")
    return Row(package, where, said, WARN, "this works; the same version everywhere is one thing less to think of")


def _missing(package: str, names: list[str], found: Mapping[str, dict[str, Any]]) -> Row:
    failure = next((found[name]["failure"] for name in names if package == "dglmnet"), "")
    said = f"cannot be loaded{f': {failure}' if failure else ''}"
    remedy = f"install {package} there, in the same version as here"
    if "cach" in failure:
        remedy = "numba finds no folder that it may write to: set NUMBA_CACHE_DIR to one, on every worker"
    return Row(package, _listed(names), said, WRONG, remedy)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _reason(package: str) -> str:
    return {
        "python": "functions travel as bytecode, which another minor version does not run",
        "dask": "graphs of one release are not read by another",
        "distributed": "messages of one release are not read by another",
        "cloudpickle": "what one major version writes, another may not read",
        "numpy": "arrays of one major version may not be read by another",
        "dglmnet": "jobs refuse workers of another version",
    }[package]
