"""A few hundred spoiled files of each kind; `make fuzz` plays many more."""

from __future__ import annotations

import pytest
from distributed import Client

from tests.fuzz.world import KINDS, Case, World, build, quiet

CASES = 200


@pytest.fixture(scope="module")
def world(client: Client, tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("fuzz") / "root"
    build(root, client)
    return World(root)


@pytest.mark.parametrize("kind", KINDS)
def test_spoiled_files_are_refused_in_one_line_and_harm_nothing(world: World, kind: str) -> None:
    with quiet():
        refused = sum(world.play(Case(kind, seed)) for seed in range(CASES))
    assert refused > CASES // 4 or kind == "claim.json"  # a claim that cannot be read is taken over
