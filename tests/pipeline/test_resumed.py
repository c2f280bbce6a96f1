"""A run that was cut and resumed ends as if it had not been, and any cluster gives the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from distributed import Client

from pipeline import PathOptions, Watcher, fit_path
from pipeline.stored import read_state
from solver import RoundRecord, Solution
from transforms import Dataset, UserError, from_arrays
from transforms.storage import open_storage

PATH = PathOptions(length=8)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    rng = np.random.default_rng(3)
    X = sp.random_array((300, 90), density=0.15, rng=rng, format="csc", dtype=np.float32)
    X.data = rng.normal(size=X.nnz).astype(np.float32)
    X = sp.csc_array(sp.hstack([X, sp.csc_array(rng.normal(size=(300, 9)).astype(np.float32))]))
    y = np.where(X @ (rng.normal(size=99) * (rng.random(99) < 0.3)) + rng.normal(size=300) > 0, 1, -1)
    return from_arrays(X, y, str(tmp_path_factory.mktemp("data") / "dataset"), partitions=6)


class Cut(Watcher):
    """Ends the run in the first round of a λ, as a crash would."""

    def __init__(self, after: int) -> None:
        self._left = after

    def round(self, record: RoundRecord) -> None:
        if self._left == 0:
            raise KeyboardInterrupt

    def solution(self, solution: Solution) -> None:
        self._left -= 1


def cut_run(dataset: Dataset, run: Path, after: int, **how: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit_path(dataset, str(run), path=PATH, watcher=Cut(after), **how)
    assert pq.read_table(run / "path.parquet").num_rows == after


def contents(run: Path) -> dict[str, Any]:
    """What must be equal between runs: everything but times."""
    tables = {}
    for name in ("path", "coefficients", "trace"):
        table = pq.read_table(run / f"{name}.parquet")
        tables[name] = table.drop_columns([c for c in table.column_names if "seconds" in c]).to_pydict()
    return tables


@pytest.mark.parametrize("residency", ["memory", "stream"])
def test_a_run_that_is_cut_again_and_again_ends_with_the_same_bits(
    client: Client, dataset: Dataset, tmp_path: Path, residency: str
) -> None:
    whole, cut, how = tmp_path / "whole", tmp_path / "cut", {"residency": residency, "client": client}
    fit_path(dataset, str(whole), path=PATH, **how)
    for after in (1, 2, 3):
        with pytest.raises(KeyboardInterrupt):
            fit_path(dataset, str(cut), path=PATH, resume=after > 1, watcher=Cut(after), **how)
    assert (cut / "state.parquet").exists()
    fit_path(dataset, str(cut), path=PATH, resume=True, **how)
    assert contents(cut) == contents(whole)
    assert sorted(f.name for f in cut.iterdir()) == sorted(f.name for f in whole.iterdir())


def test_a_run_without_its_state_ends_the_same_within_the_tolerance(
    client: Client, dataset: Dataset, tmp_path: Path
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    fit_path(dataset, str(whole), path=PATH, client=client)
    cut_run(dataset, cut, 4, client=client)
    (cut / "state.parquet").unlink()
    fit_path(dataset, str(cut), path=PATH, client=client, resume=True)
    found, expected = contents(cut)["path"], contents(whole)["path"]
    assert found["objective"][:4] == expected["objective"][:4]
    assert found["objective"] == pytest.approx(expected["objective"], rel=1e-4)


def test_no_flipped_bit_of_a_state_is_taken_for_another_state(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    """Pages have checksums. A bit of the footer may have no meaning."""
    run = tmp_path / "run"
    cut_run(dataset, run, 4, client=client)
    fs, path = open_storage(str(run), None)
    content, refused = (run / "state.parquet").read_bytes(), 0
    before = read_state(fs, path, 4)
    assert before is not None
    rng = random.Random(1)
    for _ in range(200):
        flipped, at = bytearray(content), rng.randrange(len(content))
        flipped[at] ^= 1 << rng.randrange(8)
        (run / "state.parquet").write_bytes(flipped)
        try:
            found = read_state(fs, path, 4)
        except UserError as error:
            assert "state.parquet: damaged" in str(error) and "delete it" in str(error)
            refused += 1
            continue
        assert found is not None and found[1].keys() == before[1].keys()
        assert all(np.array_equal(found[1][name], before[1][name]) for name in before[1])
    assert refused > 100


def test_a_state_of_another_problem_is_refused_in_one_line(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cut_run(dataset, run, 3, client=client)
    table = pq.read_table(run / "state.parquet")
    others = pa.array([name != "stored" for name in table["name"].to_pylist()])
    pq.write_table(table.filter(others), run / "state.parquet")
    with pytest.raises(UserError, match=r"state\.parquet: damaged \(stored must have .*delete it to go on without"):
        fit_path(dataset, str(run), path=PATH, client=client, resume=True)


def test_any_number_of_workers_gives_the_same(dataset: Dataset, tmp_path: Path) -> None:
    """By default to the last bit, whatever the blocks are. With the paper's algorithm, of which they are a part, up to
    the order in which workers' sums are added."""
    found: list[dict[str, Any]] = []
    paper: list[dict[str, Any]] = []
    for workers in (1, 2, 5):
        quiet = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
        with Client(
            processes=False, n_workers=workers, threads_per_worker=1, memory_limit=0, set_as_default=False, **quiet
        ) as client:
            for algorithm, blocks, runs in (("default", None, found), ("paper", 3, paper)):
                run = tmp_path / f"{algorithm}-{workers}"
                fit_path(dataset, str(run), algorithm=algorithm, blocks=blocks, path=PATH, client=client)
                runs.append(contents(run))
    assert found[0] == found[1] == found[2]
    for other in paper[1:]:
        assert other["coefficients"]["feature"] == paper[0]["coefficients"]["feature"]
        for table, column in (("path", "objective"), ("coefficients", "weight")):
            assert other[table][column] == pytest.approx(paper[0][table][column], rel=1e-9)


def test_worker_processes_give_what_threads_give(
    client: Client, process_client: Client, dataset: Dataset, tmp_path: Path
) -> None:
    fit_path(dataset, str(tmp_path / "threads"), path=PATH, client=client)
    fit_path(dataset, str(tmp_path / "processes"), path=PATH, client=process_client)
    threads, processes = contents(tmp_path / "threads"), contents(tmp_path / "processes")
    assert processes["coefficients"]["feature"] == threads["coefficients"]["feature"]
    # A process that compiles a kernel and one that loads it may differ in the last bits.
    assert processes["path"]["objective"] == pytest.approx(threads["path"]["objective"], rel=1e-9)
