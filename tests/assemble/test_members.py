"""Who is in a cluster, and what they write about themselves."""

from __future__ import annotations

import pytest

from muster.assemble.members import (
    Assembly,
    Member,
    assembly_of,
    config,
    member_of,
    missing,
    ranked,
)

MAIN = Member("m", "MAIN", "10.0.0.1", "a", {"scheduler": 8786})
WORKERS = [Member(name, "WORKER", f"10.0.0.{n}", name) for n, name in enumerate("xyz", 2)]
SERVER = Member("p", "PS", "10.0.0.9", "p")


def test_ranks_do_not_depend_on_who_comes_first() -> None:
    members = [SERVER, *reversed(WORKERS), MAIN]
    assert [m.run for m in ranked(members)] == ["m", "x", "y", "z", "p"]


def test_a_rank_that_was_told_goes_before_names() -> None:
    last = Member("a", "WORKER", "10.0.0.7", "a", rank=2)
    first = Member("b", "WORKER", "10.0.0.8", "b", rank=1)
    assert [m.run for m in ranked([last, WORKERS[0], MAIN, first])] == ["m", "b", "a", "x"]


def test_who_is_missing() -> None:
    assert missing([MAIN, *WORKERS, SERVER], 3, 1) == ""
    assert missing([MAIN, *WORKERS], 2, 0) == ""
    said = missing([MAIN, WORKERS[0]], 3, 1)
    assert said == (
        "1 of 3 workers have come: x (10.0.0.2); 0 of 1 parameter servers have come: none"
    )


def test_files_say_what_programs_of_other_origin_look_for() -> None:
    told = config(MAIN, "dask", "/tmp/a")
    assert (told["OCI__MAIN_IP"], told["SCHEDULER_IP"]) == ("10.0.0.1", "10.0.0.1")
    assert member_of(told) == MAIN
    told = config(WORKERS[0], "dask", "/tmp/b")
    assert told["OCI__WORKER_IP"] == "10.0.0.2"
    assert WORKERS[0].file == "WORKER_x_config.json"


@pytest.mark.parametrize("data", [None, [], {}, {"muster": {}}, {"muster": {"run": 1}}, "x"])
def test_files_of_others_are_not_members(data: object) -> None:
    assert member_of(data) is None
    assert assembly_of(data) is None


def test_who_is_not_listed_has_no_rank() -> None:
    assembly = Assembly("c", "t", (MAIN, WORKERS[1]))
    assert [assembly.rank_of(run) for run in ("m", "y", "x")] == [0, 1, None]
