"""The paper's experiment on small look-alikes: what is drawn, what is certified, what is not done again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from benchmarks.paper_sizes.lines import UNIT, Rows
from benchmarks.paper_sizes.pieces import LOOKALIKES, Amount, piece_text, write_part
from benchmarks.paper_sizes.record import OtherData, Record
from benchmarks.paper_sizes.stages import LAMBDAS, Experiment
from benchmarks.paper_sizes.table import describe
from benchmarks.paper_sizes.usage import Usage
from transforms.parser import PADDING, parse

SCALES = {"epsilon": 0.001, "webspam": 0.001, "dna": 0.0002}


def rows_of(text: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """What the program's own parser reads."""
    parsed = parse(np.concatenate([text, np.zeros(PADDING, np.uint8)]), text.size)
    return sp.csr_array((parsed.values, parsed.ids, parsed.indptr)), parsed.labels


@pytest.mark.parametrize("name", LOOKALIKES)
def test_the_whole_experiment_ends_with_certified_models(name: str, tmp_path: Path) -> None:
    experiment = Experiment(name, SCALES[name], tmp_path)
    experiment.run()
    path = experiment.path()
    assert len(path) == LAMBDAS
    assert all(row["converged"] for row in path)
    assert all(0 <= row["gap"] <= 1e-2 * row["objective"] for row in path)
    assert experiment.record.of("convert")["rows"] == experiment.rows["train"]
    assert experiment.record.of("evaluate")["auc"] > 0.6
    lines = "\n".join(describe(experiment))
    assert all(f"| {stage} |" in lines for stage in ("text", "convert", "fit", "evaluate", "the paper"))


@pytest.mark.parametrize("name", LOOKALIKES)
def test_the_text_is_the_same_whoever_draws_it_and_after_a_break(name: str, tmp_path: Path) -> None:
    made = LOOKALIKES[name](0.001)
    made.piece_rows = 30
    *_, whole = write_part(made, "train", 100, tmp_path / "one", 1, Amount())
    first = next(write_part(made, "train", 100, tmp_path / "two", 1, Amount()))
    again = LOOKALIKES[name](0.001)
    again.piece_rows = 30
    *_, rest = write_part(again, "train", 100, tmp_path / "two", 3, first)
    assert rest == whole
    assert (whole.pieces, whole.rows) == (4, 100)
    files = sorted((tmp_path / "one").iterdir())
    assert [file.name for file in files] == [f"piece-{k:05d}.svm.zst" for k in range(4)]
    assert all(file.read_bytes() == (tmp_path / "two" / file.name).read_bytes() for file in files)
    text = [pa.input_stream(file, compression="zstd").read() for file in files]
    assert whole.text == sum(map(len, text))
    assert text[0] != text[1]
    assert piece_text(made, "train", 0, 30)[0].tobytes() != piece_text(made, "test", 0, 30)[0].tobytes()


def test_epsilon_is_dense_and_correlated_with_rows_of_unit_length() -> None:
    X, labels = rows_of(piece_text(LOOKALIKES["epsilon"](1.0), "train", 0, 1_000)[0])
    assert X.shape == (1_000, 2_001)  # ids count from 1
    dense = X.toarray()[:, 1:]
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1.0, atol=1e-5)
    assert abs((labels > 0).mean() - 0.5) < 0.06
    correlations = np.corrcoef(dense[:, :200].T)[np.triu_indices(200, 1)]
    assert correlations.std() > 1.5 / np.sqrt(1_000)  # of independent columns it would be 1


def test_webspam_has_rows_of_unit_length_and_ids_that_fall_in_frequency() -> None:
    made = LOOKALIKES["webspam"](0.1)
    X, labels = rows_of(piece_text(made, "train", 0, 1_000)[0])
    assert made.features / 2 < X.shape[1] <= made.features + 1 == 1_660_001
    np.testing.assert_allclose(np.sqrt(X.power(2).sum(axis=1)), 1.0, atol=1e-4)
    assert abs((labels > 0).mean() - 0.6) < 0.06
    counts = np.bincount(X.indices, minlength=X.shape[1])
    assert (counts[1:10] == 1_000).all()
    assert counts[100_000:].mean() < 5
    assert 3_000 < X.nnz / 1_000 < 3_900


def test_dna_has_one_of_four_at_every_place_and_few_positives() -> None:
    X, labels = rows_of(piece_text(LOOKALIKES["dna"](1.0), "train", 0, 10_000)[0])
    groups = X.toarray()[:, 1:].reshape(10_000, 200, 4)
    assert (groups.sum(axis=2) == 1).all()
    assert 0.003 < (labels > 0).mean() < 0.03
    positives = np.abs(groups[labels > 0].mean(axis=0) - 0.25).max(axis=1)
    assert positives[90:110].max() > 2 * np.median(positives)


def test_numbers_are_written_with_all_their_digits() -> None:
    ids = np.array([1, 10, 999, 1000, 9999, 10_000, 12_345, 16_600_000, 99_999_999], dtype=np.int32)
    values = np.array([UNIT, -1, 0, 1234567, -9999999, 10_000, 20_000, 999, 5], dtype=np.int32)
    rows = Rows(np.array([1, -1], np.int8), np.array([0, 7, 9]), ids, values)
    out = np.empty(rows.room, np.uint8)
    assert out[: rows.write(out)].tobytes() == (
        b"+1 1:1 10:-0.0000001 999:0.0000000 1000:0.1234567 9999:-0.9999999 10000:0.0010000 12345:0.0020000\n"
        b"-1 16600000:0.0000999 99999999:0.0000005\n"
    )


def test_finished_stages_are_not_done_again_and_lost_ones_are(tmp_path: Path) -> None:
    experiment = Experiment("epsilon", 0.0002, tmp_path)
    experiment.run(["text", "convert"])
    before = {stage: experiment.record.of(stage) for stage in ("text", "convert")}
    part = tmp_path / "data" / "part-00000.parquet"
    made = part.stat().st_mtime_ns
    resumed = Experiment("epsilon", 0.0002, tmp_path)
    resumed.run(["text", "convert"])
    assert {stage: resumed.record.of(stage) for stage in before} == before
    assert part.stat().st_mtime_ns == made
    (tmp_path / "data" / "dataset.json").unlink()
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    resumed.run(["text", "convert"])
    assert part.exists()
    resumed.delete_text()
    assert not (tmp_path / "train").exists()
    assert "deleted" in "\n".join(describe(resumed))
    Experiment("epsilon", 0.0002, tmp_path).run(["text", "convert"])
    assert not (tmp_path / "train").exists()


def test_attempts_at_a_stage_add_up(tmp_path: Path) -> None:
    record = Record(tmp_path, "dna", 0.5)
    record.add_usage("fit", Usage(10.0, 12.0, 300, 20))
    record = Record(tmp_path, "dna", 0.5)
    assert not record.is_finished("fit")
    record.add_usage("fit", Usage(5.0, 8.0, 200, 40))
    assert record.of("fit") == {"seconds": 15.0, "cpu": 20.0, "memory": 300, "disk": 40}
    with pytest.raises(OtherData, match=r"dna at scale 0\.5"):
        Record(tmp_path, "dna", 0.25)


def test_growth_is_drawn_with_its_slope(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'dglmnet[bench]'")
    from benchmarks.paper_sizes import growth

    times = {"fit": [1.0, 4.0, 16.0], "convert": [1.0, 2.0, 4.0]}
    assert growth.describe([100, 200, 400], times)[-2:] == ["fit: slope 2.00", "convert: slope 1.00"]
    growth.draw("dna", [100, 200, 400], times, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 10_000
