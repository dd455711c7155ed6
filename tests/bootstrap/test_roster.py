"""The members of a cluster and the files that describe them."""

from __future__ import annotations

import pytest

from muster.bootstrap.roster import (
    Member,
    Roster,
    description,
    missing,
    ranked,
    read_member,
    read_roster,
)

MAIN = Member("m", "MAIN", "10.0.0.1", "a", {"scheduler": 8786})
WORKERS = [Member(name, "WORKER", f"10.0.0.{n}", name) for n, name in enumerate("xyz", 2)]
SERVER = Member("p", "PS", "10.0.0.9", "p")


def test_ranks_do_not_depend_on_the_order_of_registration() -> None:
    members = [SERVER, *reversed(WORKERS), MAIN]
    assert [m.run for m in ranked(members)] == ["m", "x", "y", "z", "p"]


def test_a_given_rank_takes_precedence_over_names() -> None:
    last = Member("a", "WORKER", "10.0.0.7", "a", rank=2)
    first = Member("b", "WORKER", "10.0.0.8", "b", rank=1)
    assert [m.run for m in ranked([last, WORKERS[0], MAIN, first])] == ["m", "b", "a", "x"]


def test_missing_members_are_counted_by_role() -> None:
    assert missing([MAIN, *WORKERS, SERVER], 3, 1) == ""
    assert missing([MAIN, *WORKERS], 2, 0) == ""
    output = missing([MAIN, WORKERS[0]], 3, 1)
    assert output == (
        "1 of 3 workers have joined: x (10.0.0.2); no parameter server of 1 has joined"
    )


def test_files_have_the_keys_of_ads() -> None:
    reported = description(MAIN, "dask", "/tmp/a")
    assert (reported["OCI__MAIN_IP"], reported["SCHEDULER_IP"]) == ("10.0.0.1", "10.0.0.1")
    assert read_member(reported) == MAIN
    reported = description(WORKERS[0], "dask", "/tmp/b")
    assert reported["OCI__WORKER_IP"] == "10.0.0.2"
    assert WORKERS[0].file == "WORKER_x_config.json"


@pytest.mark.parametrize("data", [None, [], {}, {"muster": {}}, {"muster": {"run": 1}}, "x"])
def test_other_files_are_not_members(data: object) -> None:
    assert read_member(data) is None
    assert read_roster(data) is None


def test_a_node_that_is_not_listed_has_no_rank() -> None:
    roster = Roster("c", "t", (MAIN, WORKERS[1]))
    assert [roster.rank_of(run) for run in ("m", "y", "x")] == [0, 1, None]
