"""The tables of a report: a row per λ as in the paper's Table 3, the strongest features, and what run.json says.

Everything here is plain text; the template escapes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.metrics import TEST, metrics_in
from pipeline.report.data import RunData, relative_gap, strongest, weights_along
from pipeline.report.format import NOTHING, fraction, metric, metric_title, number, percent, short
from pipeline.report.words import lambda_text
from transforms.storage import redact

FEATURE_ROWS = 20

Pair = tuple[str, str]


@dataclass(frozen=True)
class Cell:
    text: str
    note: str = ""  # shown smaller, beside it


def search_share(row: dict[str, Any]) -> float | None:
    spent, search = row.get("seconds"), row.get("line_search_seconds")
    return None if search is None or not spent else min(search / spent, 1.0)


def path_columns(data: RunData) -> list[str]:
    columns = ["Model", "λ", "of λmax", "Nonzeros", "Rounds", "Seconds", "Search", "Objective", "Rel. gap"]
    intercept = ["Intercept"] if data.record.option("intercept") else []
    return columns[:4] + intercept + columns[4:] + [metric_title(name) for name in data.metrics] + _tested(data)


def path_cells(data: RunData, row: dict[str, Any]) -> list[Cell]:
    """A row of the table, as the paper's Table 3 has it; the first is the row's header."""
    rounds = "not converged" if row.get("converged") is False else ""
    return [
        Cell(str(row["index"]), "best" if row["index"] == data.best else ""),
        Cell(number(row["lambda"])),
        Cell(fraction(row["lambda"], data.lambda_max)),
        Cell(f"{row['nonzeros']:,}"),
        *([Cell(_signed(row["intercept"] or 0.0))] if data.record.option("intercept") else []),
        Cell(f"{row['rounds']:,}", rounds),
        Cell(f"{row['seconds']:,.2f}"),
        Cell(percent(search_share(row))),
        Cell(number(row["objective"], 6)),
        Cell(short(relative_gap(row))),
        *[Cell(metric(row.get(name))) for name in data.metrics],
        *[Cell(metric(row.get(TEST + one.name))) for one in metrics_in(data.rows, TEST)],
    ]


def _tested(data: RunData) -> list[str]:
    """Columns of data that judge the models and chose none."""
    return [f"Test {metric_title(one.name)}" for one in metrics_in(data.rows, TEST)]


def feature_rows(data: RunData) -> list[list[str]]:
    """The strongest features of the model that the report speaks of first."""
    features = strongest(data, data.featured, FEATURE_ROWS)
    weights = weights_along(data, features)
    found = []
    for feature, along in zip(features, weights, strict=True):
        first = next(k for k, weight in enumerate(along) if weight)
        weight = _signed(along[data.featured]) if along[data.featured] else "0"
        named = [data.names.get(feature, NOTHING)] if data.names else []
        found.append([str(feature), *named, weight, lambda_text(data, data.rows[first])])
    return found


@dataclass(frozen=True)
class Balance:
    """How many examples of each class some data have; their weights, if they have weights."""

    name: str
    positives: float
    negatives: float

    @property
    def share(self) -> float:
        return self.positives / (self.positives + self.negatives)


def balances(data: RunData) -> list[Balance]:
    """Of the data that models were trained on, as far as the run knows, and judged by."""
    about, found = data.record.dataset, []
    if about.positives is not None and about.examples:
        found.append(Balance("Training", about.positives, about.examples - about.positives))
    for judged in data.judgements:
        curve = next((one for one in judged.curves if one is not None), None)
        if curve is not None:
            name = "Held-out" if judged.record.held_out else "Choosing" if len(data.judgements) > 1 else "Test"
            name = "Test" if judged.prefix else name
            weighted = " (by weight)" if judged.record.weighted else ""
            found.append(Balance(name + weighted, float(curve.positives.sum()), float(curve.negatives.sum())))
    return found


def class_names(data: RunData) -> tuple[str, str]:
    """The labels of the two classes as they were in training, the positive one first."""
    names = data.record.dataset.label_map
    return ("+1", "−1") if names is None else (f"{names.positive:g}", f"{names.negative:g}".replace("-", "−"))


def _signed(weight: float) -> str:
    return f"{weight:+.4f}".replace("-", "−")


def data_pairs(data: RunData) -> list[Pair]:
    about = data.record.dataset
    counts = (
        ("Examples", about.examples),
        ("Features", about.features),
        ("Nonzeros", about.nnz),
        ("Parts", about.partitions),
    )
    pairs = [("Data set", redact(about.path))]
    pairs += [(label, f"{amount:,}") for label, amount in counts if amount is not None]
    if about.hold_out:
        pairs.append(("Held out of the text", percent(about.hold_out)))
    names = about.label_map
    pairs.append(("Labels", "numbers" if names is None else f"{names.positive:g} is +1, {names.negative:g} is −1"))
    pairs.append(("Feature ids count from", str(about.index_base)))
    return [*pairs, ("SHA-256", about.sha256)]


def option_pairs(data: RunData) -> list[Pair]:
    pairs = [(name.replace("_", " "), _plain(value)) for name, value in data.record.options.items()]
    if data.record.blocks:
        pairs = [pair for pair in pairs if pair[0] != "blocks"] + [("blocks", str(len(data.record.blocks)))]
    if data.lambda_max is not None:
        pairs.append(("λmax", number(data.lambda_max)))
    return pairs


def evaluation_pairs(data: RunData) -> list[Pair]:
    about = data.record.evaluation
    if about is None or not data.metrics:
        return []
    inputs = "Judged by" if data.best is None else "Chosen by"
    pairs = [(inputs, redact(source["path"])) for source in about.inputs]
    pairs += [("Examples", f"{about.examples:,}"), ("Nonzeros", f"{about.nonzeros:,}")]
    if about.unseen_nonzeros is not None and about.nonzeros:
        pairs.append(("Of features unseen in training", percent(about.unseen_nonzeros / about.nonzeros)))
    if about.held_out:
        pairs.append(("Only what was held out", percent(about.held_out)))
    pairs.append(("Weighted", "yes" if about.weighted else "no"))
    pairs.append(("Best by", NOTHING if data.best is None else metric_title(about.metric)))
    test = data.record.test
    judged = [("Judged by", redact(source["path"])) for source in test.inputs] if test else []
    return [*pairs, *judged, *([("Examples of it", f"{test.examples:,}")] if test else [])]


def version_pairs(data: RunData) -> list[Pair]:
    return list((data.record.versions or {}).items())


def _plain(value: Any) -> str:
    if value is None or value == []:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_plain(item) for item in value)
    return redact(f"{value:g}" if isinstance(value, float) else str(value))
