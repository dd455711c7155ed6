"""What the service says of a job run, and what that means."""

from __future__ import annotations

import pytest

from muster.engines.oci.states import JobRun, how_it_ended, why_it_waits
from muster.lifecycle.status import Reason

RUN = "ocid1.datasciencejobrun.oc1.iad.aaaaaaaaabcdef"


@pytest.mark.parametrize(
    ("state", "details", "reason", "text"),
    [
        (
            "FAILED",
            "Job run artifact execution failed with exit code 3.",
            Reason.NODE_LOST,
            "job run ...abcdef has failed: Job run artifact execution failed with exit code 3",
        ),
        ("FAILED", "", Reason.NODE_LOST, "job run ...abcdef has failed"),
        ("CANCELED", "", Reason.CANCELED, "job run ...abcdef was canceled in the service"),
        (
            "CANCELING",
            "canceled by ana",
            Reason.CANCELED,
            "job run ...abcdef was canceled in the service: canceled by ana",
        ),
        (
            "CANCELED",
            "The job run exceeded maximum runtime of 60 minutes.",
            Reason.DEADLINE,
            "job run ...abcdef has reached its maximum run time: The job run exceeded maximum "
            "runtime of 60 minutes",
        ),
        ("DELETED", "", Reason.CANCELED, "job run ...abcdef was deleted in the service"),
        ("SUCCEEDED", "", Reason.NODE_LOST, "job run ...abcdef has ended (SUCCEEDED)"),
    ],
)
def test_why_nodes_have_ended(state: str, details: str, reason: Reason, text: str) -> None:
    assert how_it_ended(JobRun(RUN, state, details)) == (reason, text)


def test_a_node_group_that_has_failed_is_named() -> None:
    run = JobRun(
        RUN, "FAILED", failed_groups=(("w", "FAILED", "no capacity."), ("x", "FAILED", ""))
    )
    assert how_it_ended(run)[1].endswith("has failed: group w: no capacity; group x: FAILED")


@pytest.mark.parametrize(
    ("state", "details", "text"),
    [
        ("ACCEPTED", "Infrastructure\n provisioning.", "Infrastructure provisioning"),
        ("ACCEPTED", "", "the service provides its machine"),
        (
            "IN_PROGRESS",
            "Job run artifact execution in progress.",
            "the node program starts in the job run",
        ),
        ("NEEDS_ATTENTION", "no log.", "its job run needs attention: no log"),
    ],
)
def test_why_nodes_wait(state: str, details: str, text: str) -> None:
    assert why_it_waits(JobRun(RUN, state, details)) == text


@pytest.mark.parametrize(
    ("state", "over"),
    [("ACCEPTED", False), ("CANCELING", False), ("FAILED", True), ("DELETED", True)],
)
def test_whether_a_process_may_be_left(state: str, over: bool) -> None:
    assert JobRun(RUN, state).over is over
