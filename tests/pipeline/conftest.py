"""What tests on clusters started by hand share; a module may have a cluster of another make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy.sparse as sp

from tests.pipeline.hand_made import HandMade, two_workers
from transforms import from_arrays

if TYPE_CHECKING:
    from tests.pipeline.browser import Page


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    with two_workers(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    """400 examples of 50 features, on which a path to a strict tolerance takes seconds."""
    rng = np.random.default_rng(0)
    X = sp.random_array((400, 50), density=0.3, rng=rng, format="csc", dtype=np.float32)
    y = np.where(X @ rng.normal(size=50) + 0.1 * rng.normal(size=400) > 0, 1, -1)
    url = str(tmp_path_factory.mktemp("data") / "dataset")
    from_arrays(X, y, url, partitions=2)
    return url


@pytest.fixture(scope="session")
def page() -> Iterator[Page]:
    """One browser for all tests."""
    pytest.importorskip("selenium", reason="selenium is not installed: pip install 'dglmnet[dev]'")
    from tests.pipeline.browser import CHROMIUM, DRIVER, open_browser

    if CHROMIUM is None or DRIVER is None:
        pytest.skip("there is no chromium with its chromedriver: apt-get install chromium chromium-driver")
    with open_browser() as browser:
        yield browser
