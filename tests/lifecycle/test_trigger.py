"""Which events start runs, and which schedules would start each other without end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.lifecycle.trigger import (
    AfterRun,
    End,
    ObjectCreated,
    Trigger,
    Webhook,
    cycle_problem,
    event_types,
    matches,
)
from muster.store.outbox_records import EVENT_TYPES

TRAIN = {"job_name": "train"}


@pytest.mark.parametrize(
    ("trigger", "type", "data", "expected"),
    [
        (AfterRun("train"), "run.succeeded", TRAIN, True),
        (AfterRun("train"), "run.succeeded", {"job_name": "train-2"}, False),
        (AfterRun("train"), "run.failed", TRAIN, False),
        (AfterRun("train", End.FAILED), "run.failed", TRAIN, True),
        (AfterRun("train", End.FAILED), "run.canceled", TRAIN, False),
        (AfterRun("train", End.ENDED), "run.canceled", TRAIN, True),
        (AfterRun("train", End.ENDED), "run.in_progress", TRAIN, False),
        (ObjectCreated("b", "in/"), "object.created", {"bucket": "b", "name": "in/x"}, True),
        (ObjectCreated("b", "in/"), "object.replaced", {"bucket": "b", "name": "in/x"}, True),
        (ObjectCreated("b", "in/"), "object.created", {"bucket": "b", "name": "out/x"}, False),
        (ObjectCreated("b", "in/"), "object.created", {"bucket": "b", "name": "x/in/y"}, False),
        (ObjectCreated("b"), "object.created", {"bucket": "c", "name": "x"}, False),
        (ObjectCreated("b"), "object.deleted", {"bucket": "b", "name": "x"}, False),
        (Webhook(), "run.succeeded", TRAIN, False),
        (None, "run.succeeded", TRAIN, False),
    ],
)
def test_events_that_start_runs(
    trigger: Trigger | None, type: str, data: dict[str, Any], expected: bool
) -> None:
    assert matches(trigger, type, data) is expected


def test_types_are_those_that_are_recorded() -> None:
    triggers = [*(AfterRun("a", on) for on in End), ObjectCreated("b")]
    assert {name for one in triggers for name in event_types(one)} <= {*EVENT_TYPES}
    assert event_types(Webhook()) == event_types(None) == ()


@pytest.mark.parametrize(
    ("edges", "first", "then", "way"),
    [
        ([], "a", "a", "a -> a"),
        ([("b", "a")], "a", "b", "a -> b -> a"),
        ([("b", "c"), ("b", "d"), ("d", "a")], "a", "b", "a -> b -> d -> a"),
    ],
)
def test_cycles_are_named(edges: list[tuple[str, str]], first: str, then: str, way: str) -> None:
    problem = cycle_problem(edges, first, then)
    assert problem is not None and problem.message.endswith(f"without end: {way}")


def test_chains_and_joins_are_no_cycles() -> None:
    assert cycle_problem([("b", "c"), ("a", "c")], "a", "b") is None


def test_jobs_on_many_ways_are_looked_at_once() -> None:
    layers = [
        (f"{n}-{one}", f"{n + 1}-{other}") for n in range(60) for one in "ab" for other in "ab"
    ]
    assert cycle_problem(layers, "first", "0-a") is None


NAMES = st.sampled_from("abcde")


@given(st.lists(st.tuples(NAMES, NAMES), max_size=8), NAMES, NAMES)
def test_a_cycle_is_found_if_one_can_walk_it(
    edges: list[tuple[str, str]], first: str, then: str
) -> None:
    reached = {then}
    for _ in edges:
        reached |= {after for before, after in edges if before in reached}
    assert (cycle_problem(edges, first, then) is not None) == (first in reached)
