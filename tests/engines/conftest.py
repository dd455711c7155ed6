"""The contract tests drive each engine through its session only.

A new engine is added to ENGINES. The local engine is tested with namespaces and without.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.sessions import Session, make_plan

ENGINES = ["local-namespaces", "local-plain"]

MakeSession = Callable[..., Session]


@pytest.fixture(params=ENGINES)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def session(kind: str, own_home: Path) -> Iterator[MakeSession]:
    made: list[Session] = []

    def make(command: str, nodes: int = 1, *, keep: bool = False, **more: Any) -> Session:
        plan = make_plan(command, nodes, **more)
        (own_home / "runs" / plan.run_id).mkdir(parents=True)
        made.append(Session(kind, own_home, plan, keep=keep))
        return made[-1]

    yield make
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            os.kill(one.pid, signal.SIGKILL)
            one.process.wait(30)
        for pipe in (one.process.stdin, one.process.stdout):
            if pipe is not None:
                pipe.close()
