"""`MAIN_config.json`, and the settings that other nodes read from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.bootstrap.main_config import (
    differences,
    exported,
    main_config,
    main_file,
    read_main,
    unreadable_reason,
    with_main_settings,
)
from muster.bootstrap.parameters import Parameters
from muster.bootstrap.roster import Member

ME = Member("m", "MAIN", "10.0.0.1", "a", {"scheduler": 8786})


def parameters(mode: Any = "MAIN", **more: Any) -> Parameters:
    return Parameters(mode, "/shared", "dask", "job", "m", given=frozenset(more), **more)


CONFIG = main_config(ME, parameters(worker_count=3, processes=4, death_timeout=10.0), "c1")


def content() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(main_file(CONFIG, "/shared/job")))
    return found


def test_a_config_is_read_as_it_was_written() -> None:
    assert read_main(content()) == CONFIG


def test_settings_are_written_as_in_the_environment() -> None:
    file = content()
    assert {name: file[name] for name in ("nprocs", "death_timeout", "WORKER_COUNT")} == {
        "nprocs": "4",
        "death_timeout": "10",
        "WORKER_COUNT": "3",
    }
    assert "nthread" not in file, "it was not set"
    assert (file["CLUSTER_TYPE"], file["SCHEDULER_IP"]) == ("DASK", "10.0.0.1")


def test_other_nodes_use_the_settings_of_the_main_node() -> None:
    ours = with_main_settings(parameters("WORKER", processes=2, threads=2), CONFIG)
    assert (ours.processes, ours.threads, ours.death_timeout) == (4, 2, 10.0)
    assert (ours.worker_count, ours.mode) == (3, "WORKER")
    assert exported(ours) == {
        "nprocs": "4",
        "nthread": "2",
        "death_timeout": "10",
        "WORKER_COUNT": "3",
        "PS_COUNT": "0",
    }


def test_a_setting_that_is_replaced_is_reported() -> None:
    assert list(differences(parameters("WORKER", processes=2, death_timeout=10.0), CONFIG)) == [
        "nprocs is 2 here; using 4 from MAIN_config.json"
    ]
    assert list(differences(parameters("WORKER"), CONFIG)) == [], "it was not set here"


ADS = {"OCI__MAIN_IP": "10.0.0.1", "tmpdir": "/tmp", "SCHEDULER_IP": "10.0.0.1", "nprocs": "2"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("SCHEDULER_IP=10.0.0.1", "is not a JSON object"),
        ([], "is not a JSON object"),
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
        (content() | {"nprocs": "many"}, "cannot be read: nprocs: Expected `int`"),
        (content() | {"nprocs": "0"}, "cannot be read: nprocs: Expected `int` >= 1"),
        (content() | {"muster": {"run": "m"}}, "cannot be read: muster: Object missing"),
    ],
)
def test_a_file_not_written_by_muster_is_described(data: object, message: str) -> None:
    assert read_main(data) is None
    assert message in unreadable_reason(data)
