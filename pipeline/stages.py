"""The pipeline as a function: convert, fit, evaluate, report, in one run folder.

A stage that is done, from the same inputs with the same options, is passed over; one that was cut off is taken up; one
whose inputs or options have changed is refused, naming the difference, or done again if `overwrite` says so. The data
set is kept in RUN/data: it tells what is done, and which features training saw. Options and result are plain
values, so that all of this can run as a task on a cluster.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from inspect import signature
from time import perf_counter
from typing import Any

from distributed import Client

from pipeline.cluster import ClusterOptions, open_client
from pipeline.curves import curves_match
from pipeline.display import Display, SilentDisplay
from pipeline.evaluation import evaluate, has_unjudged
from pipeline.events import Event, Watcher
from pipeline.fit import fit_path
from pipeline.fit_options import HELD_OUT
from pipeline.metrics import NUMBER, TEST, metric_names
from pipeline.run import DATA, Run, read_path
from pipeline.run_record import EvaluationRecord, RunRecord, read_run_record, update_run
from pipeline.scoring import Source, client_for, find_sources, source_identity
from pipeline.stored import CURVES, PATH, REPORT, RUN_JSON
from solver import ProblemOptions
from solver.compiling import COMPILING, working_seconds
from solver.losses import Loss, find_loss
from transforms import BadLine, Dataset, DatasetError, OutputExists, UserError, convert_libsvm
from transforms.dataset_record import DATASET_JSON
from transforms.errors import ClaimHeld, ClaimLost
from transforms.holdout import check_fraction
from transforms.inputs import find_inputs
from transforms.output import PLAN_JSON, TEMPORARY
from transforms.reading import MAX_LINE
from transforms.storage import (
    StorageOptions,
    display,
    explained,
    open_storage,
    remove,
    remove_empty_folder,
)

REMEDY_OF_RUN = "choose another --output"
REMEDY = "redo what has changed with --overwrite, or choose another --output"


@dataclass(frozen=True)
class PipelineOptions:
    """What to do. Locations may hold passwords, so they are not shown."""

    train: tuple[str, ...] = field(repr=False)  # LIBSVM text, or one data set
    output: str = field(repr=False)  # the run folder
    test: tuple[str, ...] = field(default=(), repr=False)  # LIBSVM text, data sets: they judge, and choose nothing
    # Of the examples, held out to choose the best model by. None: 0.2, or what a data set says of itself
    validation_fraction: float | None = None
    choose_by_test: bool = False  # choose by the test data instead, and hold nothing out
    convert: dict[str, Any] = field(default_factory=dict)  # arguments of convert_libsvm
    fit: dict[str, Any] = field(default_factory=dict)  # arguments of fit_path
    metric: str | None = None  # None: the first for the kind of labels
    feature_names: str | None = field(default=None, repr=False)
    overwrite: bool = False  # do again what was done from other inputs or with other options


@dataclass(frozen=True)
class PipelineResult:
    """Which stages there was work for (False: it was done already; absent: it was not asked for), and the report."""

    worked: dict[str, bool]
    report: str


@dataclass(frozen=True)
class _Judges:
    """The examples to judge by: test data, or the held-out part of the text that training was converted from.

    chooses: the best model is the best by these.
    """

    urls: tuple[str, ...]
    held_out: float | None
    on_bad_line: str
    metric: str
    inputs: list[dict[str, Any]]
    chooses: bool


@dataclass(frozen=True)
class _Prepared:
    """What the stages work on: the training data, the data to judge by, and the file of feature names."""

    trained_on: Source
    judges: list[_Judges]
    names: dict[str, Any] | None


def _identity(judges: _Judges | EvaluationRecord) -> dict[str, Any]:
    """What tells an evaluation from another."""
    return {
        "inputs": judges.inputs,
        "held_out": judges.held_out,
        "on_bad_line": judges.on_bad_line,
        "metric": judges.metric,
    }


def run_pipeline(
    options: PipelineOptions,
    *,
    client: Client | ClusterOptions | None = None,
    display: Display | None = None,
    storage_options: dict[str, Any] | None = None,
) -> PipelineResult:
    """Do what is not done yet.

    client: a Dask client, or a description of a cluster, which is started once nothing is left to be refused; by
    default the current client, or else an in-process cluster for the time of the call.
    display: who is shown how it goes; by default nobody.
    """
    storage = StorageOptions(storage_options or {})
    try:
        pipeline = _Pipeline(options, storage, display or SilentDisplay())
        prepared = pipeline.prepare()
        with ExitStack() as stack:
            if isinstance(client, ClusterOptions):
                client = stack.enter_context(open_client(client))
            elif client is None:
                client = stack.enter_context(client_for(None))
            return pipeline.run(client, prepared)
    except BadLine as error:
        raise UserError(f"{error}. Mend it, or leave bad lines out with --on-bad-line skip") from None


class _Pipeline:
    """One call of the pipeline."""

    client: Client

    def __init__(self, options: PipelineOptions, storage: StorageOptions, display: Display) -> None:
        self.options, self.storage, self.display = options, storage, display
        self.output = options.output.rstrip("/")
        self.data = f"{self.output}/{DATA}"
        self.worked: dict[str, bool] = {}

    def prepare(self) -> _Prepared:
        """What the stages work on. Everything that can be refused is refused here, before the first begins."""
        trained_on = _training_source(find_sources(self.options.train, self.storage))
        names = self.names()
        judges = self.judges(trained_on)
        self.refuse_other_judges(judges)
        return _Prepared(trained_on, judges, names)

    def run(self, client: Client, prepared: _Prepared) -> PipelineResult:
        """The stages in turn."""
        self.client = client
        trained_on, judges, names = prepared.trained_on, prepared.judges, prepared.names
        dataset, seconds = self.convert(trained_on, judges)
        self.fit(dataset, seconds)
        if judges:
            worked = [self.evaluate(one) for one in judges]
            self.settle("evaluate", any(worked))
        return PipelineResult(self.worked, self.report(names))

    @property
    def loss(self) -> Loss:
        return find_loss(self.options.fit.get("problem", ProblemOptions()).loss)

    @property
    def metric(self) -> str:
        """What the best model will be best by."""
        names = metric_names(self.loss.LABELS)
        asked = self.options.metric or names[0]
        if asked not in names:
            raise UserError(
                f"--metric {asked} does not go with {self.loss.NAME} loss: choose one of {', '.join(names)}"
            )
        return asked

    def judges(self, trained_on: Source) -> list[_Judges]:
        """Which examples judge the models: those that choose the best, and test data; none, either or both."""
        test, found = self.test_data(), []
        if test is None or not test.chooses:
            chooser = self.held_out_examples(trained_on)
            found += [] if chooser is None else [chooser]
        found += [] if test is None else [test]
        if not any(one.chooses for one in found):
            by_test = "; --choose-by-test chooses by the test data" if test else ""
            self.display.note(f"no examples are held out: the model is chosen by BIC on the training data{by_test}")
        return found

    def test_data(self) -> _Judges | None:
        options = self.options
        if options.choose_by_test and not options.test:
            raise UserError("--choose-by-test needs --test: the data to choose by")
        if options.choose_by_test and options.validation_fraction:
            raise UserError("--choose-by-test does not go with --validation-fraction: choose by one of them")
        if not options.test:
            return None
        bad_lines = options.convert.get("on_bad_line", "raise")
        inputs = _identities(find_sources(options.test, self.storage))
        return _Judges(options.test, None, bad_lines, self.metric, inputs, options.choose_by_test)

    def held_out_examples(self, trained_on: Source) -> _Judges | None:
        """The examples that are held out of training to choose by; None if there are none."""
        fraction = self.fraction(trained_on)
        if not fraction:
            return None
        urls, bad_lines = self.options.train, self.options.convert.get("on_bad_line", "raise")
        if isinstance(trained_on, Dataset):
            urls = _text_of(trained_on, self.storage)
            bad_lines = trained_on.record.plan.on_bad_line if trained_on.record.plan else bad_lines
        self.display.note(
            f"{100 * fraction:g} % of the examples are held out of training to choose the best model by them"
        )
        inputs = _identities(find_sources(urls, self.storage))
        return _Judges(urls, fraction, bad_lines, self.metric, inputs, chooses=True)

    def fraction(self, trained_on: Source) -> float:
        """What to hold out, or what was when the data set was made."""
        asked = self.options.validation_fraction
        if asked is not None:
            check_fraction(asked, "--validation-fraction")
        if not isinstance(trained_on, Dataset):
            return HELD_OUT if asked is None else asked
        held_out = trained_on.record.hold_out
        if asked is not None and asked != held_out:
            raise UserError(
                f"{trained_on.name}: --validation-fraction {asked:g}, but this data set was made with "
                f"{f'--hold-out {held_out:g}' if held_out else 'all examples'}: pass the text to --train, or convert "
                f"it again with convert-libsvm --hold-out {asked:g}"
            )
        return held_out

    def names(self) -> dict[str, Any] | None:
        """The file of feature names, as it is now."""
        if self.options.feature_names is None:
            return None
        return find_inputs([self.options.feature_names], self.storage)[0].identity()

    def convert(self, trained_on: Source, judges: Sequence[_Judges]) -> tuple[Dataset, dict[str, float]]:
        """The data set, and how long the conversion took if there was one."""
        if isinstance(trained_on, Dataset):
            _refuse_options_of_text(self.options.convert, trained_on)
            self.display.note(f"convert: nothing to do, {trained_on.name} is a data set")
            return trained_on, {}
        started, compiled = working_seconds(), COMPILING.seconds
        watch = _Watch(self.display, "convert")
        arguments = self.options.convert | {"hold_out": max([one.held_out or 0.0 for one in judges], default=0.0)}
        if self.loss.LABELS == NUMBER:
            arguments["numeric_labels"] = True
        dataset = self.attempt(lambda how: self.convert_text(watch, arguments | how))
        self.settle("convert", watch.begun)
        bad = dataset.record.bad_lines
        if watch.begun and bad.count:
            self.display.note(f"{bad.count:,} bad lines were left out; the first: {bad.first[0]}")
        if watch.begun:
            spent = {"convert": working_seconds() - started, "compile": COMPILING.seconds - compiled}
            return dataset, {name: seconds for name, seconds in spent.items() if seconds}
        before = self.record()
        seconds = before.seconds.get("convert") if before else None
        return dataset, {} if seconds is None else {"convert": seconds}

    def convert_text(self, watch: _Watch, arguments: dict[str, Any]) -> Dataset:
        try:
            dataset = convert_libsvm(
                list(self.options.train),
                self.data,
                client=self.client,
                progress=watch,
                storage_options=self.storage,
                **arguments,
            )
        except OutputExists:
            raise
        except UserError:
            # The text will be another once it is mended, and what was made of this one could not be used.
            self.remove_unfinished_data()
            raise
        if not watch.begun:
            _refuse_damaged(dataset)
        return dataset

    def fit(self, dataset: Dataset, seconds: dict[str, float]) -> None:
        watch = _Watch(self.display, "fit")

        def work(how: dict[str, Any]) -> Run:
            return fit_path(
                dataset,
                self.output,
                client=self.client,
                watcher=watch,
                storage_options=self.storage,
                seconds=seconds,
                **self.options.fit,
                **how,
            )

        self.attempt(work)
        self.settle("fit", watch.begun)

    def attempt(self, work: Callable[[dict[str, Any]], Any]) -> Any:
        """Take up what is there; where it is something else, refuse, or replace it if that was asked for."""
        try:
            return work({"resume": True})
        except (ClaimHeld, ClaimLost):
            raise
        except (OutputExists, DatasetError) as error:
            if not self.begun():
                raise
            if not self.options.overwrite:
                what = error.what if isinstance(error, OutputExists) else str(error)
                raise type(error)(f"{what}. To go on, {REMEDY}") from None
        return work({"overwrite": True})

    def refuse_other_judges(self, judges: Sequence[_Judges]) -> None:
        """An evaluation by other data is not replaced unasked."""
        for one in judges:
            stored = self.evaluation(one)
            if stored is None or self.options.overwrite:
                continue
            before = _identity(stored)
            differences = [
                f"{name.replace('_', ' ')} was {_short(before[name])}, is {_short(value)}"
                for name, value in _identity(one).items()
                if before[name] != value
            ]
            if differences:
                raise OutputExists(
                    f"{self.shown}: evaluated otherwise before: {'; '.join(differences)}. To go on, {REMEDY}"
                )

    def evaluate(self, judges: _Judges) -> bool:
        """Judge the models, unless that is done. Returns whether there was work."""
        stored = self.evaluation(judges)
        rows = read_path(self.output, self.storage)
        prefix = "" if judges.chooses else TEST
        same = stored is not None and _identity(stored) == _identity(judges) and self.has_curves(stored, prefix)
        todo = not same or has_unjudged(rows, prefix)
        if todo:
            self.display.stage("evaluate")
            evaluate(
                self.output,
                judges.urls,
                metric=judges.metric,
                held_out=judges.held_out is not None,
                choose=judges.chooses,
                on_bad_line=judges.on_bad_line,
                max_line_bytes=self.options.convert.get("max_line_bytes", MAX_LINE),
                client=self.client,
                progress=self.display,
                storage_options=self.storage,
            )
        return todo

    def has_curves(self, stored: EvaluationRecord, prefix: str) -> bool:
        """Are the curves of an evaluation as it wrote them? True of one that wrote none."""
        fs, path = open_storage(self.output, self.storage)
        return stored.curves is None or curves_match(fs, f"{path}/{prefix}{CURVES}", stored.curves)

    def report(self, names: dict[str, Any] | None) -> str:
        """Where the page is; it is written if the run, or the names of the features, have changed since."""
        fs, path = open_storage(self.output, self.storage)
        record = read_run_record(fs, path, REMEDY_OF_RUN)
        judged = [one.to_json() for one in (record.evaluation, record.test) if one]
        mark = _fingerprint(fs.cat_file(f"{path}/{PATH}"), judged, names)
        todo = record.report != mark or not fs.exists(f"{path}/{REPORT}")
        if todo:
            self.display.stage("report")
            started = perf_counter()
            from pipeline.report.write import write_report  # here, as it needs bokeh, and other stages do not

            write_report(self.output, feature_names=self.options.feature_names, storage_options=self.storage)
            seconds = {"report": perf_counter() - started}
            update_run(
                self.output,
                self.storage,
                lambda stored: replace(stored, report=mark, seconds={**stored.seconds, **seconds}),
            )
        self.settle("report", todo)
        return f"{self.shown}/{REPORT}"

    def settle(self, stage: str, worked: bool) -> None:
        self.worked[stage] = worked
        if not worked:
            self.display.note(f"{stage}: up to date")

    @property
    def shown(self) -> str:
        """The run folder, for people."""
        fs, path = open_storage(self.output, self.storage)
        return display(fs, path)

    def record(self) -> RunRecord | None:
        """run.json, if it is there."""
        fs, path = open_storage(self.output, self.storage)
        fs.invalidate_cache()
        with explained(self.shown):
            there = fs.exists(f"{path}/{RUN_JSON}")
        return read_run_record(fs, path, REMEDY_OF_RUN) if there else None

    def evaluation(self, judges: _Judges) -> EvaluationRecord | None:
        """The evaluation that is stored in the place of this one."""
        record = self.record()
        return None if record is None else record.evaluation if judges.chooses else record.test

    def begun(self) -> bool:
        """Is there something of ours in the run folder, which could be replaced?"""
        fs, path = open_storage(self.output, self.storage)
        ours = (RUN_JSON, f"{DATA}/{DATASET_JSON}", f"{DATA}/{TEMPORARY}/{PLAN_JSON}")
        return any(fs.exists(f"{path}/{name}") for name in ours)

    def remove_unfinished_data(self) -> None:
        """Leave nothing of a conversion that failed, nor the folders if that is all they held. The rest is not ours."""
        fs, path = open_storage(self.output, self.storage)
        fs.invalidate_cache()
        if fs.exists(f"{path}/{DATA}/{TEMPORARY}/{PLAN_JSON}"):
            remove(fs, f"{path}/{DATA}/{TEMPORARY}", recursive=True)
        for folder in (f"{path}/{DATA}", path):
            remove_empty_folder(fs, folder)


class _Watch(Watcher):
    """Begins the stage on the display with the first sign of work, so that nothing is shown of one that is done."""

    def __init__(self, display: Display, stage: str) -> None:
        self._display, self._stage = display, stage
        self.begun = False

    def tell(self, event: Event) -> None:
        if not self.begun:
            self.begun = True
            self._display.stage(self._stage)
        self._display.tell(event)


def _training_source(sources: Sequence[Source]) -> Source:
    """One data set, or files of text: not both, as one model is made of one data set."""
    if not sources:
        raise UserError("--train names nothing: pass LIBSVM text or a data set")
    for source in sources:
        if isinstance(source, Dataset) and len(sources) > 1:
            raise UserError(
                f"{source.name}: --train takes one data set, or text, not both: convert all the text together"
            )
    return sources[0]


def _refuse_options_of_text(chosen: dict[str, Any], dataset: Dataset) -> None:
    """What is said about reading text must not be passed over in silence. Bad lines may be in test data."""
    defaults = {name: one.default for name, one in signature(convert_libsvm).parameters.items()}
    for name, value in chosen.items():
        if value != defaults[name] and name not in ("on_bad_line", "max_line_bytes"):
            raise UserError(f"--{name.replace('_', '-')} is about text, but {dataset.name} is a data set: leave it out")


def _text_of(dataset: Dataset, storage: StorageOptions) -> tuple[str, ...]:
    """The text that a data set was made of, if it is still where it was, and the same."""
    urls = tuple(one["path"] for one in dataset.record.inputs)
    files = find_inputs(urls, storage) if urls else []
    if [file.identity() for file in files] != dataset.record.inputs:
        raise UserError(
            f"{dataset.name}: the text it was made of, which holds what was held out, has changed: pass --test, or "
            "convert again"
        )
    return urls


def _identities(sources: Iterable[Source]) -> list[dict[str, Any]]:
    return [identity for source in sources for identity in source_identity(source)]


def _refuse_damaged(dataset: Dataset) -> None:
    """A data set taken as it is has all its files, in their sizes; what is in them is checked when it is read."""
    fs, path = open_storage(dataset.url, dataset.options)
    sizes = {one["name"].rsplit("/", 1)[-1]: one["size"] for one in fs.ls(path, detail=True)}
    for file, size in dataset.record.files.items():
        if sizes.get(file) != size:
            raise DatasetError(f"{dataset.name}/{file}: {'damaged' if file in sizes else 'missing'}")


def _fingerprint(path: bytes, *content: Any) -> str:
    """Of what a report shows."""
    return hashlib.sha256(path + json.dumps(content, sort_keys=True).encode()).hexdigest()


def _short(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    names = [f"{one['path']} ({one.get('size', one.get('examples'))}, {one.get('version', '')})" for one in value[:3]]
    return f"[{', '.join(names)}{', …' if len(value) > 3 else ''}]"
