"""The stream of events that an engine ends now and then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from muster.engines.container.api import CannotReach, Daemon
from muster.engines.container.watcher import Watcher


class Stream:
    """Ends at once."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter([{"Action": "die", "id": "a"}])

    def close(self) -> None:
        pass


class Engine:
    """Answers, or does not, in this order."""

    def __init__(self, answers: str) -> None:
        self._answers = iter(answers)

    def stream(self, *_: object) -> Stream:
        if next(self._answers) == "-":
            raise CannotReach("it is being restarted")
        return Stream()


def test_pauses_are_short_again_after_the_stream_was_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, resumed, pauses = list[str](), list[bool](), list[float]()
    engine = Engine("+---++-+")
    watcher = Watcher(cast(Daemon, engine), "r", ended.append, lambda: resumed.append(True))

    def wait(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == 8:
            watcher._closed.set()

    monkeypatch.setattr(watcher._closed, "wait", wait)
    watcher.watch()
    assert pauses == [0.2, 0.4, 0.8, 1.6, 0.2, 0.2, 0.4, 0.2]
    assert ended == ["a"] * 4
    assert resumed == [True] * 3
