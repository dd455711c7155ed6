"""Streams from a server for event loops of asyncio. Importing that takes longer than most commands,
which need none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from muster.client.http.streams import Interrupt

T = TypeVar("T")


def in_event_loop(start: Callable[[Interrupt], Generator[T]]) -> AsyncGenerator[T]:
    """The items of a stream, for an event loop. The request is sent, and its errors are raised,
    before this returns."""
    interrupt = Interrupt()
    return _from_thread(start(interrupt), interrupt)


async def _from_thread(items: Generator[T], interrupt: Interrupt) -> AsyncGenerator[T]:
    """The items of a stream, each awaited in a thread of the stream: it may wait for days."""
    loop, done = asyncio.get_running_loop(), object()
    thread = ThreadPoolExecutor(1, "muster-stream")

    def step() -> Any:
        return next(items, done)

    try:
        while (item := await loop.run_in_executor(thread, step)) is not done:
            yield item
    finally:
        interrupt.request()
        try:
            await asyncio.shield(loop.run_in_executor(thread, items.close))  # after a step
        finally:
            thread.shutdown(wait=False)
