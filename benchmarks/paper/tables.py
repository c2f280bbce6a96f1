"""The experiment as Markdown: Table 3 with the paper's own numbers, its claims, Vowpal Wabbit beside us, sparsity."""

from __future__ import annotations

from benchmarks.paper.claims import HAIR, LIKE, Found, cloud_of, compare, times


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
            if not grid:
                continue
            for mode in ("paper", "default"):
                quality = compare(one.paths[mode], cloud_of(grid))
                rows.append(
                    [
                        one.name,
                        label,
                        mode,
                        f"{quality.above:,} of {quality.compared:,}",
                        f"{quality.most:+.4f}",
                        f"{quality.at:,}",
                        f"{quality.best_of_path:.4f}",
                        f"{quality.best:.4f}",
                    ]
                )
    head = ["data", "models", "against mode", f"better by > {HAIR:g}", "most", "at nonzeros", "best d-GLMNET", "best"]
    text = "### Quality at each sparsity\n\nTest AUPRC of each model less that of the path with as many nonzeros.\n\n"
    return text + _table(head, rows)


def _shares(found: list[Found]) -> str:
    rows = []
    for one in found:
        mine, theirs = times(one, "paper"), one.published
        convert = [f"{mine.convert:.1f} s", f"{100 * mine.convert / mine.cpu:.0f} %"]
        iterations = [f"{mine.iterations}", "-" if theirs is None else f"{theirs.iterations}"]
        rows.append([one.name, f"{100 * mine.search:.1f} %", *convert, *iterations])
    head = ["data", "line search (paper: 5 to 25 %)", "transposition", "of the path (paper: 1 to 5 %)"]
    return "### Claims about time, in CPU seconds\n\n" + _table([*head, "iterations", "the paper's"], rows)


def _vw(found: list[Found]) -> str:
    rows = []
    for one in found:
        for (rate, decay), models in one.vw.items():
            apart = max(abs(row["auprc"] - row["ours"]) for row in models)
            ours = sum(row["our_cpu"] for row in models) / len(models)
            theirs = sum(row["cpu"] for row in models) / len(models)
            rows.append(
                [
                    one.name,
                    f"{rate:g}",
                    f"{decay:g}",
                    f"{len(models)}",
                    f"{apart:.1e}",
                    f"{1000.0 * ours:.1f}",
                    f"{1000.0 * theirs:.1f}",
                    f"{theirs / ours:.1f}",
                ]
            )
    if not rows:
        return ""
    head = [
        "data",
        "rate",
        "decay",
        "models",
        "largest difference of AUPRC",
        "CPU ms a pass, ours",
        "Vowpal Wabbit",
        "ratio",
    ]
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
                f"λmax/2^{row['index'] + 1}",
                f"{row['nonzeros']:,}",
                f"{row['auprc']:.4f}",
                f"{row['objective']:.8g}",
                f"{gap:.1e}",
                f"{row['rounds']}{'' if row['converged'] else ' (limit)'}",
            ]
        )
    head = ["λ", "nonzeros", "test AUPRC", "objective", "relative gap", "iterations"]
    return f"### {found.name}: the path in paper mode\n\n" + _table(head, rows)
