"""One step of a run that nobody drives: decided and recorded, as its controller would."""

from __future__ import annotations

from collections.abc import Sequence

from muster.control.clock import SteadyClock
from muster.control.ledger import Ledger
from muster.lifecycle.decide import decide
from muster.lifecycle.events import Event
from muster.lifecycle.status import RunStatus
from muster.plan.model import RunPlan
from muster.store import events
from muster.store.database import Database


def step(
    db: Database, plan: RunPlan, ledger: Ledger, before: RunStatus, told: Sequence[Event]
) -> None:
    """Record what follows for a run in the status `before`. To be called under its lease; what is
    to be done is left to whoever drives it next."""
    now = SteadyClock(events.last_time(db, plan.run_id)).now()
    decision = decide(plan.policy, before, told, now)
    ledger.record(before, decision.status, decision.entries, now)
