"""Clusters of separate job runs as their design describes them; each run is a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.bootstrap import NET, Nodes, NodesOf, ended, until

#: What the design's Job sets for all its runs.
JOB = {
    "nprocs": "2",
    "nthread": "1",
    "death_timeout": "10",
    "WORKER_COUNT": "1",
    "CLUSTER_TYPE": "DASK",
    "EPHEMERAL": "1",
    "HELLO": "WORLD",
    "DOCKER_CUSTOM_IMAGE": "iad.ocir.io/tenancy/dask-cluster-testing:dev",
}
#: A program in a subfolder that imports a module next to it and one from the code's folder.
PRINT_HELLO = """
import os, sys
import helper, sibling
from distributed import Client
with Client() as client:
    info = client.scheduler_info(n_workers=-1)["workers"].values()
    print(os.environ["HELLO"], *sys.argv[1:], sorted((w["name"], w["nthreads"]) for w in info))
    print(client.submit(helper.double, 21).result(), sibling.NAME)
    reported = client.run(lambda: (os.environ["nprocs"], os.environ["death_timeout"]))
    print(sorted(set(reported.values())))
"""


def code_in(folder: Path) -> Path:
    code = folder / "code"
    (code / "examples").mkdir(parents=True)
    (code / "helper.py").write_text("def double(number):\n    return 2 * number\n")
    (code / "examples" / "sibling.py").write_text("NAME = 'sibling'\n")
    (code / "examples" / "printhello.py").write_text(PRINT_HELLO)
    return code


def main_file(nodes: Nodes) -> Path:
    return Path(nodes.work_dir, "job1", "MAIN_config.json")


@pytest.mark.shows(
    "cluster-design/example-nprocs",
    "cluster-design/example-nthread",
    "cluster-design/example-death-timeout",
    "cluster-design/example-main-config-values",
    "cluster-design/example-no-arguments",
    "cluster-design/example-own-variable",
    "cluster-design/example-ephemeral",
    "cluster-design/run-mode-main",
    "cluster-design/run-mode-worker",
    "cluster-design/run-entry-point",
    "cluster-design/run-args",
    "cluster-design/run-named-args",
    "cluster-design/pythonpath",
    "cluster-design/worker-nworkers",
    "cluster-design/worker-death-timeout",
    "cluster-design/master-runs-program",
)
def test_the_example_of_the_design(nodes: Nodes, tmp_path: Path) -> None:
    """As written, apart from the folders; the worker reads what it lacks from MAIN_config.json."""
    code = str(code_in(tmp_path))
    common = {**JOB, "CODE_DIR": code}
    at_worker = {
        **common,
        "nprocs": "",
        "death_timeout": "",
        "WORKER_COUNT": "7",
        "ENTRY_POINT": "",
    }
    worker = nodes.start("WORKER", **at_worker)
    until(worker, "waiting for the main node")
    entry = {"ENTRY_POINT": f"{code}/examples/printhello.py", "ARGS": "50", "NAMED_ARGS": "1"}
    code_of_main, out, err = ended(nodes.start("MAIN", **common, **entry))
    assert code_of_main == 0, err
    assert out.splitlines() == [
        "WORLD 50 1 [('node-1-0', 1), ('node-1-1', 1)]",
        "42 sibling",
        "[('2', '10')]",
    ]
    code_of_worker, _, err = ended(worker)
    assert code_of_worker == 0, err
    assert "WORKER_COUNT is 7 here; using 1 from MAIN_config.json" in err
    output = json.loads(main_file(nodes).read_text())
    assert (output["nprocs"], output["death_timeout"], output["OCI__MAIN_IP"]) == (
        "2",
        "10",
        f"{NET}.2",
    )


USE_CLUSTER = """
from distributed import Client
import sys
with Client(sys.argv[1]) as client:
    print(client.submit(__import__("helper").double, 4).result())
