"""The experiment as Markdown: Table 3 with the paper's own numbers, its claims, Vowpal Wabbit beside us, sparsity."""

from __future__ import annotations

from benchmarks.paper.claims import HAIR, LIKE, Found, cloud_of, compare, published_ns, times
from benchmarks.paper.results import Rows
from benchmarks.paper.runs import on_grid
from benchmarks.paper.settings import READINGS


def describe(found: list[Found]) -> str:
    """All tables."""
    pieces = [_sets(found), _times(found), _quality(found), _shares(found), _vw(found), _precautions(found)]
    pieces += [_path(one) for one in found]
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _sets(found: list[Found]) -> str:
    rows = []
    for one in found:
        about = one.about
        kind = "look-alike" if about["generated"] else "real"
        rows.append(
            [
                one.name,
                kind,
                f"{about['examples']:,} / {about['test_examples']:,}",
                f"{about['features']:,}",
                f"{about['nonzeros']:,}",
                f"{len(cloud_of(one.online)):,}",
                f"{len(cloud_of(one.vw)):,}",
            ]
        )
    head = ["data", "", "examples (train/test)", "features", "nonzeros", "online models", "Vowpal Wabbit models"]
    return "### Data\n\n" + _table(head, rows)


def _times(found: list[Found]) -> str:
    rows = []
    for one in found:
        for mode in ("paper", "default"):
            mine = times(one, mode)
            share = f"{100 * mine.search:.1f} %" if mode == "paper" else "-"
            cells = [
                f"{mine.iterations}",
                f"{mine.cpu:.1f}",
                share,
                f"{1e3 * mine.each:.0f}",
                f"{1e3 * mine.online:.0f}",
            ]
            rows.append([one.name, f"{mode} mode", *cells])
        if one.published:
            theirs, like = one.published, LIKE.get(one.name, one.name)
            each = f"{1e3 * theirs.seconds / theirs.iterations:,.0f}"
            share = f"{100 * theirs.search:.0f} %"
            cells = [f"{theirs.iterations}", f"{theirs.seconds:,}", share, each, f"{1e3 * theirs.vw_seconds:,.0f}"]
            rows.append([one.name, f"the paper's {like}, 16 servers, by the clock", *cells])
    head = ["data", "d-GLMNET", "iterations", "CPU s", "line search", "ms an iteration", "online, ms a pass"]
    return "### Table 3: CPU seconds\n\n" + _table(head, rows)


def _quality(found: list[Found]) -> str:
    rows = []
    for one in found:
        for label, grid in (("online", one.online), ("Vowpal Wabbit", one.vw)):
            for reading in READINGS:
                cloud = cloud_of(grid, reading)
                rows += [[one.name, label, reading, mode, *_compared(one, mode, cloud)] for mode in one.paths if cloud]
    head = ["data", "models", "decay read as", "against mode", f"better by > {HAIR:g}", "most", "at nonzeros"]
    text = "### Quality at each sparsity\n\nTest AUPRC of each model less that of the path with as many nonzeros.\n\n"
    return text + _table([*head, "best d-GLMNET", "best"], rows)


def _compared(found: Found, mode: str, cloud: Rows) -> list[str]:
    quality = compare(found.paths[mode], cloud)
    share = f"{quality.above:,} of {quality.compared:,}"
    return [share, f"{quality.most:+.4f}", f"{quality.at:,}", f"{quality.best_of_path:.4f}", f"{quality.best:.4f}"]


def _shares(found: list[Found]) -> str:
    rows = []
    for one in found:
        mine, theirs, nonzeros = times(one, "paper"), one.published, one.about["nonzeros"]
        search = [f"{100 * mine.search:.1f} %", f"{100 * mine.search_beside:.1f} %"]
        each = [f"{1e9 * mine.each / nonzeros:.1f}", "-" if theirs is None else f"{published_ns(theirs):.0f}"]
        share = f"{100 * mine.convert / mine.cpu:.0f} %"
        convert = [f"{mine.convert:.1f}", f"{1e9 * mine.convert / nonzeros:.0f}", share]
        iterations = [f"{mine.iterations}", "-" if theirs is None else f"{theirs.iterations}"]
        rows.append([one.name, *search, *each, *convert, *iterations])
    head = ["data", "line search (paper: 5 to 25 %)", "16 blocks side by side"]
    head += ["iteration, ns a nonzero", "the paper's"]
    head += ["transposition, s", "ns a nonzero", "of the path (paper: 1 to 5 %)", "iterations", "the paper's"]
    return "### Claims about time, in CPU seconds\n\n" + _table(head, rows)


def _vw(found: list[Found]) -> str:
    rows = []
    for one in found:
        for steps, models in one.vw.items():
            apart = max(abs(row["auprc"] - row["ours"]) for row in models)
            ours = sum(row["our_cpu"] for row in models) / len(models)
            theirs = sum(row["cpu"] for row in models) / len(models)
            settings = [f"{steps.rate:g}", f"{steps.reading} {steps.by:g}", f"{len(models)}"]
            cpu = [f"{1e3 * ours:.1f}", f"{1e3 * theirs:.1f}", f"{theirs / ours:.1f}"]
            rows.append([one.name, *settings, f"{apart:.1e}", *cpu])
    if not rows:
        return ""
    head = ["data", "rate", "decay", "models", "largest difference of AUPRC"]
    head += ["CPU ms a pass, ours", "Vowpal Wabbit", "ratio"]
    return "### One worker against the real Vowpal Wabbit\n\n" + _table(head, rows)


def _precautions(found: list[Found]) -> str:
    shown, rows = (4, 8, 12, 16, 20), []
    for one in found:
        for name, path in one.precautions.items():
            counts = [f"{path[k - 1]['nonzeros']:,}" for k in shown if k <= len(path)]
            rows.append([one.name, name, *counts, f"{sum(row['rounds'] for row in path)}"])
    if not rows:
        return ""
    head = ["data", "precautions", *(f"λmax/2^{k}" for k in shown), "iterations"]
    return "### Nonzeros with the two precautions of the line search on and off, 16 blocks\n\n" + _table(head, rows)


def _path(found: Found) -> str:
    """The path of paper mode, λ by λ."""
    rows = []
    for row in found.paths["paper"]:
        gap = row["gap"] / row["objective"] if row["objective"] else 0.0
        rows.append(
            [
                f"λmax/2^{row['halvings']:g}{'' if on_grid(row) else ' (added)'}",
                f"{row['nonzeros']:,}",
                f"{row['auprc']:.4f}",
                f"{row['objective']:.8g}",
                f"{gap:.1e}",
                f"{row['rounds']}{'' if row['converged'] else ' (limit)'}",
            ]
        )
    head = ["λ", "nonzeros", "test AUPRC", "objective", "relative gap", "iterations"]
    return f"### {found.name}: the path in paper mode\n\n" + _table(head, rows)
