"""Places on every store, for tests whose one body runs on all of them."""

from __future__ import annotations

import pytest

from tests.services.s3 import make_bucket
from tests.services.stores import Place


@pytest.fixture(params=["moto", "rclone", "hdfs"])
def place(request: pytest.FixtureRequest) -> Place:
    """A new bucket or folder, on a real server."""
    if request.param == "hdfs":
        folder: Place = request.getfixturevalue("hdfs").make_folder()
        return folder
    endpoint = {"moto": "s3_endpoint", "rclone": "rclone_endpoint"}[request.param]
    bucket: Place = make_bucket(request.getfixturevalue(endpoint))
    return bucket
