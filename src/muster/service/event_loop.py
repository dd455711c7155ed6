"""Wait for runs, and for pipes, in an event loop of asyncio.

The loop watches the same descriptors that `wait` and `follow` poll, so that no thread waits. What
may take longer than reading a few rows runs in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from functools import partial
from math import inf
from os import close, write
from threading import Thread
from typing import TypeVar

from muster.api.streams import Notice, RunItem
from muster.lifecycle.states import AT_REST
from muster.service.context import Context
from muster.service.wait import new_check, notices, recover_or_wait, timed_out
from muster.storage.liveness import watch_liveness
from muster.unix_account import UnixAccount, acting_as, current

T = TypeVar("T")


async def wait_for_readable(
    descriptors: Iterable[int], timeout: float | None, found: asyncio.Event | None = None
) -> set[int]:
    """Wait until one of the descriptors is readable or hangs up, or `found` is set. Returns those
    that are; none after `timeout` seconds."""
    loop, watched = asyncio.get_running_loop(), [*descriptors]
    ready: set[int] = set()
    found = found or asyncio.Event()

    def note(descriptor: int) -> None:
        ready.add(descriptor)
        found.set()

    try:
        for descriptor in watched:
            loop.add_reader(descriptor, note, descriptor)
        async with asyncio.timeout(timeout):
            await found.wait()
    except TimeoutError:
        pass  # nothing is ready
    finally:
        for descriptor in watched:
            loop.remove_reader(descriptor)
    return ready


async def wait_for_writable(descriptor: int) -> None:
    """Wait until a descriptor can be written, or its other end is closed."""
    loop, found = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(descriptor, found.set)
    try:
        await found.wait()
    finally:
        loop.remove_writer(descriptor)


async def write_all(descriptor: int, data: bytes) -> None:
    """Write all data to a descriptor that does not block, as fast as its other end reads them.
    Raises OSError, such as BrokenPipeError if nobody reads it."""
    view = memoryview(data)
    while view:
        try:
            view = view[write(descriptor, view) :]
        except BlockingIOError:
            await wait_for_writable(descriptor)


async def in_thread(function: Callable[..., T], *args: object) -> T:
    """Call a function that may block for a moment. A cancellation waits for it, so that nothing
    that it uses is closed meanwhile."""
    call = asyncio.ensure_future(asyncio.to_thread(_call_as, current(), function, *args))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.gather(call, return_exceptions=True)
        raise


def _call_as(account: UnixAccount | None, function: Callable[..., T], *args: object) -> T:
    """The thread may have done something as somebody else before."""
    with acting_as(account):
        return function(*args)


def in_own_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """The result of a function that may block for days."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(set_outcome: Callable[[], None]) -> None:
        if not future.cancelled():
            set_outcome()

    def run() -> None:
        try:
            outcome = partial(future.set_result, function())
        except Exception as error:  # noqa: BLE001  raised where it is awaited
            outcome = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(finish, outcome)

    Thread(target=run, daemon=True).start()
    return future


async def watch(
    context: Context, run_id: str, timeout: float | None, every: float | None
) -> AsyncGenerator[RunItem | Notice]:
    """As `wait.watch`. A cancellation leaves the run alone."""
    deadline = inf if timeout is None else time.monotonic() + timeout
    check, interval = new_check(context, run_id), inf if every is None else every
    while True:
        left = max(deadline - time.monotonic(), 0)
        if await _has_ended(context, run_id, min(left, check.due_in(), interval)):
            run = await in_thread(recover_or_wait, context, run_id, deadline)
            if run.state in AT_REST:
                yield RunItem(run)
                return
        if timeout is not None and time.monotonic() >= deadline:
            raise timed_out(context, run_id, timeout)
        for notice in notices(context, check):
            yield notice
        if every is not None:
            yield RunItem(context.store.runs.summary(run_id))


async def _has_ended(context: Context, run_id: str, timeout: float) -> bool:
    """Whether the run has no supervisor any more; waits up to `timeout` seconds."""
    descriptor = watch_liveness(context.home, run_id)
    if descriptor is None:
        return True
    try:
        return bool(await wait_for_readable([descriptor], timeout))
    finally:
        close(descriptor)
