"""The parameters of a node, in both spellings."""

from __future__ import annotations

import pytest

from muster.bootstrap.parameters import Parameters, not_honored, read_parameters
from muster.errors import InvalidInput

NEEDED = {
    "WORK_DIR": "/shared",
    "JOB_OCID": "ocid1.job",
    "CLUSTER_TYPE": "DASK",
    "MODE": "MAIN",
    "ENTRY_POINT": "train.py",
}


def read(**environ: str) -> Parameters:
    return read_parameters({**NEEDED, **environ}, "new")


@pytest.mark.shows(
    "cluster-design/parameter-ephemeral",
    "cluster-design/parameter-timeout",
    "cluster-design/parameter-worker-count",
    "cluster-design/teardown-timeout-default",
)
def test_parameters_have_defaults() -> None:
    assert read() == Parameters(
        mode="MAIN",
        work_dir="/shared",
        framework="dask",
        job="ocid1.job",
        run="new",
        entry_point="train.py",
        worker_count=1,
        timeout=600.0,
        given=frozenset({"mode", "work_dir", "cluster_type", "job", "entry_point"}),
    )


@pytest.mark.shows(
    "cluster-design/example-death-timeout",
    "cluster-design/example-nprocs",
    "cluster-design/example-nthread",
    "cluster-design/parameter-cluster-type",
    "cluster-design/parameter-entry-point",
    "cluster-design/parameter-timeout",
    "cluster-design/teardown-timeout-default",
    "cluster-design/worker-nworkers",
)
@pytest.mark.parametrize(
    ("environ", "name", "value"),
    [
        ({"JOB_RUN_OCID": "r7"}, "run", "r7-new"),
        ({"WORKER_COUNT": "3"}, "worker_count", 3),
        ({"OCI__WORKER_COUNT": "4", "WORKER_COUNT": "3"}, "worker_count", 4),
        ({"OCI__PS_COUNT": "2"}, "ps_count", 2),
        ({"TIMEOUT": "90"}, "timeout", 90.0),
        ({"TIME_OUT": "2m"}, "timeout", 120.0),
        ({"OCI__TIMEOUT": "30", "TIME_OUT": "2m"}, "timeout", 30.0),
        ({"OCI__ENTRY_SCRIPT": "a.py"}, "entry_point", "a.py"),
        ({"ARGS": "50 'a b'"}, "args", ("50", "a b")),
        ({"OCI__ENTRY_SCRIPT_ARGS": "x", "OCI__ENTRY_SCRIPT_KWARGS": "--k 1"}, "args", ("x",)),
        ({"ARGS": "x", "NAMED_ARGS": "--k 1"}, "kwargs", ("--k", "1")),
        ({"EPHEMERAL": "0", "ENTRY_POINT": ""}, "ephemeral", False),
        ({"OCI__EPHEMERAL": "False"}, "ephemeral", False),
        ({"OCI__EPHEMERAL": "None", "EPHEMERAL": "1"}, "ephemeral", True),
        ({"OCI__EPHEMERAL": "None", "EPHEMERAL": "0", "ENTRY_POINT": ""}, "ephemeral", False),
        ({"OCI__WORKER_COUNT": " ", "WORKER_COUNT": "3"}, "worker_count", 3),
        ({"OCI__TIMEOUT": "None", "OCI__TIME_OUT": "", "TIME_OUT": "2m"}, "timeout", 120.0),
        ({"TTL": "2h"}, "ttl", 7200.0),
        ({"OCI__MODE": "worker"}, "mode", "WORKER"),
        ({"nprocs": "4", "nthread": "2"}, "processes", 4),
        ({"nthread": "2"}, "threads", 2),
        ({"death_timeout": "10"}, "death_timeout", 10.0),
        ({"RANK": "0"}, "rank", 0),
        ({"OCI__START_ARGS": "--worker-port 8700:8800"}, "start_args", None),
        ({"PROFILE": "1", "PROFILE_CMD": "nsys profile"}, "profiler", ("nsys", "profile")),
        ({"PROFILE_CMD": "nsys profile"}, "profiler", ()),
    ],
)
def test_parameters_are_read_in_both_spellings(
    environ: dict[str, str], name: str, value: object
) -> None:
    found = getattr(read(**environ), name)
    expected = {"start_args": ("--worker-port", "8700:8800")}
    assert found == (expected[name] if value is None else value)


def test_a_node_that_serves_needs_no_program() -> None:
    assert read(MODE="WORKER", ENTRY_POINT="").entry_point is None
    with pytest.raises(InvalidInput, match="ENTRY_POINT: is not set"):
        read(MODE="WORKER", ENTRY_POINT="", CLUSTER_TYPE="PYTORCH")


