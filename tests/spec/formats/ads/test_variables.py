"""Environment variables of ADS YAML of kind distributed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.ads import (
    distributed,
    read,
    refusals,
)


def test_variables_of_all_nodes_and_of_a_role(folder: Path) -> None:
    cluster = {
        "config": {"env": [{"name": "A", "value": 1}, {"name": "B", "value": {"x": [1]}}]},
        "worker": {"replicas": 1, "config": {"env": [{"name": "A", "value": "w"}]}},
    }
    runtime = {"env": [{"name": "C", "value": "r"}, {"name": "B", "value": "later"}]}
    spec, _ = read(folder, distributed(cluster=cluster, runtime_spec=runtime))
    given = {name: text for name, text in spec.env.items() if len(name) == 1}
    assert given == {"A": "1", "B": "later", "C": "r"}
    main, workers = spec.node_groups
    assert (main.env, workers.env) == ({"OCI__MODE": "MAIN"}, {"OCI__MODE": "WORKER", "A": "w"})


def test_programs_find_the_start_options_of_the_cluster(folder: Path) -> None:
    config = {"startOptions": ["--worker-port 8700:8800", "--x"]}
    spec, _ = read(folder, distributed("dask", cluster={"config": config}))
    assert spec.env["OCI__START_ARGS"] == "--worker-port 8700:8800 --x"
    assert "OCI__START_ARGS" not in read(folder, distributed("dask"))[0].env


def test_programs_get_the_variables_of_ads(folder: Path) -> None:
    cluster = {"ps": {"replicas": 1}, "workDir": "oci://b@n/x"}
    runtime = {"entryPoint": "/code/train.py", "args": ["a"], "kwargs": "--b 1"}
    spec, _ = read(folder, distributed("tensorflow", cluster=cluster, runtime_spec=runtime))
    assert {name: text for name, text in spec.env.items() if name.startswith("OCI__")} == {
        "OCI__CLUSTER_TYPE": "TENSORFLOW",
        "OCI__WORKER_COUNT": "2",
        "OCI__PS_COUNT": "1",
        "OCI__EPHEMERAL": "True",
        "OCI__ENTRY_SCRIPT": "/code/train.py",
        "OCI__ENTRY_SCRIPT_ARGS": "a",
        "OCI__ENTRY_SCRIPT_KWARGS": "--b 1",
        "OCI__WORK_DIR": "oci://b@n/x",
        "OCI__SYNC_DIR": "/opt/ml",
    }
    assert [group.env["OCI__MODE"] for group in spec.node_groups] == ["MAIN", "WORKER", "PS"]
    assert [group.node_env.get("RANK") for group in spec.node_groups] == ["${rank}"] * 2 + [None]
    assert [(m.source, m.destination) for m in spec.mounts] == [("scratch:node/sync", "/opt/ml")]


def test_variables_that_set_options_of_dask_workers(folder: Path) -> None:
    env = [{"name": "nprocs", "value": 4}, {"name": "death_timeout", "value": 10}]
    own = {"replicas": 1, "config": {"env": [{"name": "nthread", "value": 2}]}}
    spec, _ = read(folder, distributed(cluster={"config": {"env": env}, "worker": own}))
    assert spec.processes_per_node == 4
    assert spec.framework_options == {
        "worker_on_main": False,
        "threads": 2,
        "worker_args": ["--death-timeout", "10"],
    }
    env = [{"name": "nprocs", "value": "many"}]
    found = refusals(folder, distributed(cluster={"config": {"env": env}}))
    assert "nprocs must be a whole number from 1, not 'many'" in found.popitem()[1]
    spec, _ = read(folder, distributed("ray", cluster={"config": {"env": env}}))
    assert spec.processes_per_node == 1, "Dask uses the variable"


def test_notes_explain_the_variables_of_ads(folder: Path) -> None:
    given = {
        "OCI__TTL": "1h",
        "TTL": "2h",
        "OCI__WORKER_COUNT": 7,
        "OCI__CLUSTER_TYPE": "DASK",
        "OCI__MAIN_IP": "1.2.3.4",
        "OCI__TIMEOUT": 60,
        "OCI__OTHER": "x",
    }
    env = [{"name": name, "value": value} for name, value in given.items()]
    cluster = {"config": {"env": env}, "ephemeral": False}
    spec, notes = read(folder, distributed(cluster=cluster))
    ours = {note for note in notes if note.startswith(("OCI__", "TTL"))}
    assert ours == {
        "OCI__TTL is 1h: the cluster ends 1h after its start, or by `muster cluster down`",
        "TTL is not used: OCI__TTL sets the cluster's lifetime",
        "OCI__WORKER_COUNT is 7 for programs only: the YAML's fields decide about the cluster",
        "OCI__MAIN_IP is not used: Muster sets it",
        "OCI__TIMEOUT is passed to programs, and not read by Muster: set `ready_timeout` in a spec",
        "OCI__OTHER is passed to programs, and not read by Muster",
    }
    assert spec.max_runtime == 4500, "later than the cluster ends itself"
    cluster["ephemeral"] = True
    _, notes = read(folder, distributed(cluster=cluster))
    for name in ("OCI__TTL", "TTL"):
        assert f"{name} is not used: this cluster ends with its program" in notes


@pytest.mark.parametrize("role", ["main", "worker", "ps"])
@pytest.mark.parametrize(
    "name", ["PROFILE", "PROFILE_CMD", "WORKSPACE", "SYNC_ARTIFACTS", "OCI__SYNC_DIR"]
)
def test_variables_of_the_cluster_are_refused_for_one_role(
    folder: Path, role: str, name: str
) -> None:
    env = [{"name": "A", "value": 1}, {"name": name, "value": 1}]
    cluster = {role: {"replicas": 1, "config": {"env": env}}}
    found = refusals(folder, distributed("tensorflow", cluster=cluster))
    assert list(found) == [f"spec.cluster.spec.{role}.config.env[1].name"]
    assert name in next(iter(found.values()))
