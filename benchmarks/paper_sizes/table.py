"""What an experiment took, next to the paper's row."""

from __future__ import annotations

from typing import Any

from benchmarks.paper_sizes.published import PUBLISHED
from benchmarks.paper_sizes.stages import LAMBDAS, STAGES, Experiment


def describe(experiment: Experiment) -> list[str]:
    """Lines of Markdown: the data, a row a stage, the fit against the paper's."""
    known = {stage: experiment.record.of(stage) for stage in STAGES if experiment.record.is_finished(stage)}
    lines = [f"**{experiment.name}**, scale {experiment.scale:g}: {_data(known)}", ""]
    lines += ["| stage | seconds | CPU, s | peak memory, GB | peak disk, GB | |", "|---|---|---|---|---|---|"]
    for stage, facts in known.items():
        remark = {"text": _text, "convert": _convert, "fit": _fit, "evaluate": _evaluate}[stage](known)
        numbers = (
            f"{facts['seconds']:.1f} | {facts['cpu']:.1f} | {facts['memory'] / 1e9:.2f} | {facts['disk'] / 1e9:.2f}"
        )
        lines.append(f"| {stage} | {numbers} | {remark} |")
    paper = PUBLISHED[experiment.name]
    size = f"{paper.rows:,} × {paper.features:,}, {paper.nonzeros:.1e} nonzeros, {paper.text_gb:g} GB of text"
    lines.append(f"| the paper | {paper.seconds:,.0f} | | | | {size}; {paper.iterations} iterations on 16 servers |")
    return lines


def _data(known: dict[str, dict[str, Any]]) -> str:
    data = known.get("convert")
    return f"{data['rows']:,} × {data['features']:,}, {data['nonzeros']:.2e} nonzeros" if data else "not converted yet"


def _text(known: dict[str, dict[str, Any]]) -> str:
    facts = known["text"]
    size = sum(facts[part]["text"] for part in ("train", "test"))
    stored = sum(facts[part]["stored"] for part in ("train", "test"))
    deleted = "; of the training set deleted since" if facts.get("deleted") else ""
    rate = size / facts["seconds"] / 1e6
    return f"{size / 1e9:.2f} GB of text, {stored / 1e9:.2f} GB compressed, {rate:.0f} MB/s{deleted}"


def _convert(known: dict[str, dict[str, Any]]) -> str:
    facts = known["convert"]
    rate = known["text"]["train"]["text"] / facts["seconds"] / 1e6
    return f"{facts['bytes'] / 1e9:.2f} GB of Parquet, {rate:.0f} MB/s of text"


def _fit(known: dict[str, dict[str, Any]]) -> str:
    facts = known["fit"]
    return (
        f"{LAMBDAS} λ in {facts['path_seconds']:.1f} s without loading, {facts['passes']} passes, relative gap "
        f"{facts['largest_gap']:.1e} at the most, {facts['met']} of {LAMBDAS} met the tolerance, "
        f"{facts['nonzeros']:,} nonzeros at the last λ"
    )


def _evaluate(known: dict[str, dict[str, Any]]) -> str:
    facts = known["evaluate"]
    return f"AUPRC {facts['auprc']:.4f}, AUC {facts['auc']:.4f} at λmax/2^{facts['best_index'] + 1}"
