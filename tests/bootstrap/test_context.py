"""The checks that may stop a node, called at every poll."""

from __future__ import annotations

from muster.bootstrap.agent_process import StopReason
from muster.bootstrap.context import first_reason
from muster.errors import EngineError


def fails() -> StopReason | None:
    raise EngineError("the store cannot be reached")


def test_a_check_that_fails_does_not_keep_the_others_from_being_called() -> None:
    first, second = StopReason("first", failed=False), StopReason("second", failed=True)
    assert first_reason((fails, lambda: None, lambda: first, lambda: second)) == first
    assert first_reason((fails, lambda: None)) is None
