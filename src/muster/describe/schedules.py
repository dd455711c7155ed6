"""When a schedule starts runs, as text."""

from __future__ import annotations

from datetime import datetime

from muster.lifecycle.schedule import Timing, zone
from muster.lifecycle.trigger import AfterRun, End, Event, ObjectCreated, Trigger, Webhook
from muster.spec.quantities import format_duration


def timing_text(timing: Timing) -> str:
    """`0 3 * * * Europe/Rome`, `every 6h`, or the rule of a recurrence."""
    if timing.every is not None:
        return f"every {format_duration(timing.every)}"
    if timing.ical is not None:
        return f"{_rule_text(timing.ical)} {timing.time_zone}"
    return f"{timing.cron} {timing.time_zone}"


def when_text(timing: Timing, trigger: Trigger | None) -> str:
    """What starts the runs of a schedule."""
    match trigger:
        case AfterRun(on=End.ENDED):
            return f"after {trigger.job}, however it ends"
        case AfterRun():
            return f"after {trigger.job} {trigger.on}"
        case ObjectCreated():
            return f"on object {trigger.bucket}/{trigger.prefix}"
        case Webhook():
            return "webhook"
        case _:
            return timing_text(timing)


def event_text(event: Event) -> str:
    """`run.succeeded prepare-3`."""
    return f"{event.type} {event.subject}".rstrip()


def range_text(timing: Timing) -> str:
    """When its times begin and end, and how much later they are; "" if nothing says so."""
    parts = []
    if timing.start is not None:
        parts.append(f"from {clock_text(timing, timing.start)}")
    if timing.end is not None:
        parts.append(f"until {clock_text(timing, timing.end)}")
    if timing.offset:
        parts.append(f"each {format_duration(timing.offset)} later (jitter)")
    return ", ".join(parts)


def _rule_text(ical: str) -> str:
    """The rule alone: `FREQ=WEEKLY;BYDAY=MO`."""
    words = ical.replace("\\n", " ").split()
    return next(word[6 if word.startswith("RRULE:") else 0 :] for word in words if "FREQ=" in word)


def clock_text(timing: Timing, at: float) -> str:
    """A time (epoch seconds) on the clock of the schedule's zone, to the second if it needs to
    be."""
    moment = datetime.fromtimestamp(at, zone(timing.time_zone))
    form = "%Y-%m-%d %H:%M" if moment.second == 0 else "%Y-%m-%d %H:%M:%S"
    return f"{moment.strftime(form)} {moment.tzname() or timing.time_zone}"
