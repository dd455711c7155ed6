"""What runs have left is ended, and commands about other runs do not wait for that."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from muster.control import clean_up
from muster.control.clean_up import clean_up_soon, is_under_way
from muster.engines.base import Capabilities, Engine
from muster.errors import EngineError
from support.faults import until


class FakeEngine:
    """Answers when a test lets it."""

    name = "far"

    def __init__(self, *, detached: bool = True, error: Exception | None = None) -> None:
        self.capabilities = Capabilities(detached=detached)
        self.may_answer = threading.Event()
        self.error = error
        self.begun: list[str] = []

    def clean_up(self, run_id: str) -> None:
        self.begun.append(run_id)
        assert self.may_answer.wait(20)
        if self.error is not None:
            raise self.error


def soon(engine: FakeEngine, run_id: str) -> None:
    clean_up_soon(cast(Engine, engine), run_id)


def test_an_engine_that_answers_is_waited_for() -> None:
    engine = FakeEngine()
    engine.may_answer.set()
    soon(engine, "a")
    soon(engine, "a")
    assert engine.begun == ["a", "a"]
    assert not is_under_way("a")


@pytest.mark.parametrize("detached", [False, True])
def test_an_error_is_passed_on(detached: bool) -> None:
    engine = FakeEngine(detached=detached, error=EngineError("no right"))
    engine.may_answer.set()
    with pytest.raises(EngineError, match="no right"):
        soon(engine, "a")


def test_one_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean_up, "_TIMEOUT", 0.05)
    engine = FakeEngine()
    for _ in range(3):
        with pytest.raises(EngineError, match=r"engine far has not confirmed within 0\.05 seconds"):
            soon(engine, "a")
    assert engine.begun == ["a"]  # once for all
    assert is_under_way("a")
    engine.may_answer.set()
    until(lambda: not is_under_way("a"), "it has ended", 20)
    soon(engine, "a")


def test_the_first_of_several_uses_up_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Any] = []
    join = clean_up._CleanUp.join

    def noted(one: clean_up._CleanUp, timeout: float | None = None) -> None:
        waits.append(timeout)
        join(one, 0.0)

    monkeypatch.setattr(clean_up._CleanUp, "join", noted)
    engine = FakeEngine()
    for run_id in ("a", "b", "c"):
        with pytest.raises(EngineError):
            soon(engine, run_id)
    assert waits == [clean_up._TIMEOUT, *[clean_up._NEXT_TIMEOUT] * 2]
    engine.may_answer.set()
    until(lambda: not any(map(is_under_way, "abc")), "all have ended", 20)
