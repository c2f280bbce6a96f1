"""The words of a report: the summary for people who have not read the paper, and what they must know before it.

Everything here is plain text; the template escapes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.metrics import NUMBER, TEST, Metric, find_metric, metrics_in
from pipeline.report.data import Judgement, RunData, relative_gap
from pipeline.report.format import count, duration, lambda_hint, metric, metric_title, number, percent
from pipeline.summary import ONE_LABEL, has_one_label, why_none
from transforms.storage import redact


@dataclass(frozen=True)
class Notice:
    """What a reader must know before the figures, and the command that mends it."""

    text: str
    command: str


@dataclass(frozen=True)
class Tile:
    """A figure that stands out: what it is, the value, and a few words."""

    label: str
    value: str
    note: str


def lambda_text(data: RunData, row: dict[str, Any]) -> str:
    hint = lambda_hint(row["lambda"], data.lambda_max)
    return f"{number(row['lambda'])} = {hint}" if hint else number(row["lambda"])


def title_of(data: RunData) -> str:
    """The data set's name, without its folders; the run's, where the data set lies in the run's folder."""
    folder, _, name = redact(data.record.dataset.path).rstrip("/").rpartition("/")
    run = data.model.name.rstrip("/").rpartition("/")[2]
    return run if folder.rpartition("/")[2] == run else name or "data set"


METHODS = {"logistic": "logistic regression", "squared": "linear regression", "probit": "probit regression"}


def method(data: RunData) -> str:
    """What was fitted."""
    penalty = "L1-regularised" if data.record.option("l1_ratio") == 1.0 else "Elastic-net"
    return f"{penalty} {METHODS[data.record.loss]}"


def metrics(data: RunData) -> list[Metric]:
    """What the models were judged by."""
    return [find_metric(name) for name in data.metrics]


def summary(data: RunData) -> list[str]:
    """What came out, for people who have not read the paper."""
    return [_what_was_done(data), _what_is_best(data), _how_sure(data)]


def _what_was_done(data: RunData) -> str:
    trained_on = data.record.dataset
    models = len(data.rows)
    data_words = f"{count(trained_on.examples, 'example')} with {count(trained_on.features, 'feature')}"
    done = f"This run trained {count(models, 'model')} on {data_words}."
    if models == 1:
        return done
    return f"{done} Each has a weaker penalty λ than the one before, so that more features get a weight: simple first."


def _what_is_best(data: RunData) -> str:
    row = data.rows[data.featured]
    uses = f"{count(row['nonzeros'], 'feature')}{_of_all(data, row)}"
    if data.best is None or data.metric is None:
        why = "The last model" if row.get("bic") is None else "The model with the lowest BIC on the training data"
        lead = "No data have chosen a model" if data.record.test else "No test data have been scored yet"
        if data.record.evaluation is not None:
            lead = f"No model is best by the data that judge them: {why_none(data.model)}"
        return f"{lead}. {why}, number {row['index']}, uses {uses}.{_on_test_data(data, row)}"
    judged = data.record.evaluation
    where = "" if judged is None else f" on {count(judged.examples, f'{judges(data)} example')}"
    name = metric_title(data.metric)
    lead = "It has" if len(data.rows) == 1 else f"Model {row['index']} is best by {name}{where}: it has"
    return f"{lead} {name} {metric(row[data.metric])} and uses {uses}.{_on_test_data(data, row)}"


def judges(data: RunData) -> str:
    """What kind of examples the metrics of the path are of, and the best was chosen by."""
    judged = data.record.evaluation
    return "held-out" if judged is not None and judged.held_out else "test"


def judged_by(judged: Judgement) -> str:
    """The examples of an evaluation, for a list to choose from."""
    kind = "held-out" if judged.record.held_out else "test"
    chose = judged.prefix != TEST and judged.record.best is not None  # those of one class choose none
    part = "chose the model" if chose else "chose nothing"
    return f"{count(judged.record.examples, f'{kind} example')}, which {part}"


def no_curves(data: RunData) -> Notice | None:
    """Why there are no curves, and the command that makes them."""
    if data.judgements or data.record.label_kind == NUMBER:
        return None
    run = data.model.name
    command = f"dask-submit evaluate {run} TEST && dask-submit report {run}"
    if data.record.evaluation is None and data.record.test is None:
        return Notice("Curves and the confusion matrix need an evaluation:", command)
    return Notice("This run was evaluated by an earlier version, which stored no curves. Evaluate it again:", command)


