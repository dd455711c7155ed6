"""States of node groups."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from muster.server.oci.node_groups import node_groups
from muster.spec.formats.oci.decoding import decode
from muster.spec.formats.oci.model import JobDetails
from muster.store.records import NodeRecord
from support.store_records import node

JOB = decode(
    JobDetails,
    {
        "jobNodeConfigurationDetails": {
            "jobNodeType": "MULTI_NODE",
            "jobNodeGroupConfigurationDetailsList": [{"name": "a"}, {"name": "b"}],
        }
    },
)


def nodes(group: str, *states: str) -> list[NodeRecord]:
    return [
        replace(node(rank), group=group, state=state, exit_code=3 if state == "FAILED" else None)
        for rank, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("states", "ended", "state", "details"),
    [
        ((), False, "CREATING", ""),
        (("PENDING", "RUNNING"), False, "CREATING", ""),
        (("STARTING",), False, "CREATING", ""),
        (("RUNNING", "READY"), False, "ACTIVE", ""),
        (("RUNNING", "SUCCEEDED"), False, "ACTIVE", ""),
        (("SUCCEEDED", "STOPPED"), False, "DELETED", ""),
        (("RUNNING", "FAILED"), False, "CREATING", "node rank 1 failed with exit code 3"),
        (("SUCCEEDED", "SUCCEEDED"), True, "DELETED", ""),
        (("STOPPED", "FAILED"), True, "FAILED", "node rank 1 failed with exit code 3"),
        (
            ("FAILED", "FAILED", "FAILED"),
            True,
            "FAILED",
            "node rank 0 failed with exit code 3, and 2 more",
        ),
        ((), True, "DELETED", ""),
    ],
)
def test_states(states: tuple[str, ...], ended: bool, state: str, details: str) -> None:
    first, second = node_groups(JOB, nodes("a", *states), ended=ended)
    assert first == {"name": "a", "lifecycleState": state, "lifecycleDetails": details}
    assert second["name"] == "b"


def test_a_job_without_groups() -> None:
    assert node_groups(JobDetails(), nodes("a", "RUNNING"), ended=False) == []
