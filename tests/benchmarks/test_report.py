"""The comparison's table and plot, from measurements written down here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pip install 'dglmnet[bench]'")

from benchmarks.report import read_results, table, write_report
from benchmarks.standing import Standing, standings

PROBLEM = {
    "name": "dna",
    "key": "dna-2-1e-06-generated",
    "generated": True,
    "examples": 1000,
    "features": 80,
    "nonzeros": 20_000,
    "lambda_max": 64.0,
    "lambdas": [32.0, 16.0],
    "best": [100.0, 50.0],
    "gap": [1e-7, 9e-7],
}


def fit(tol: float, k: int, wall: float, excess: float) -> dict[str, Any]:
    objective = PROBLEM["best"][k] * (1 + excess)  # type: ignore[index]
    return {"rung": {"tol": tol}, "lambda_index": k, "wall": wall, "cpu": 2 * wall, "objective": objective}


def result(peer: str, fits: list[dict[str, Any]], *, warm: bool = False, **more: Any) -> dict[str, Any]:
    about = {"peer": peer, "label": peer, "warm": warm, "limit": 60.0, "problem": PROBLEM, "version": "1.0"}
    return {**about, "fits": fits, "status": "done", **more}


CUT = {"rung": {"tol": 0.01}, "lambda_index": 1, "wall": 30.0, "cut": True}
OURS = result(
    "dglmnet", [fit(0.1, 0, 0.5, 5e-4), fit(0.1, 1, 0.5, 5e-5), fit(0.01, 0, 1, 0), fit(0.01, 1, 1, 0)], warm=True
)
COLD = result("sklearn", [fit(0.1, 0, 1, 5e-5), fit(0.1, 1, 1, 5e-4), fit(0.01, 1, 4, 2e-5)])
SLOW = result(
    "spark", [fit(0.1, 0, 7, 1e-2), fit(0.1, 1, 9, 1e-2), fit(0.01, 0, 20, 1e-5), CUT], status="limit", reason="60 s"
)
NONE = result("dask_ml", [], status="unfit", reason="takes dense data only, here 480 GB")
ABSENT = result("snapml", [], status="not installed", reason="ERROR: no matching distribution")
ALL = [OURS, COLD, NONE, SLOW, ABSENT]


def stand(one: dict[str, Any]) -> Standing:
    return Standing(one, np.array(PROBLEM["best"]))


def test_a_path_counts_as_a_whole_with_one_setting() -> None:
    assert (stand(OURS).reached(1e-3).wall, stand(OURS).reached(1e-4).wall) == (1.0, 2.0)
    assert stand(OURS).reached(1e-4).cpu == 4.0


def test_a_solver_that_starts_cold_takes_the_cheapest_setting_for_each_lambda() -> None:
    assert (stand(COLD).reached(1e-3).wall, stand(COLD).reached(1e-4).wall) == (2.0, 5.0)
    np.testing.assert_allclose(stand(COLD).curve(), [(2.0, 5e-4), (5.0, 5e-5)], rtol=1e-6)


def test_of_repeated_runs_the_median_counts() -> None:
    turns = [[fit(0.1, 0, wall, 0), fit(0.1, 1, wall, 0)] for wall in (9.0, 1.0, 2.0)]
    reached = stand(result("dglmnet", [*turns[0], *turns[1], *turns[2]], warm=True)).reached(1e-4)
    assert (reached.wall, reached.cpu) == (4.0, 8.0)
    reached = stand(result("dglmnet", turns[0] + turns[1], warm=True)).reached(1e-4)
    assert reached.wall == 2.0  # a limit may end the repetition: of two, the shorter


def test_a_solver_that_was_cut_has_a_lower_bound_and_the_lambdas_it_reached() -> None:
    reached = stand(SLOW).reached(1e-4)
    assert (reached.whole, reached.wall, reached.count) == (False, 50.0, 1)
    assert stand(SLOW).worst == pytest.approx(1e-2)
    np.testing.assert_allclose(stand(SLOW).curve(), [(16.0, 1e-2)], rtol=1e-6)


def test_the_best_objective_is_the_smallest_that_anyone_found() -> None:
    better = result("celer", [fit(0.1, 0, 1, -1e-7), fit(0.1, 1, 1, 0)])
    assert standings([OURS, better])[0].best[0] == pytest.approx(100.0 * (1 - 1e-7), rel=1e-12)


def test_the_table_says_why_a_solver_has_no_times() -> None:
    rows = {line.split(" | ")[0].strip("| *"): line for line in table(standings(ALL)).splitlines() if " | " in line}
    assert "| 1.00 | 2.00 | 4.00 | 1.0 | 2 of 2 |" in rows["dglmnet"]
    assert "| 2.00 | 5.00 | 10.00 | 2.5 | 2 of 2 |" in rows["sklearn"]
    assert "| > 50 | > 50 | – | > 25.0 | 1 of 2 | 1e-02 | limit: 60 s |" in rows["spark"]
    assert rows["dask_ml"].endswith("| – | – | – | – | 0 of 2 | – | takes dense data only, here 480 GB |")
    assert rows["snapml"].endswith("| not installed: ERROR: no matching distribution |")


def test_the_report_is_made_from_the_files_and_leaves_out_results_of_another_problem(tmp_path: Path) -> None:
    for one in ALL:
        (tmp_path / f"dna.{one['peer']}.json").write_text(json.dumps(one))
    old = {**COLD, "peer": "vw", "problem": {**PROBLEM, "key": "dna-20-1e-06-generated"}}
    (tmp_path / "dna.vw.json").write_text(json.dumps(old))
    newest = tmp_path / "dna.dglmnet.json"
    newest.touch()
    write_report(tmp_path)
    assert "vw" not in {peer.result["peer"] for peer in read_results(tmp_path)[0]}
    assert (tmp_path / "table.md").read_text().startswith("### dna look-alike: 1,000 × 80")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
