"""Generated data have the shapes that their names promise."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.lookalikes import ARRAYS, make_arrays


@pytest.mark.parametrize("name", ARRAYS)
def test_lookalikes_are_the_same_every_time_and_have_both_labels(name: str) -> None:
    (X, y), (again, same) = make_arrays(name, 0.01), make_arrays(name, 0.01)
    assert (again != X).nnz == 0
    assert (y == same).all()
    assert set(y.tolist()) == {-1.0, 1.0}
    assert X.dtype == np.float32
    rising = np.diff(X.indices) > 0
    rising[X.indptr[1:-1] - 1] = True  # where a row ends
    assert rising.all()


def test_epsilon_is_dense_with_rows_of_unit_length() -> None:
    X, _ = make_arrays("epsilon", 0.01)
    assert X.shape == (200, 2000)
    assert X.nnz == 400_000
    np.testing.assert_allclose(np.linalg.norm(X.toarray(), axis=1), 1.0, rtol=1e-5)


def test_webspam_has_more_features_than_examples_and_frequent_ones_first() -> None:
    X, _ = make_arrays("webspam", 0.05)
    counts = np.bincount(X.indices, minlength=X.shape[1])
    assert X.shape == (1000, 500_000)
    assert counts[:100].sum() > 50 * counts[-100:].sum()


def test_dna_has_one_of_four_at_every_place_and_few_positives() -> None:
    X, y = make_arrays("dna", 0.02)
    groups = X.toarray().reshape(2000, 200, 4)
    assert (groups.sum(axis=2) == 1).all()
    assert 0.05 < (y > 0).mean() < 0.3
