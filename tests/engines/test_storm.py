"""Calls, ends of programs and killed agents in random order."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable

import pytest

from support.sessions import Session

NODES = 6
ROUNDS = 300  # ends
#: Leaves a daemon running; ends by itself in every other incarnation, and ignores SIGTERM in the
#: others.
PROGRAM = """
    setsid sleep 98763 &
    case $((MUSTER_RESTART * 7 + NODE_RANK)) in *[02468]) exit $((MUSTER_RESTART % 3));; esac
    trap '' TERM; while :; do sleep 0.01; done
"""


class Storm:
    """The calls made to a session, and the events that may follow from them."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        self.session = session
        self.random = rng
        self.incarnation = [-1] * NODES
        self.up = [False] * NODES
        self.ends = 0

    def start(self) -> None:
        for rank in range(NODES):
            if not self.up[rank]:
                self.incarnation[rank] += self.random.choice([1, 1, 2])
                self.up[rank] = True
                self.session.start(
                    rank, incarnation=self.incarnation[rank], attempt=self.ends // 50
                )

    def disturb(self) -> None:
        rank = self.random.randrange(NODES)
        match self.random.choice(["stop", "kill", "lose", "lose", "stale"]):
            case "stop":
                self.session.stop(rank, incarnation=self.incarnation[rank])
            case "kill":
                self.session.kill(rank, incarnation=self.incarnation[rank])
            case "stale":
                self.session.kill(rank, incarnation=self.incarnation[rank] - 1)
                self.session.start(rank, incarnation=self.incarnation[rank])
            case _:
                with contextlib.suppress(ProcessLookupError, IndexError):
                    os.kill(self.random.choice(self.session.agents()), signal.SIGKILL)

    def await_end(self) -> None:
        """Wait for the next end, which must be of an incarnation that is running."""
        while (event := self.session.event())["event"] != "NodeEnded":
            pass
        rank = event["rank"]
        assert (event["incarnation"], self.up[rank]) == (self.incarnation[rank], True)
        self.up[rank] = False
        self.ends += 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "keep", [pytest.param(True, marks=pytest.mark.capability("in_place")), False]
)
@pytest.mark.parametrize("storm_number", range(5))
def test_each_incarnation_ends_once_in_a_storm(
    session: Callable[..., Session],
    alive: Callable[[str], list[str]],
    rng: random.Random,
    storm_number: int,
    keep: bool,
) -> None:
    mark = os.urandom(8).hex()
    one = session(PROGRAM, nodes=NODES, keep=keep, grace_period=0.05, env={"MARK": mark})
    storm = Storm(one, rng)
    while storm.ends < ROUNDS:
        if not any(storm.up) or storm.random.random() < 0.7:
            storm.start()
        storm.disturb()
        rank = storm.up.index(True)
        one.stop(rank, incarnation=storm.incarnation[rank])  # so that there is an end
        storm.await_end()
    for rank, up in enumerate(storm.up):
        if up:
            one.kill(rank, incarnation=storm.incarnation[rank])
    while any(storm.up):
        storm.await_end()
    assert alive(f"MARK={mark}") == []
    assert one.close() == 0
