"""Ends what runs have left with their engine, while a command waits that is about something else,
such as `muster ps`: the engine may not answer, and nodes may take their time to end."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from muster.errors import EngineError

if TYPE_CHECKING:
    from muster.engines.base import Engine

#: Seconds that a command waits for one engine, and for each other one meanwhile.
_TIMEOUT, _NEXT_TIMEOUT = 2.0, 0.1


class _CleanUp(threading.Thread):
    def __init__(self, engine: Engine, run_id: str) -> None:
        super().__init__(daemon=True, name="clean-up")
        self._engine, self._run_id = engine, run_id
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._engine.clean_up(self._run_id)
        except Exception as error:  # noqa: BLE001  raised where it is waited for
            self.error = error
        finally:
            _under_way.pop(_key(self._run_id), None)


#: A forked process has none of them.
_under_way: dict[tuple[int, str], _CleanUp] = {}
_starting = threading.Lock()


def _key(run_id: str) -> tuple[int, str]:
    return os.getpid(), run_id


def is_under_way(run_id: str) -> bool:
    """Whether this process still ends what a run has left."""
    return _key(run_id) in _under_way


def clean_up_soon(engine: Engine, run_id: str) -> None:
    """As `Engine.clean_up`. Raises EngineError, also if that takes longer than a command may wait:
    then it continues while this process runs, and the next command does it again."""
    if not engine.capabilities.detached:  # nothing of it is elsewhere
        engine.clean_up(run_id)
        return
    with _starting:
        is_waiting = any(pid == os.getpid() for pid, _ in [*_under_way])
        timeout = _NEXT_TIMEOUT if is_waiting else _TIMEOUT
        one = _under_way.get(_key(run_id))
        if one is None:
            one = _under_way[_key(run_id)] = _CleanUp(engine, run_id)
            one.start()
    one.join(timeout)
    if one.is_alive():
        raise EngineError(
            f"engine {engine.name} has not confirmed within {_TIMEOUT:g} seconds that its nodes "
            "have ended: the next command looks again"
        )
    if one.error is not None:
        raise one.error
