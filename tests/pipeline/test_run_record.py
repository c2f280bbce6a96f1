"""run.json as a record: what is kept, and that nobody writes it without the claim."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
from distributed import Client

from pipeline import PathModel, evaluate
from pipeline.display import SilentDisplay
from pipeline.report.write import write_report
from pipeline.run import Run, open_run
from pipeline.run_record import RunRecord, read_run_record, update_run
from pipeline.stages import PipelineOptions, run_pipeline
from tests.damage import unsealed
from tests.pipeline.runs import fit_text, make_rows, to_text
from transforms import UserError
from transforms.claim import ClaimKeeper
from transforms.errors import ClaimHeld, ClaimLost
from transforms.storage import StorageOptions, open_storage

STORAGE = StorageOptions()


@pytest.fixture(scope="module")
def fitted(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    fit_text(client, folder, to_text(*make_rows()), length=2)
    (folder / "test.svm").write_bytes(to_text(*make_rows(seed=1)))
    return folder


@pytest.fixture
def run(fitted: Path, tmp_path: Path) -> Path:
    return Path(copytree(fitted / "run", tmp_path / "run"))


def record_of(run: Path) -> RunRecord:
    return read_run_record(*open_storage(str(run), STORAGE))


def test_an_evaluation_that_ends_while_a_report_is_written_is_not_lost(
    client: Client, fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = str(tmp_path / "run")

    def evaluated_meanwhile(*args: object, **options: object) -> str:
        evaluate(output, str(fitted / "test.svm"), metric="log_loss", client=client)
        return write_report(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("pipeline.report.write.write_report", evaluated_meanwhile)
    options = PipelineOptions((str(fitted / "train.svm"),), output, validation_fraction=0.0)
    run_pipeline(options, client=client, display=SilentDisplay())
    found = record_of(Path(output))
    assert found.evaluation is not None and found.evaluation.metric == "log_loss"
    assert {"convert", "fit", "evaluate", "report"} == set(found.seconds)
    assert found.report is not None


def test_run_json_is_not_changed_while_another_writes_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transforms.claim.HEARTBEAT_SECONDS", 0.1)
    before = (run / "run.json").read_bytes()
    other = ClaimKeeper(str(run), STORAGE, str(run / "claim.json"))
    other.take(takeover=False)
    try:
        with pytest.raises(ClaimHeld, match="is writing here"):
            update_run(str(run), STORAGE, lambda record: replace(record, report="mine"))
    finally:
        other.release()
    assert (run / "run.json").read_bytes() == before
    update_run(str(run), STORAGE, lambda record: replace(record, report="mine"))
    assert record_of(run).report == "mine"
    assert not (run / "claim.json").exists()


def taken_over(run: Path) -> Run:
    """A run at work whose claim another process has taken over."""
    mine = open_run(str(run), replace(record_of(run), evaluation=None), STORAGE, resume=False, overwrite=True)
    claim = json.loads((run / "claim.json").read_text())
    (run / "claim.json").write_text(json.dumps(claim | {"token": "another"}))
    return mine


def test_a_fit_that_lost_its_claim_changes_run_json_no_more(run: Path) -> None:
    mine = taken_over(run)
    before = (run / "run.json").read_bytes()
    with pytest.raises(ClaimLost):
        mine.settle(complete=True)
    assert (run / "run.json").read_bytes() == before
    mine.release()


def test_a_fit_that_lost_its_claim_before_its_first_model_leaves_run_json_to_the_other(run: Path) -> None:
    taken_over(run).release()
    assert (run / "run.json").exists()
    assert json.loads((run / "claim.json").read_text())["token"] == "another"


def test_fields_of_a_later_version_are_kept(client: Client, fitted: Path, run: Path) -> None:
    content = unsealed(json.loads((run / "run.json").read_text()))
    content["later"] = {"a": [1]}
    content["dataset"]["later"] = 2
    (run / "run.json").write_text(json.dumps(content))
    evaluate(str(run), str(fitted / "test.svm"), client=client)
    stored = json.loads((run / "run.json").read_text())
    assert (stored["later"], stored["dataset"]["later"]) == ({"a": [1]}, 2)
    assert PathModel.load(str(run)).about == unsealed(stored)


def test_what_is_absent_stays_absent(run: Path) -> None:
    content = unsealed(json.loads((run / "run.json").read_text()))
    del content["versions"], content["blocks"], content["dataset"]["nnz"], content["dataset"]["partitions"]
    assert RunRecord.from_json(content).to_json() == content


def test_a_record_of_wrong_types_is_refused_by_name(run: Path) -> None:
    content = unsealed(json.loads((run / "run.json").read_text()))
    (run / "run.json").write_text(json.dumps(content | {"lambda_max": "large"}))
    with pytest.raises(UserError, match="lambda_max must be a finite number"):
        record_of(run)
