"""Everything at once, from a seed: ends, orders, agents that are killed at any moment."""

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
#: Leaves a daemon behind; ends by itself in every other life, and else is deaf to SIGTERM.
PROGRAM = """
    setsid sleep 98763 &
    case $((MUSTER_RESTART * 7 + NODE_RANK)) in *[02468]) exit $((MUSTER_RESTART % 3));; esac
    trap '' TERM; while :; do sleep 0.01; done
"""


class Storm:
    """What was asked of a session, and what it may therefore tell."""

    def __init__(self, session: Session, seed: int) -> None:
        self.session = session
        self.random = random.Random(seed)
        self.life = [-1] * NODES
        self.up = [False] * NODES
        self.ends = 0

    def start(self) -> None:
        for rank in range(NODES):
            if not self.up[rank]:
                self.life[rank] += self.random.choice([1, 1, 2])
                self.up[rank] = True
                self.session.start(rank, life=self.life[rank], attempt=self.ends // 50)

    def disturb(self) -> None:
        rank = self.random.randrange(NODES)
        match self.random.choice(["stop", "kill", "lose", "lose", "stale"]):
            case "stop":
                self.session.stop(rank, life=self.life[rank])
            case "kill":
                self.session.kill(rank, life=self.life[rank])
            case "stale":
                self.session.kill(rank, life=self.life[rank] - 1)
                self.session.start(rank, life=self.life[rank])
            case _:
                with contextlib.suppress(ProcessLookupError, IndexError):
                    os.kill(self.random.choice(self.session.agents()), signal.SIGKILL)

    def hear(self) -> None:
        """The next end: of a life that was begun, and has not ended."""
        while (event := self.session.event())["event"] != "NodeEnded":
            pass
        rank = event["rank"]
        assert (event["incarnation"], self.up[rank]) == (self.life[rank], True)
        self.up[rank] = False
        self.ends += 1


@pytest.mark.slow
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_each_life_ends_once_in_a_storm(
    session: Callable[..., Session], alive: Callable[[str], list[str]], seed: int, keep: bool
) -> None:
    mark = os.urandom(8).hex()
    one = session(PROGRAM, nodes=NODES, keep=keep, grace_period=0.05, env={"MARK": mark})
    storm = Storm(one, seed)
    while storm.ends < ROUNDS:
        if not any(storm.up) or storm.random.random() < 0.7:
            storm.start()
        storm.disturb()
        rank = storm.up.index(True)
        one.stop(rank, life=storm.life[rank])  # so that there is an end to hear of
        storm.hear()
    for rank, up in enumerate(storm.up):
        if up:
            one.kill(rank, life=storm.life[rank])
    while any(storm.up):
        storm.hear()
    assert alive(f"MARK={mark}") == []
    assert one.close() == 0
