"""Follow a run's event log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import closing

from muster.api.streams import EventItem, Notice
from muster.lifecycle.states import RunState
from muster.service.context import Context
from muster.service.follow import follow


def follow_events(context: Context, run_id: str, after: int) -> Generator[EventItem | Notice]:
    """See `MusterAPI.follow_events`."""
    with closing(follow(context, run_id)) as follower:
        while True:
            ended = follower.ended
            for entry in context.store.events.since(run_id, after):
                yield EventItem(entry)
                after = entry.seq
            if not ended:
                follower.wait(follower.event_paths())
                yield from follower.take_notices()
            elif _is_at_rest(context, run_id):
                return
            else:
                follower.find_supervisor()


async def follow_events_async(
    context: Context, run_id: str, after: int
) -> AsyncGenerator[EventItem | Notice]:
    """As `follow_events`, in an event loop of asyncio."""
    from muster.service.event_loop import in_thread

    with closing(follow(context, run_id, in_loop=True)) as follower:
        while True:
            ended = follower.ended
            for entry in context.store.events.since(run_id, after):
                yield EventItem(entry)
                after = entry.seq
            if not ended:
                await follower.wait_async(follower.event_paths())
                for notice in follower.take_notices():
                    yield notice
            elif _is_at_rest(context, run_id):
                return
            else:
                await in_thread(follower.find_supervisor)


def _is_at_rest(context: Context, run_id: str) -> bool:
    return RunState(context.store.runs.get(run_id).state).at_rest
