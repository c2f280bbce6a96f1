"""The embedded clusters: who may reach them."""

from __future__ import annotations

from contextlib import AbstractContextManager

import psutil
import pytest
from distributed import Client

from pipeline.cluster import ClusterOptions, open_client
from transforms.convert import client_or_embedded

EMBEDDED = {
    "threads": lambda: open_client(ClusterOptions(workers=2)),
    "processes": lambda: open_client(ClusterOptions(workers=2, processes=True)),
    "of a call": lambda: client_or_embedded(None),
}


def listening() -> set[tuple[str, int]]:
    """Where this process and its children listen."""
    me = psutil.Process()
    family = [me, *me.children(recursive=True)]
    return {(*one.laddr,) for process in family for one in process.net_connections() if one.status == "LISTEN"}


@pytest.mark.parametrize("kind", EMBEDDED)
def test_they_listen_on_this_machine_only(kind: str) -> None:
    embedded: AbstractContextManager[Client] = EMBEDDED[kind]()
    before = listening()
    with embedded:
        addresses = {ip for ip, port in listening() - before}
    assert addresses == {"127.0.0.1"}