"""


@pytest.mark.shows("cluster-design/pythonpath", "cluster-design/parameter-ephemeral")
@pytest.mark.slow
def test_workers_of_a_persistent_cluster_find_the_code(nodes: Nodes, tmp_path: Path) -> None:
    code = code_in(tmp_path)
    persistent = {**JOB, "EPHEMERAL": "0", "CODE_DIR": str(code), "nprocs": "1"}
    worker, main = nodes.start("WORKER", **persistent), nodes.start("MAIN", **persistent)
    until(main, "all 2 nodes have joined")
    listed = json.loads(main_file(nodes).with_name("cluster.json").read_text())["members"][0]
    address = f"{listed['address']}:{listed['ports']['scheduler']}"
    environ = {**os.environ, "PYTHONPATH": str(code)}
    client = [sys.executable, "-c", USE_CLUSTER, address]
    assert subprocess.check_output(client, env=environ, text=True) == "8\n"
    main_file(nodes).with_name("stop").touch()
    assert [ended(main)[0], ended(worker)[0]] == [0, 0]


PATHS = "import os, sys; print(sys.path[0], os.environ['PYTHONPATH'], os.getcwd())"


@pytest.mark.shows(
    "cluster-design/pythonpath",
    "cluster-design/entry-script",
    "cluster-design/parameter-entry-point",
)
@pytest.mark.parametrize("name", ["CODE_DIR", "OCI__CODE_DIR"])
@pytest.mark.parametrize("entry", ["ENTRY_POINT", "ENTRY_SCRIPT", "OCI__ENTRY_SCRIPT"])
def test_the_code_is_on_the_path(nodes: Nodes, tmp_path: Path, name: str, entry: str) -> None:
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "paths.py").write_text(PATHS)
    where = {name: str(folder), "ENTRY_POINT": "", entry: "sub/paths.py", "PYTHONPATH": "/more"}
    code, out, err = ended(nodes.start("MAIN", WORKER_COUNT="0", **where))
    assert (code, out.split()) == (0, [f"{folder}/sub", f"{folder}:/more", str(folder)]), err


# --- MAIN_config.json


@pytest.mark.shows(
    "cluster-design/main-config",
    "cluster-design/teardown-worker-timeout",
    "cluster-design/parameter-timeout",
)
def test_a_worker_waits_for_the_main_nodes_file(nodes: Nodes) -> None:
    worker = nodes.start("WORKER", TIME_OUT="0.5", TIMEOUT="")
    code, _, err = ended(worker)
    assert (code, f"waited 0.5 s for {main_file(nodes)}" in err) == (4, True), err
    assert not list(main_file(nodes).parent.glob("WORKER_*")), (
        "the worker registers with a main node only"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"OCI__MAIN_IP": "10.0.0.1", "tmpdir": "/tmp"}', "OCI__MAIN_IP, tmpdir as ADS's own"),
        ('{"scheduler": "10.0.0.1:8786"}', "unknown 'scheduler'"),
        ("SCHEDULER_IP=10.0.0.1", "is not a JSON object"),
    ],
)
@pytest.mark.shows("cluster-design/main-config")
def test_a_file_not_written_by_muster_is_reported_and_replaced(
    nodes: Nodes, content: str, message: str
) -> None:
    main_file(nodes).parent.mkdir(parents=True)
    main_file(nodes).write_text(content)
    code, _, err = ended(nodes.start("WORKER", TIMEOUT="1"))
    assert (code, err.count(message)) == (4, 2), "when the file is seen, and at the timeout: " + err
    worker = nodes.start("WORKER")
    until(worker, message)
    main = nodes.start("MAIN")
    code, _, err = ended(main)
    assert (code, f"replacing {main_file(nodes)}" in err, message in err) == (0, True, True), err
    assert ended(worker)[0] == 0


def test_a_worker_of_another_version_is_reported(nodes: Nodes) -> None:
    main = nodes.start("MAIN", TIMEOUT="1", FIRST="WORKER_old_config.json")
    until(main, "no worker of 1 has joined")
    file = main_file(nodes).parent / "WORKER_old_config.json"
    file.write_text('{"OCI__WORKER_IP": "10.0.0.9", "tmpdir": "/tmp", "muster": {"run": "old"}}')
    code, _, err = ended(main)
    output = f"{file} is ignored: another version of `muster node` wrote it"
    assert (code, err.count(output)) == (4, 1), err


def test_the_main_node_of_another_kind_of_cluster_is_reported(nodes: Nodes) -> None:
    main = nodes.start("MAIN", CLUSTER_TYPE="DASK")
    until(main, "no worker of 1 has joined")
    code, _, err = ended(nodes.start("WORKER", TIMEOUT="1"))
    assert (code, "is for CLUSTER_TYPE=DASK, and this node for GENERIC" in err) == (4, True), err


@pytest.mark.shows("cluster-design/main-config", "cluster-design/old-configuration")
@pytest.mark.slow
def test_the_file_of_an_earlier_cluster_is_not_used(nodes: Nodes) -> None:
    """Its main node was killed, so that no stop file marks the end of that cluster."""
    killed = nodes.start("MAIN")
    until(killed, "no worker of 1 has joined")
    killed.kill()
    killed.wait()
    worker = nodes.start("WORKER", nprocs="")
    until(worker, "waiting for the main node")
    while not list(main_file(nodes).parent.glob("WORKER_*_config.json")):
        os.sched_yield()
    main = nodes.start("MAIN", nprocs="2")
    code, out, err = ended(main)
    assert (code, out.count("rank")) == (0, 2), err
    code, out, err = ended(worker)
    assert (code, out.count("rank")) == (0, 2), "the settings of the new cluster apply: " + err


# --- the work directory


def test_a_work_dir_that_cannot_be_written_to_is_reported(
    nodes_at: NodesOf, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for mode in ("MAIN", "WORKER"):
        code, _, err = ended(nodes_at(str(tmp_path / "file")).start(mode))
        assert (code, "cannot be written to" in err) == (4, True), err


@pytest.mark.shows("cluster-design/parameter-work-dir")
def test_all_errors_are_reported_and_nothing_starts(nodes_at: NodesOf) -> None:
    nodes = nodes_at("memory://shared")
    wrong = {"WORKER_COUNT": "x", "TIME_OUT": "soon", "TIMEOUT": "", "EPHEMERAL": "2", "TTL": "-1"}
    code, out, err = ended(nodes.start("MAIN", CLUSTER_TYPE="DSAK", nprocs="0", **wrong))
    assert (code, out) == (2, "")
    output = [line for line in err.splitlines() if line.startswith("error: ")]
    named = {line.split(": ")[1] for line in output}
    assert named == {"WORK_DIR", "CLUSTER_TYPE", "nprocs", *wrong} - {"TIMEOUT"}, err
    assert len(output) == 7
