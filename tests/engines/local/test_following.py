"""What followed from a main node's end is told after it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from muster.engines.local.following import Following
from muster.engines.local.starting import LocalNode
from muster.frameworks.base import RoleSetup, Service, Succeeds
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import NodeRef
from support.sessions import Session, make_plan

MakeSession = Callable[..., Session]


def node(rank: int) -> LocalNode:
    return LocalNode(NodeRef(rank, 0), 0, rank, cast(Any, None), None, ())


def ended(rank: int, code: int | None = 0) -> NodeEnded:
    return NodeEnded(rank, code)


def test_failures_wait_for_whom_they_follow() -> None:
    main, one, two, three = map(node, range(4))
    following = Following()
    assert following.sort(one, ended(1, 1)) == [ended(1, 1)], "nobody is done"
    following.begin(main)
    assert following.sort(two, ended(2, 1)) == []
    assert following.sort(three, ended(3)) == [ended(3)], "a success follows from nothing"
    assert following.sort(main, ended(0)) == [ended(0), ended(2, 1)]
    assert following.sort(one, ended(1, 1)) == [ended(1, 1)]


def test_of_two_who_are_done_the_last_is_waited_for() -> None:
    main, other, one, two = map(node, range(4))
    following = Following()
    following.begin(main)
    following.begin(other)
    assert following.sort(one, ended(2, None)) == []
    assert following.sort(other, ended(1)) == [ended(1)]
    assert following.sort(two, ended(3, 9)) == []
    assert following.sort(main, ended(0)) == [ended(0), ended(2, None), ended(3, 9)]


@pytest.fixture(params=["local-namespaces", "local-plain"])
def session(request: pytest.FixtureRequest, own_home: Path) -> Iterator[MakeSession]:
    made: list[Session] = []

    def make(command: str, nodes: int, *, keep: bool, **more: Any) -> Session:
        plan = make_plan(command, nodes, **more)
        (own_home / "runs" / plan.run_id).mkdir(parents=True)
        made.append(Session(request.param, own_home, plan, keep=keep))
        return made[-1]

    yield make
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            os.kill(one.pid, signal.SIGKILL)
            one.process.wait(60)
        for pipe in (one.process.stdin, one.process.stdout):
            if pipe is not None:
                pipe.close()


#: Once it is told to end, it waits until the other node's program has gone.
SERVICE = """
    trap 'touch {shared}/leaving; while ! [ -e {shared}/gone ]; do sleep 0.01; done; exit 0' TERM
    echo up > ${{folder}}/mark; while :; do sleep 0.01; done
"""
PROGRAM = """
    if [ "$RANK" = 0 ]; then exit 0; fi
    while ! [ -e {shared}/leaving ]; do sleep 0.01; done
    touch {shared}/gone; exit 7
"""


@pytest.mark.parametrize("keep", [True, False])
def test_the_main_node_s_end_is_told_first(
    session: MakeSession, tmp_path: Path, keep: bool
) -> None:
    """Its program has ended well; its service has not when the other node fails of that."""
    service = Service(
        "serving",
        ("sh", "-c", SERVICE.format(shared=tmp_path)),
        ready=Succeeds(("sh", "-c", "test -s ${folder}/mark")),
        grace=600.0,
    )
    script = PROGRAM.format(shared=tmp_path)
    one = session(script, 2, keep=keep, role=RoleSetup(services=(service,)))
    one.start(0, 1)
    ended: list[dict[str, Any]] = []
    while len(ended) < 2:
        event = one.event()
        if event["event"] == "NodeEnded":
            ended.append(event)
    assert [(event["rank"], event["exit_code"]) for event in ended] == [(0, 0), (1, 7)]
    assert one.close() == 0
