"""What `MAIN_config.json` says, and what other nodes take from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.assemble.main_config import (
    agreed,
    differences,
    exported,
    foreign,
    main_config,
    main_file,
    read_main,
)
from muster.assemble.members import Member
from muster.assemble.parameters import Parameters

ME = Member("m", "MAIN", "10.0.0.1", "a", {"scheduler": 8786})


def parameters(mode: Any = "MAIN", **more: Any) -> Parameters:
    return Parameters(mode, "/shared", "dask", "job", "m", given=frozenset(more), **more)


SAID = main_config(ME, parameters(worker_count=3, processes=4, death_timeout=10.0), "c1")


def written() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(main_file(SAID, "/shared/job")))
    return found


def test_it_is_read_as_it_was_written() -> None:
    assert read_main(written()) == SAID


def test_settings_stand_there_as_in_the_environment() -> None:
    file = written()
    assert {name: file[name] for name in ("nprocs", "death_timeout", "WORKER_COUNT")} == {
        "nprocs": "4",
        "death_timeout": "10",
        "WORKER_COUNT": "3",
    }
    assert "nthread" not in file, "nobody set it"
    assert (file["CLUSTER_TYPE"], file["SCHEDULER_IP"]) == ("DASK", "10.0.0.1")


def test_other_nodes_go_by_it() -> None:
    ours = agreed(parameters("WORKER", processes=2, threads=2), SAID)
    assert (ours.processes, ours.threads, ours.death_timeout) == (4, 2, 10.0)
    assert (ours.worker_count, ours.mode) == (3, "WORKER")
    assert exported(ours) == {
        "nprocs": "4",
        "nthread": "2",
        "death_timeout": "10",
        "WORKER_COUNT": "3",
        "PS_COUNT": "0",
    }


def test_a_setting_that_is_replaced_is_named() -> None:
    assert list(differences(parameters("WORKER", processes=2, death_timeout=10.0), SAID)) == [
        "nprocs is 2 here and 4 in MAIN_config.json, which counts"
    ]
    assert list(differences(parameters("WORKER"), SAID)) == [], "it was not set here"


ADS = {"OCI__MAIN_IP": "10.0.0.1", "tmpdir": "/tmp", "SCHEDULER_IP": "10.0.0.1", "nprocs": "2"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("SCHEDULER_IP=10.0.0.1", "is no JSON object"),
        ([], "is no JSON object"),
        (
            ADS,
            "was not written by this version of `muster node`: muster, cluster, CLUSTER_TYPE, "
            "WORKER_COUNT, PS_COUNT missing; OCI__MAIN_IP, tmpdir, SCHEDULER_IP as ADS's own "
            "nodes write it",
        ),
        ({"head": "x", "SCHEDULER_IP": "y"}, "unknown 'head'"),
        (
            {str(n): n for n in range(10)},
            "unknown '0', '1', '2', '3', '4', '5', '6', '7' and 2 more",
        ),
        (written() | {"nprocs": "many"}, "cannot be read: nprocs: Expected `int`"),
        (written() | {"nprocs": "0"}, "cannot be read: nprocs: Expected `int` >= 1"),
        (written() | {"muster": {"run": "m"}}, "cannot be read: muster: Object missing"),
    ],
)
def test_a_file_of_others_is_described(data: object, said: str) -> None:
    assert read_main(data) is None
    assert said in foreign(data)
