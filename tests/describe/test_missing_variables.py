"""Hints about variables that a program did not find."""

from __future__ import annotations

import pytest

from muster.client.client import Client
from muster.describe.missing_variables import hint_for

TORCH = (
    "ValueError: Error initializing torch.distributed using env:// rendezvous: "
    "environment variable MASTER_ADDR expected, but not set"
)


@pytest.mark.parametrize(
    ("framework", "message", "variable"),
    [
        ("generic", TORCH, "MASTER_ADDR"),
        ("generic", "KeyError: 'LOCAL_RANK'", "LOCAL_RANK"),
        ("generic", "KeyError: 'HOME'", ""),
        ("generic", "", ""),
        ("pytorch", TORCH, ""),
        ("mpi", TORCH, ""),
    ],
)
def test_the_framework_that_sets_a_variable_is_named(
    framework: str, message: str, variable: str
) -> None:
    hint = f"`--framework pytorch` sets {variable}" if variable else ""
    assert hint_for(framework, message) == hint


def test_a_run_has_the_hint(client: Client) -> None:
    program = f"import sys; sys.exit({TORCH!r})"
    job, new = client.job(command=["python", "-c", program])
    run = client.start(client.prepare_run(job, new_job=new)).wait(60)
    assert run.hint == "`--framework pytorch` sets MASTER_ADDR"
