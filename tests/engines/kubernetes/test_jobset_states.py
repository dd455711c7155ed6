"""Which JobSets of an earlier session are gone, as lists of all that there are say."""

from __future__ import annotations

import pytest

from muster.engines.kubernetes.jobset_states import JobSetStates
from muster.engines.kubernetes.pod_facts import JobSetFacts
from muster.engines.kubernetes.record import Allocation


def applied(number: int, owner: str, uid: str = "uid") -> Allocation:
    return Allocation(number, (number,), (number,), uid, owner=owner)


def facts(number: int) -> JobSetFacts:
    return JobSetFacts(f"uid-{number}", f"train-{number}", "r1", False, False, 0, False, "")


@pytest.mark.parametrize(
    ("owner", "kind", "gone"),
    [
        ("JobSet", "JobSet", [0]),
        ("JobSet", "Job", []),
        ("Service", "Job", [0]),
        ("Service", "JobSet", []),
        ("", "JobSet", [0]),  # it is not recorded: either list may say so
        ("", "Job", [0]),
    ],
)
def test_only_a_list_of_its_kind_says_that_one_is_gone(
    owner: str, kind: str, gone: list[int]
) -> None:
    states = JobSetStates([applied(0, owner)])
    assert not states.known
    assert states.listed(kind) == gone
    assert states.known == bool(gone)


def test_all_are_known_after_a_list_of_each_kind() -> None:
    states = JobSetStates([applied(0, "JobSet"), applied(1, "Service"), applied(2, "Service")])
    states.keep(2, facts(2))
    assert states.listed("JobSet") == [0]
    assert not states.known
    assert states.listed("Job") == [1]
    assert states.known


def test_one_is_gone_once() -> None:
    states = JobSetStates([applied(0, "JobSet")])
    assert states.listed("JobSet") == [0]
    assert states.listed("JobSet") == [], "its end is a change by now"


def test_one_that_was_never_applied_is_not_gone() -> None:
    states = JobSetStates([applied(0, "", uid="")])
    assert states.listed("JobSet") == []
    assert states.known
