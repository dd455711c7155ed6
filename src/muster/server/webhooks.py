"""Requests to the webhooks of schedules: a signature instead of a token.

What is to be done is decided before it is answered, so that a sender who gets no answer may send
the request again: the same one starts one run.
"""

from __future__ import annotations

import time
from base64 import b64encode
from typing import TYPE_CHECKING

import msgspec

from muster.errors import (
    Conflict,
    NotAuthenticated,
    NotFound,
    StoreBusy,
    StoreError,
    TooManyRequests,
)
from muster.iam.webhook_signatures import Delivery, verify
from muster.identity import is_id
from muster.lifecycle.schedule import happens
from muster.lifecycle.trigger import Event, Webhook
from muster.server.answers import Answer
from muster.server.firings import Firings
from muster.server.limits import Buckets
from muster.storage.sealing import unseal_file
from muster.store.schedule_records import FiringRecord, Outcome, ScheduleRecord

if TYPE_CHECKING:
    from muster.server.call import Call
    from muster.server.state import ServerState

#: The path of a schedule's webhook.
WEBHOOK = "/hooks/{schedule_id}"
#: Bytes of a request's body.
MOST_BODY = 1 << 20
#: Requests to one schedule that are accepted per second, and at once; then those of one address
#: whose signature is wrong.
_RATE, _BURST = 5.0, 50.0
_WRONG_RATE, _WRONG_BURST = 0.2, 20.0
#: How often a decision is tried while others decide about the same schedule.
_TRIES = 20
#: What a sender learns if something is wrong: no more than that.
_REFUSED = "there is no such webhook, or the request is not signed with its secret, or too old"


class Webhooks:
    """See the module."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._firings = Firings(state)
        self._requests = Buckets(_RATE, _BURST)
        self._wrong = Buckets(_WRONG_RATE, _WRONG_BURST)

    async def receive(self, call: Call) -> Answer:
        """POST /hooks/{schedule_id}"""
        if self._wrong.left(call.address) < 1.0:
            text = f"too many requests from {call.address} had a wrong signature; wait some seconds"
            raise TooManyRequests(text)
        body = await call.body(MOST_BODY)
        schedule_id = call.path["schedule_id"]
        try:
            in_thread = self._state.in_thread
            schedule, delivery = await in_thread(self._verified, call, schedule_id, body)
        except NotAuthenticated as error:
            self._wrong.take(call.address)
            known = {"request": call.request_id, "address": call.address, "schedule": schedule_id}
            self._state.log.write("warning", f"webhook refused: {error}", **known)
            raise NotAuthenticated(_REFUSED) from None
        if not self._requests.take(schedule.id):
            raise TooManyRequests(f"more than {_RATE:g} requests a second; send it again later")
        return await in_thread(self._act, schedule, delivery, call, body)

    def _verified(
        self, call: Call, schedule_id: str, body: bytes
    ) -> tuple[ScheduleRecord, Delivery]:
        """The schedule, and the request. Raises NotAuthenticated, StoreError."""
        schedules, home = self._state.backend.store.schedules, self._state.backend.home
        webhook = schedules.webhook(schedule_id) if is_id(schedule_id) else None
        if webhook is None:
            raise NotAuthenticated("there is no such webhook")
        what = f"the webhook of schedule {schedule_id}"
        secret = unseal_file(home, webhook.secret.encode(), what).decode()
        delivery = verify(secret, call.header, body, time.time())
        try:
            return schedules.get(schedule_id), delivery
        except NotFound:  # deleted just now
            raise NotAuthenticated("there is no such webhook") from None

    def _act(self, schedule: ScheduleRecord, delivery: Delivery, call: Call, body: bytes) -> Answer:
        """Decide what is done about a request, and do it. Raises Conflict, StoreError, NotFound."""
        if delivery.is_test:
            return _answer(200, "pong", "")
        self._state.check_home()
        schedules = self._state.backend.store.schedules
        data = {"body": b64encode(body).decode(), "content_type": call.header("content-type")[:200]}
        event = Event(delivery.id, delivery.type, f"from {call.address}", data)
        for _ in range(_TRIES):
            now = round(time.time(), 6)
            known, run_id = schedules.delivered(schedule.id, delivery.id)
            if known:
                return _answer(200, "repeated", run_id or "")
            if not isinstance(schedule.trigger, Webhook):
                raise Conflict("the schedule has no webhook any more")
            if schedule.paused or not happens(schedule.timing, now):
                raise Conflict("the schedule is paused, not yet begun, or over; no run starts")
            firing = self._firings.decide_event(schedule, event, now)
            if firing is not None:
                return self._carried_out(schedule, firing)
            schedule = schedules.get(schedule.id)
        raise StoreBusy("too many requests to this webhook at once; send it again")

    def _carried_out(self, schedule: ScheduleRecord, firing: FiringRecord) -> Answer:
        outcome = firing.outcome
        try:
            outcome = self._firings.carry_out(schedule, firing)
        except StoreError as error:  # what was decided is done in a few seconds
            self._state.log.write("warning", f"the run of a webhook is delayed: {error}")
        status = 202 if outcome in (Outcome.STARTING, Outcome.STARTED) else 200
        return _answer(status, str(outcome), firing.run_id or "")


def _answer(status: int, outcome: str, run_id: str) -> Answer:
    data = {"outcome": outcome, **({"run": run_id} if run_id else {})}
    return Answer(msgspec.json.encode(data), status)
