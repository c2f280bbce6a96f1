"""The comparison's table and plot, from the JSON files of its results.

python -m benchmarks.report benchmarks/results
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.peers import NAMES, OURS
from benchmarks.plot import draw
from benchmarks.standing import Reached, Standing, standings

HEAD = (
    "| solver | version | to 1e-3, s | to 1e-4, s | CPU to 1e-4, s | × ours | λ within 1e-4 | worst | remark |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)


def write_report(folder: Path) -> None:
    """Write table.md and plot.png beside the results."""
    sets = read_results(folder)
    (folder / "table.md").write_text("\n".join(table(found) for found in sets))
    draw(sets, folder / "plot.png")


def read_results(folder: Path) -> list[list[Standing]]:
    """For each data set, how the peers stand, ours first. Results of an older problem than the newest are left out."""
    found: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        found.setdefault(result["problem"]["name"], []).append((path.stat().st_mtime, result))
    sets = []
    for dated in found.values():
        newest = max(dated, key=lambda one: one[0])[1]["problem"]["key"]
        results = [result for _, result in dated if result["problem"]["key"] == newest]
        sets.append(standings(sorted(results, key=lambda result: NAMES.index(result["peer"]))))
    return sorted(sets, key=lambda peers: bool(peers[0].result["problem"]["generated"]))


def table(peers: list[Standing]) -> str:
    """The Markdown of one data set."""
    about = peers[0].result["problem"]
    ours = next((peer for peer in peers if peer.result["peer"] == OURS), None)
    rows = "".join(row(peer, ours) for peer in peers)
    told = f"{summary(ours)}\n" if ours is not None and ours.result["fits"] else ""
    return f"### {title(about)}\n\n{certified(about)}\n\n{HEAD}{rows}\n{told}"


def title(about: dict[str, Any]) -> str:
    made = " look-alike" if about["generated"] else ""
    size = f"{about['examples']:,} × {about['features']:,}, {about['nonzeros'] / 1e6:.1f} M nonzeros"
    return f"{about['name']}{made}: {size}"


def certified(about: dict[str, Any]) -> str:
    ks = np.round(np.log2(about["lambda_max"] / np.array(about["lambdas"]))).astype(int)
    between = " and " if ks.size == 2 else " … "
    return (
        f"λmax/2^{ks[0]}{between}λmax/2^{ks[-1]}; the best objectives are certified "
        f"by duality gaps of {max(about['gap']):.1e} at the most, relatively."
    )


def row(peer: Standing, ours: Standing | None) -> str:
    result = peer.result
    loose, tight = peer.reached(1e-3), peer.reached(1e-4)
    cells = [
        f"**{result['label']}**" if result["peer"] == OURS else result["label"],
        result.get("version", "–"),
        _seconds(loose, result),
        _seconds(tight, result),
        f"{tight.cpu:.2f}" if tight.whole else "–",
        _ratio(tight, ours, result),
        f"{tight.count} of {peer.best.size}",
        f"{peer.worst:.0e}" if np.isfinite(peer.worst) else "–",
        remark(result),
    ]
    return f"| {' | '.join(cells)} |\n"


def remark(result: dict[str, Any]) -> str:
    """Why there is nothing, or not all."""
    status, reason = result["status"], result.get("reason", "")
    if status == "limit":
        return f"limit: {reason}"
    if status != "done":
        return f"{status}: {reason}" if status != "unfit" else str(reason)
    return str(result["errors"][-1]["reason"]) if "errors" in result else ""


def _seconds(reached: Reached, result: dict[str, Any]) -> str:
    if reached.whole:
        return f"{reached.wall:.2f}"
    if not result["fits"]:
        return "–"
    return f"> {reached.wall:.0f}" if result["status"] == "limit" else "not reached"


def _ratio(reached: Reached, ours: Standing | None, result: dict[str, Any]) -> str:
    base = ours.reached(1e-4) if ours is not None else None
    if base is None or not base.whole or not result["fits"]:
        return "–"
    if reached.whole:
        return f"{reached.wall / base.wall:.1f}"
    return f"> {reached.wall / base.wall:.1f}" if result["status"] == "limit" else "–"


def summary(ours: Standing) -> str:
    """What only our own results tell: passes over the data, gaps, and the longer path."""
    default = ours.result.get("after")
    if not default:
        return "Ours at the default tolerance: not measured within the limit.\n"
    seconds, rounds, gap, count = default["seconds"], default["rounds"], default["gap"], ours.best.size
    text = (
        f"Ours at the default tolerance, 1e-4: {sum(seconds[:count]):.2f} s, {np.mean(rounds[:count]):.1f} rounds "
        f"per λ, {sum(rounds[:count])} passes over the data, relative gap {max(gap[:count]):.1e} at the most.\n"
    )
    if len(seconds) == 20:
        text += (
            f"The 20-point path: {sum(seconds):.2f} s, {sum(seconds) / sum(seconds[:10]):.1f} times its first ten "
            f"({sum(seconds[:10]):.2f} s), {sum(rounds)} passes, gap {max(gap):.1e} at the most.\n"
        )
    return text


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path), default=Path("benchmarks/results"))
def main(folder: Path) -> None:
    """Write the table and the plot anew, and print the table."""
    write_report(folder)
    click.echo((folder / "table.md").read_text())


if __name__ == "__main__":
    main()
