"""When a schedule starts runs, as text."""

from __future__ import annotations

from datetime import datetime

from muster.lifecycle.schedule import Timing, zone
from muster.spec.quantities import format_duration


def timing_text(timing: Timing) -> str:
    """`0 3 * * * Europe/Rome`, or `every 6h`."""
    if timing.every is not None:
        return f"every {format_duration(timing.every)}"
    return f"{timing.cron} {timing.time_zone}"


def clock_text(timing: Timing, at: float) -> str:
    """A time (epoch seconds) on the clock of the schedule's zone, to the second if it needs to
    be."""
    moment = datetime.fromtimestamp(at, zone(timing.time_zone))
    form = "%Y-%m-%d %H:%M" if moment.second == 0 else "%Y-%m-%d %H:%M:%S"
    return f"{moment.strftime(form)} {moment.tzname() or timing.time_zone}"
