"""The tables and rules that differ by state know every state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from muster.cli.run_details import _next
from muster.client import html
from muster.describe import events
from muster.describe.colors import STATE_COLORS, Color
from muster.lifecycle.states import NodeState, RunState
from muster.service import inside

#: States that no run of this version takes.
NEVER = {RunState.NEEDS_ATTENTION, RunState.DELETED}
#: States in which a run has processes that commands can be run in.
WITH_PROCESSES = {RunState.IN_PROGRESS, RunState.CANCELING}


def test_every_state_has_its_colour() -> None:
    assert STATE_COLORS.keys() == {*RunState, *NodeState, "UP"}
    assert {*html._SHADES} == {*get_args(Color)}
    assert html.card("a", "QUEUED", {}).count(html._SHADES["yellow"]) == 1


def test_every_change_of_state_has_its_sentence() -> None:
    assert {*RunState} - {*events._RUN} == NEVER
    assert {*NodeState} == {*events._NODES}


def test_a_run_without_processes_is_answered_with_what_to_do() -> None:
    assert {s for s in RunState if not s.terminal} - WITH_PROCESSES - NEVER == {*inside._HINTS}
    assert "when other runs have ended" in inside._HINTS[RunState.QUEUED]


@pytest.mark.parametrize("state", sorted({*RunState} - NEVER))
def test_a_run_that_has_not_ended_can_be_followed_or_canceled(state: RunState) -> None:
    run = cast("Any", SimpleNamespace(name="a-1", state=str(state), has_array=False))
    offered = list(_next(run, every=True))
    assert ("cancel a-1" in offered) is not (state.terminal or state is RunState.CANCELING)
    followed = {RunState.ACCEPTED, RunState.QUEUED, RunState.IN_PROGRESS, RunState.CANCELING}
    assert ("logs a-1 --follow" in offered) is (state in followed)
