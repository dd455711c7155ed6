"""The cluster of the design document, configured as it is there: single runs over WORK_DIR."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from muster.bootstrap.job import arranged_job
from muster.bootstrap.parameters import read_parameters

#: Addresses of this process of pytest alone.
NET = f"127.{1 + os.getpid() % 250}.19"

#: A program that knows Dask, and finds its scheduler as the document has it.
PRINT_HELLO = """
import os, sys
from distributed import Client

if __name__ == "__main__":
    with Client(f"{os.environ['SCHEDULER_IP']}:{os.environ['SCHEDULER_PORT']}") as client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        print("hello", os.environ["HELLO"], *sys.argv[1:])
        print(len(workers), "workers", *{w["nthreads"] for w in workers}, "thread")
        print(sum(client.gather(client.map(lambda x: x * x, range(10)))))
"""

#: The environment variables of the document's job.
JOB = {
    "nthread": "1",
    "death_timeout": "10",
    "CLUSTER_TYPE": "DASK",
    "EPHEMERAL": "1",
    "HELLO": "WORLD",
}


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    made: list[subprocess.Popen[str]] = []
    yield made
    for process in made:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.shows(
    "cluster-design/example-cluster-type",
    "cluster-design/example-ephemeral",
    "cluster-design/example-nprocs",
    "cluster-design/example-nthread",
    "cluster-design/example-own-variable",
    "cluster-design/example-worker-count",
    "cluster-design/launching",
    "cluster-design/master-runs-program",
    "cluster-design/run-args",
    "cluster-design/run-entry-point",
    "cluster-design/run-mode-main",
    "cluster-design/run-mode-worker",
    "cluster-design/run-named-args",
    "cluster-design/worker-nworkers",
    "cluster-design/worker-scheduler",
)
@pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "processes"),
    [
        pytest.param(1, 4, id="the configuration of the document"),
        pytest.param(3, 1, id="three workers and a scheduler"),
    ],
)
def test_the_dask_cluster_of_the_document(
    tmp_path: Path, started: list[subprocess.Popen[str]], count: int, processes: int
) -> None:
    (tmp_path / "code").mkdir()
    program = tmp_path / "code" / "printhello.py"
    program.write_text(PRINT_HELLO)
    (tmp_path / "001").mkdir()
    job = {
        **JOB,
        "nprocs": str(processes),
        "WORKER_COUNT": str(count),
        "WORK_DIR": str(tmp_path / "001"),
        "JOB_OCID": "ocid1.datasciencejob.oc1.iad.bsfd2s7j5q",
        "death_timeout": "150",  # on a busy machine, workers need more than 10 s to start
        "TIMEOUT": "150",
    }
    main = {"MODE": "MAIN", "ENTRY_POINT": str(program), "ARGS": "50", "NAMED_ARGS": "1"}
    for number, run in enumerate([main] + [{"MODE": "WORKER"}] * count, 1):
        env = {**os.environ, **job, **run, "MUSTER_NODE_ADDRESS": f"{NET}.{number}"}
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "muster", "node"]
        started.append(subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True))

    ends = [(*process.communicate(timeout=200), process.returncode) for process in started]
    assert [code for _, _, code in ends] == [0] * (count + 1), ends
    assert ends[0][0].splitlines() == [
        "hello WORLD 50 1",
        f"{count * processes} workers 1 thread",
        "285",
    ]
    assert [out for out, _, _ in ends[1:]] == [""] * count, "only the main node runs the program"


@pytest.mark.shows(
    "cluster-design/example-death-timeout",
    "cluster-design/worker-death-timeout",
    "cluster-design/worker-nworkers",
)
def test_the_words_of_a_worker_are_those_of_start_worker_sh() -> None:
    environ = {**JOB, "nprocs": "4", "MODE": "WORKER", "WORK_DIR": "/w", "JOB_OCID": "job"}
    parameters = read_parameters({**environ, "ENTRY_POINT": "a.py"}, "new")
    (worker,) = arranged_job(parameters, environ).setup.roles["workers"].services
    words = dict(zip(worker.command, worker.command[1:], strict=False))  # the last one counts
    assert (words["--nworkers"], words["--nthreads"]) == ("4", "1")
    assert words["--death-timeout"] == "10"


@pytest.mark.shows("cluster-design/entry-script", "cluster-design/parameter-entry-point")
@pytest.mark.parametrize("name", ["ENTRY_SCRIPT", "ENTRY_POINT"])
def test_the_program_has_two_names(name: str) -> None:
    environ = {**JOB, "MODE": "MAIN", "WORK_DIR": "/w", "JOB_OCID": "job", name: "a.py"}
    assert read_parameters(environ, "new").entry_point == "a.py"


@pytest.mark.shows("cluster-design/example-no-arguments")
def test_arguments_and_maximum_runtime_are_optional() -> None:
    environ = {**JOB, "MODE": "MAIN", "WORK_DIR": "/w", "JOB_OCID": "job", "ENTRY_POINT": "a.py"}
    parameters = read_parameters(environ, "new")
    assert (parameters.args, parameters.kwargs, parameters.ttl) == ((), (), None)


@pytest.mark.shows("cluster-design/example-work-dir")
@pytest.mark.skipif(find_spec("ocifs") is not None, reason="ocifs is installed")
def test_a_bucket_of_oci_needs_ocifs() -> None:
    work_dir = "oci://user-dev@namespace/daskcluster-testing/001"
    env = {**os.environ, **JOB, "MODE": "WORKER", "WORK_DIR": work_dir, "JOB_OCID": "job"}
    command = [sys.executable, "-m", "muster", "node"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"WORK_DIR: {work_dir}: Install ocifs" in done.stderr
