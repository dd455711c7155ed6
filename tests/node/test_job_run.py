"""Which node of a job run a machine is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.node import job_run
from muster.node.job_run import CannotStart, Description, own_slot, ranks_of


def described(**groups: list[int]) -> Description:
    return Description(0, "/nodes", {}, groups, {}, {})


def listed(folder: Path, *groups: str) -> str:
    """The file of the service, whose ranks have the nodes of these groups in order."""
    nodes = [{"Rank": str(rank), "NodeGroupName": name} for rank, name in enumerate(groups)]
    file = folder / "nodes.json"
    file.write_text(json.dumps(nodes))
    return str(file)


def test_the_only_node_needs_no_rank() -> None:
    assert own_slot(described(main=[3]), {}) == 3


@pytest.mark.parametrize(("rank", "slot"), [(0, 4), (1, 5), (2, 7)])
def test_in_one_group_ranks_count_its_slots(rank: int, slot: int) -> None:
    environ = {"NODE_RANK": str(rank), "NODE_GROUP_NAME": "w"}
    assert own_slot(described(w=[4, 5, 7]), environ) == slot


@pytest.mark.parametrize(
    ("order", "rank", "slot"),
    [
        (("a", "a", "b", "b"), 1, 1),
        (("a", "a", "b", "b"), 2, 2),
        (("b", "b", "a", "a"), 0, 2),
        (("b", "b", "a", "a"), 3, 1),
    ],
)
def test_groups_may_have_their_ranks_in_any_order(
    tmp_path: Path, order: tuple[str, ...], rank: int, slot: int
) -> None:
    file = listed(tmp_path, *order)
    environ = {"NODE_RANK": str(rank), "NODE_GROUP_NAME": order[rank]}
    environ["CLUSTER_NODES_METADATA_FILE"] = file
    assert own_slot(described(a=[0, 1], b=[2, 3]), environ) == slot


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({}, "no variable or node group 'NODE_RANK'"),
        ({"NODE_RANK": "0"}, "no variable or node group 'NODE_GROUP_NAME'"),
        ({"NODE_RANK": "0", "NODE_GROUP_NAME": "x"}, "no variable or node group 'x'"),
        ({"NODE_RANK": "one", "NODE_GROUP_NAME": "a"}, "NODE_RANK is no number: 'one'"),
        ({"NODE_RANK": "0", "NODE_GROUP_NAME": "a"}, "not said where its nodes are listed"),
    ],
)
def test_what_the_service_does_not_say_is_named(environ: dict[str, str], text: str) -> None:
    with pytest.raises(CannotStart, match=text):
        own_slot(described(a=[0, 1], b=[2]), environ)


def test_more_nodes_than_the_group_has_are_refused() -> None:
    with pytest.raises(CannotStart, match="rank 2, but group w has 2 nodes"):
        own_slot(described(w=[0, 1]), {"NODE_RANK": "2", "NODE_GROUP_NAME": "w"})


def test_a_list_that_stays_incomplete_is_not_waited_for_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_run, "_LISTED_TIMEOUT", 0.0)
    environ = {"NODE_RANK": "0", "NODE_GROUP_NAME": "a"}
    environ["CLUSTER_NODES_METADATA_FILE"] = listed(tmp_path, "a")
    with pytest.raises(CannotStart, match="lists 1 of the 2 nodes of group a"):
        own_slot(described(a=[0, 1], b=[2]), environ)


@pytest.mark.parametrize(
    ("nodes", "ranks"),
    [
        ([], []),
        (None, []),
        ({"Rank": 1}, []),
        ([{"Rank": 3, "NodeGroupName": "a"}, {"Rank": "1", "NodeGroupName": "a"}], [1, 3]),
        ([{"Rank": "x", "NodeGroupName": "a"}, {"NodeGroupName": "a"}, 7], []),
        ([{"Rank": "0", "NodeGroupName": "b"}], []),
    ],
)
def test_the_list_may_have_anything(nodes: Any, ranks: list[int]) -> None:
    assert ranks_of(nodes, "a") == ranks
