"""Effects that the next supervisor of a run carries out again."""

from __future__ import annotations

import pytest

from muster.lifecycle.effects import (
    Effect,
    KillNodes,
    ReleaseNodes,
    SignalNodes,
    StartNodes,
    StopNodes,
)
from muster.lifecycle.outstanding import effects
from muster.lifecycle.policy import Checkpoint
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef, NodeStatus, RunStatus
from support.run_driver import policy, refs

N = NodeState
SAVING = Checkpoint(10, 30)


@pytest.mark.parametrize(
    ("node", "effect"),
    [
        (NodeStatus(), None),
        (NodeStatus(N.STARTING, 3), StartNodes(2, refs(1, incarnation=3))),
        (NodeStatus(N.RUNNING), None),
        (NodeStatus(N.READY), None),
        (NodeStatus(N.STARTING, term_at=5.0), SignalNodes(refs(1), 10)),
        (NodeStatus(N.READY, 3, term_at=5.0), SignalNodes(refs(1, incarnation=3), 10)),
        (NodeStatus(N.STARTING, kill_at=5.0), StopNodes(refs(1))),
        (
            NodeStatus(N.RUNNING, 3, kill_at=5.0, next_incarnation=4),
            StopNodes(refs(1, incarnation=3)),
        ),
        (NodeStatus(N.RUNNING, kill_at=5.0, killed=True), KillNodes(refs(1))),
        (NodeStatus(N.SUCCEEDED), None),
        (NodeStatus(N.FAILED, kill_at=5.0, killed=True), None),
        (NodeStatus(N.STOPPED, kill_at=5.0), None),
        (NodeStatus(N.SCALED_DOWN), ReleaseNodes(refs(1))),
        (NodeStatus(N.SCALED_DOWN, 3), ReleaseNodes(refs(1, incarnation=3))),
    ],
)
def test_outstanding_effects_of_each_node_state(node: NodeStatus, effect: Effect | None) -> None:
    status = RunStatus((NodeStatus(N.READY), node), attempt=2)
    made = effects(policy((1, 2, None), checkpoint=SAVING), status)
    assert made == (() if effect is None else (effect,))


def test_outstanding_effects_are_in_the_original_order() -> None:
    nodes = (
        NodeStatus(N.RUNNING, kill_at=5.0, killed=True),
        NodeStatus(N.SUCCEEDED),
        NodeStatus(N.RUNNING, kill_at=5.0),
        NodeStatus(N.RUNNING, term_at=5.0),
        NodeStatus(N.STARTING, 1),
        NodeStatus(N.STARTING),
        NodeStatus(N.RUNNING, term_at=5.0),
    )
    assert effects(policy((1, 7, None), checkpoint=SAVING), RunStatus(nodes)) == (
        StartNodes(0, (NodeRef(4, 1), NodeRef(5, 0))),
        SignalNodes(refs(3, 6), 10),
        StopNodes(refs(2)),
        KillNodes(refs(0)),
    )


def test_without_a_checkpoint_setting_no_signal_is_sent() -> None:
    status = RunStatus((NodeStatus(N.RUNNING, term_at=5.0),))
    assert effects(policy((1, 1, None)), status) == ()