@pytest.mark.shows(
    "cluster-design/parameter-cluster-type",
    "cluster-design/parameter-mode",
    "cluster-design/parameter-work-dir",
)
def test_all_errors_are_reported_at_once() -> None:
    wrong = {
        "MODE": "BOSS",
        "CLUSTER_TYPE": "DASKK",
        "WORKER_COUNT": "many",
        "TIMEOUT": "soon",
        "EPHEMERAL": "maybe",
        "ARGS": "'",
    }
    with pytest.raises(InvalidInput) as caught:
        read_parameters(wrong, "new")
    problems = {problem.path: str(problem) for problem in caught.value.problems}
    assert set(problems) == {*wrong, "WORK_DIR", "JOB_OCID", "ENTRY_POINT"}
    assert 'did you mean "dask"' in problems["CLUSTER_TYPE"]
    assert "MAIN, WORKER or PS" in problems["MODE"]


def test_digits_that_are_not_ascii_are_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        read(WORKER_COUNT="²")
    assert any(problem.path == "WORKER_COUNT" for problem in caught.value.problems)


@pytest.mark.parametrize("kind", ["git", "remote", "GIT"])
def test_code_that_muster_node_does_not_fetch_is_refused(kind: str) -> None:
    """The files in CODE_DIR may be older than the code that was meant."""
    with pytest.raises(InvalidInput) as caught:
        read(OCI__RUNTIME_TYPE=kind, OCI__RUNTIME_URI="https://h/o/r.git", WORKER_COUNT="x")
    (problem,) = (p for p in caught.value.problems if p.path == "OCI__RUNTIME_TYPE")
    assert "OCI__RUNTIME_URI" in problem.hint and "unset OCI__RUNTIME_TYPE" in problem.hint
    assert any(p.path == "WORKER_COUNT" for p in caught.value.problems)
    for unset in ("", "None", "python"):
        assert read(OCI__RUNTIME_TYPE=unset).entry_point == "train.py"


def test_a_copy_that_is_not_made_is_reported() -> None:
    (output,) = not_honored({"SYNC_ARTIFACTS": "1"}, read())
    assert "nothing is copied" in output
    assert not_honored({"SYNC_ARTIFACTS": "0"}, read()) == not_honored({}, read()) == []


def test_parameters_without_effect_are_reported() -> None:
    (output,) = not_honored({}, read(TTL="2h"))
    assert "TTL is for a persistent cluster (EPHEMERAL=0)" in output
    (output,) = not_honored({}, read(TTL="2h", EPHEMERAL="0"))
    assert "ENTRY_POINT is for EPHEMERAL=1" in output


@pytest.mark.parametrize(
    ("work_dir", "message"),
    [
        ("memory://here", "no other node sees it"),
        ("http://h/clusters", "can only be read"),
        ("https://h/clusters", "can only be read"),
        ("data:text/plain,here", "can only be read"),
        ("data://here", "can only be read"),
        ("github://owner:repo@main/", "nothing can be written there"),
        ("git://repo", "nothing can be written there"),
        ("gitfs://repo", "nothing can be written there"),
        ("zip://a::/tmp/a.zip", "one archive"),
        ("zip:///tmp/a.zip", "one archive"),
        ("simplecache::s3://bucket/clusters", "reads from a copy"),
        ("foo://bar", "Protocol not known: foo"),
        ("s3://", "names no bucket"),
    ],
)
@pytest.mark.shows("cluster-design/parameter-work-dir", "cluster-design/parameter-work-dir-gitfs")
def test_a_file_system_that_cannot_be_a_work_dir_is_refused(work_dir: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(WORK_DIR=work_dir, WORKER_COUNT="x")
    problems = {problem.path: problem for problem in caught.value.problems}
    assert set(problems) == {"WORK_DIR", "WORKER_COUNT"}
    assert (
        message in problems["WORK_DIR"].message
        and "s3://bucket/clusters" in problems["WORK_DIR"].hint
    )
    with pytest.raises(InvalidInput, match="OCI__WORK_DIR: "):
        read(OCI__WORK_DIR=work_dir)


@pytest.mark.parametrize("work_dir", ["/shared", "shared", "file:///shared", "s3://bucket/x"])
def test_paths_and_writable_urls_can_be_a_work_dir(work_dir: str) -> None:
    assert read(WORK_DIR=work_dir).work_dir == work_dir


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("JOB_OCID", "a/b", "cannot be the name of a folder"),
        ("JOB_OCID", "..", "cannot be the name of a folder"),
        ("MUSTER_NODE_ADDRESS", "10.0.0.1:8786", "is not an address or host name"),
        ("MODE", "SCHEDULER", "is not a mode"),
        ("WORKER_COUNT", "-1", "must be a whole number from 0"),
        ("PS_COUNT", "1.5", "must be a whole number from 0"),
        ("EPHEMERAL", "perhaps", "must be 0 or 1"),
        ("TIME_OUT", "ten", "'ten'"),
        ("TTL", "-1h", "'-1h'"),
        ("nprocs", "0", "must be a whole number from 1"),
        ("nthread", "two", "must be a whole number from 1"),
        ("death_timeout", "never", "'never'"),
        ("RANK", "first", "must be a whole number from 0"),
        ("ARGS", "'", "No closing quotation"),
        ("NAMED_ARGS", "'", "No closing quotation"),
    ],
)
def test_a_bad_value_is_reported_with_its_variable(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(**{name: value})
    (problem,) = caught.value.problems
    assert problem.path == name and message in problem.message
