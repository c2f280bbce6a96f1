"""What a run is worth, in a few sentences for somebody who has not read the paper; read from the run folder."""

from __future__ import annotations

from typing import Any

from pipeline.choice import choose_model
from pipeline.metrics import NUMBER, TEST, find_metric, metrics_for, shown
from pipeline.model import PathModel
from pipeline.run_record import EvaluationRecord
from pipeline.stored import REPORT

ONE_LABEL = "all of these examples have one label"


def summary_lines(run: str, storage_options: dict[str, Any] | None = None) -> list[str]:
    """How many models, the best, how good and how exact it is, where the report is, and what to do next."""
    model = PathModel.load(run, storage_options)
    lines = [*made_lines(model), *judged_lines(model)]
    if not model.record.evaluation:
        if not model.record.test:
            lines.append(
                "The models were not judged: pass --test, or hold examples out with --validation-fraction 0.2."
            )
        choice = choose_model(model)
        lines.append(f"Chosen: model {choice.index}, {choice.why}.")
    where = model.name.rstrip("/")
    return [
        *lines,
        f"Report: {where}/{REPORT}",
        f"Next:   dask-submit predict {where} NEW.svm --output predictions.csv",
    ]


def made_lines(model: PathModel, at_work: str | None = None) -> list[str]:
    """What was fitted, and how many models are not as exact as was asked for, or not there yet.

    at_work: the process that writes the run.
    """
    data = model.record.dataset
    lines = [f"{len(model)} models of {data.examples:,} examples with {data.features:,} features are in {model.name}."]
    planned = len(model.record.lambdas or ())
    if not model.record.complete and at_work:
        lines.append(f"The run is at work, by {at_work}{f': {planned} are planned' if planned else ''}.")
    elif not model.record.complete:
        lines.append(f"The run is unfinished{f': {planned} are planned' if planned else ''}. Go on with --resume.")
    open_ = sum(row["converged"] is False for row in model.path)
    return lines + ([f"{open_} of them stopped at the limit of rounds: raise --max-rounds."] if open_ else [])


def judged_lines(model: PathModel) -> list[str]:
    """By what the models were judged, the best, how good and how exact it is; nothing if they were not."""
    judged = model.record.evaluation
    chosen = [] if judged is None else [_judged_by(model, judged), *_best(model, model.best(), judged.metric)]
    return [*chosen, *_tested(model)]


def _tested(model: PathModel) -> list[str]:
    """The figures of data that chose nothing, of the model that is taken."""
    test = model.record.test
    if test is None:
        return []
    row = model.path[choose_model(model).index]
    share = ", which chose nothing" if model.record.evaluation else ""
    share += f" ({ONE_LABEL})" if has_one_label(model, TEST) else ""
    return [
        f"Judged by {test.examples:,} examples of the test data{share}:",
        f"  test:      {_quality(model, row, TEST)}",
    ]


def _quality(model: PathModel, row: dict[str, Any], prefix: str = "") -> str:
    found = [(one.label, row.get(prefix + one.name)) for one in metrics_for(model.label_kind)]
    return ", ".join(f"{label} {shown(value)}" for label, value in found if value is not None)


def _judged_by(model: PathModel, judged: EvaluationRecord) -> str:
    share = judged.held_out
    which = f"that were held out of training ({100 * share:g} %)" if share else "of the test data"
    chose = "The best was chosen" if share else "They were judged, and the best was chosen,"
    chose = "They were judged" if model.best() is None else chose
    line = f"{chose} by {judged.examples:,} examples {which}."
    if judged.unseen_nonzeros:
        unseen = 100 * judged.unseen_nonzeros / judged.nonzeros
        line += f" Of what these say, {unseen:.2g} % is about features that training did not see."
    if judged.bad_lines:
        line += f" {judged.bad_lines:,} bad lines were left out."
    return line


def _best(model: PathModel, best: int | None, metric: str) -> list[str]:
    label = find_metric(metric).label
    if best is None:
        return [f"None is best: {why_none(model)}. predict takes model {choose_model(model).index}, by its BIC."]
    row = model.path[best]
    features = model.record.dataset.features
    lines = [
        f"Best by {label}: model {best} (λ = {row['lambda']:.5g}), which needs {row['nonzeros']:,} of "
        f"the {features:,} features.",
        f"  quality:   {_quality(model, row)}",
        *_exactness(row),
    ]
    if best == len(model) - 1 > 0:
        lines.append("  It is the last of the path: a longer one (--path-length) may hold a better.")
    return lines


def why_none(model: PathModel) -> str:
    """Why an evaluation chose no model."""
    if has_one_label(model):
        return ONE_LABEL
    return f"{find_metric(model.metric).label} is not known of all models"


def has_one_label(model: PathModel, prefix: str = "") -> bool:
    """Are the examples of an evaluation of one class? prefix: TEST, of data that chose nothing."""
    return model.label_kind != NUMBER and all(row.get(f"{prefix}auc") is None for row in model.path)


def _exactness(row: dict[str, Any]) -> list[str]:
    """The certificate, in words."""
    if row["gap"] is None:
        return []
    gap = row["gap"] / row["objective"] if row["objective"] else 0.0
    return [f"  exactness: objective at most {100 * gap:.2g} % above the optimum (relative gap {gap:.1e})"]
