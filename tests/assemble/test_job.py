"""What a node runs, and what its program is told."""

from __future__ import annotations

import pytest

from muster.assemble.job import arranged_job
from muster.assemble.parameters import Parameters


@pytest.mark.shows("cluster-design/run-args", "cluster-design/run-named-args")
def test_arguments_reach_the_program_and_its_variables() -> None:
    parameters = Parameters(
        *("MAIN", "/shared", "dask", "job", "m"),
        entry_point="a.py",
        args=("x",),
        kwargs=("--k", "1"),
        start_args=("--worker-port", "8700:8800"),
        code_dir="/code",
    )
    spec = arranged_job(parameters, {}).spec
    assert spec.command is not None and spec.command[-4:] == ("/code/a.py", "x", "--k", "1")
    env = spec.node_groups[0].env
    told = {name: env.get(f"OCI__{name}") for name in ("ENTRY_SCRIPT_ARGS", "START_ARGS")}
    assert told == {"ENTRY_SCRIPT_ARGS": "x", "START_ARGS": "--worker-port 8700:8800"}
    assert env["OCI__ENTRY_SCRIPT_KWARGS"] == "--k 1"