def _on_test_data(data: RunData, row: dict[str, Any]) -> str:
    """The figures of data that judge the model and had no part in choosing it."""
    test = data.record.test
    found = [(one, row.get(TEST + one.name)) for one in metrics_in(data.rows, TEST)]
    if test is None or not found:
        return ""
    figures = ", ".join(f"{one.label} {metric(value)}" for one, value in found if value is not None)
    one_label = f" ({ONE_LABEL})" if has_one_label(data.model, TEST) else ""
    return f" On {count(test.examples, 'test example')}, which had no part in choosing it{one_label}: {figures}."


def _of_all(data: RunData, row: dict[str, Any]) -> str:
    features = data.record.dataset.features
    return f" ({percent(row['nonzeros'] / features)} of all)" if features and row["nonzeros"] else ""


def _how_sure(data: RunData) -> str:
    gap = relative_gap(data.rows[data.featured])
    if gap is None:
        proof = "How near it is to the optimum is not known: no gap was computed."
    elif gap == 0:
        proof = "How sure is that? It is proven that no other weights have a lower training objective."
    else:
        bound = percent(gap).removeprefix("< ")
        proof = (
            f"How sure is that? It is proven that no other weights lower its training objective by more than {bound}."
        )
    stopped = sum(row.get("converged") is False for row in data.rows)
    if stopped:
        return f"{proof} {count(stopped, 'model')} stopped at the limit of rounds, before the accuracy asked for."
    if any(row.get("converged") is None for row in data.rows):
        return proof
    return f"{proof} {'All models' if len(data.rows) > 1 else 'It'} reached the accuracy asked for."


def tiles(data: RunData) -> list[Tile]:
    """The figures of the model that the report speaks of first."""
    row = data.rows[data.featured]
    features = data.record.dataset.features
    found = []
    if data.metric is not None and data.best is not None:
        label = f"{judges(data).capitalize()} {metric_title(data.metric)}"
        found.append(Tile(label, metric(row[data.metric]), f"the best: model {row['index']}"))
    found += _test_tile(data, row)
    found += [
        Tile("Nonzeros", f"{row['nonzeros']:,}", f"of {features:,} features" if features else "features with a weight"),
        Tile("Penalty λ", number(row["lambda"]), lambda_hint(row["lambda"], data.lambda_max) or "of this model"),
        Tile("Relative gap", percent(relative_gap(row)), "proven bound"),
        Tile("Models", _models(data), _rounds(data)),
        Tile("Time to fit", duration(_fit_seconds(data)), _pace(data)),
    ]
    return found


def _test_tile(data: RunData, row: dict[str, Any]) -> list[Tile]:
    """What test data say of the model, by the metric that it was chosen by."""
    name = data.metric or data.model.metric
    value = row.get(TEST + name)
    if data.record.test is None or value is None:
        return []
    return [Tile(f"Test {metric_title(name)}", metric(value), "chose nothing")]


def _models(data: RunData) -> str:
    done = len(data.rows)
    return f"{done}" if data.complete or not data.planned else f"{done} of {data.planned}"


def _rounds(data: RunData) -> str:
    return count(sum(row["rounds"] or 0 for row in data.rows), "round") + " in all"


def _fit_seconds(data: RunData) -> float:
    return float(sum(row["seconds"] or 0.0 for row in data.rows))


def _pace(data: RunData) -> str:
    return f"{duration(_fit_seconds(data) / len(data.rows))} a model"


def stage_seconds(data: RunData) -> dict[str, float]:
    """Seconds of each stage, in the order they ran; of a fit that did not say, the sum over its λ."""
    stages = {name: float(value) for name, value in data.record.seconds.items() if value is not None}
    if "fit" not in stages:
        stages["fit"] = _fit_seconds(data)
    order = ["compile", "convert", "fit", "evaluate"]
    return {name: stages[name] for name in sorted(stages, key=lambda s: order.index(s) if s in order else 9)}


def notices(data: RunData) -> list[Notice]:
    found = []
    run = data.model.name
    if not data.complete:
        planned = f"{len(data.rows)} of {data.planned} models are" if data.planned else "What is done is"
        dataset = redact(data.record.dataset.path)
        text = f"This run is unfinished: {planned} here. Continue it with the options it was begun with:"
        found.append(Notice(text, f"dask-submit fit {dataset} --output {run} --resume"))
    if not data.metrics:
        text = "This run has not been evaluated, so there are no plots of quality. To get them, and a new report:"
        found.append(Notice(text, f"dask-submit evaluate {run} TEST && dask-submit report {run}"))
    return found
