"""The census: what is counted of nodes."""

from __future__ import annotations

from muster.lifecycle import census
from support.life import begun, policy


def test_who_starts_again_has_not_failed() -> None:
    """One replica may fail. The first was too slow and is tried again; the second fails."""
    life = begun(policy((2, 1, 1, {"retries": 1, "ready_timeout": 10}))).up(1)
    life.tick(after=10)
    assert life.status.census is not None
    assert life.status.census.groups[0].failed == 0
    life.end(1, 1).up(1).end(1, 1)
    assert life.status.stopping is None, "the first may still succeed"
    assert not census.up(life.policy, life.status.census, 0)
    life.obey().up(0).end(0)
    assert life.status.state == "SUCCEEDED"
