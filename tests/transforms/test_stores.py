"""What is done about an S3 server that fails on the way."""

from __future__ import annotations

import time

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from transforms import stores

CUT = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")


def test_connections_are_tried_anew_for_a_while_where_the_endpoint_was_heard_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(stores, "_cuts", stores._Cuts())
    monkeypatch.setattr(stores, "_answering", set())
    assert not stores._is_servers_fault(CUT)  # a wrong address, for all that is known
    stores._answering.add("http://127.0.0.1:1")
    assert stores._is_servers_fault(CUT)
    now += stores.CUT_SECONDS - 1
    assert stores._is_servers_fault(CUT)
    now += 2
    assert not stores._is_servers_fault(CUT)
    now += stores.CUT_SECONDS + 1  # what was cut long ago is another matter
    assert stores._is_servers_fault(CUT)


@pytest.mark.parametrize(("status", "again"), [(500, True), (503, True), (403, False), (404, False)])
def test_only_errors_of_the_server_itself_are_tried_anew(status: int, again: bool) -> None:
    error = ClientError({"Error": {}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")
    assert stores._is_servers_fault(error) is again
