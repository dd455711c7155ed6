"""Follow runs: the streams of `MusterAPI` without their notices, which become warnings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import aclosing, closing
from typing import TYPE_CHECKING

from muster.api.streams import LogChunk, Notice, Pause
from muster.errors import LowSpace, NotAnswering
from muster.lifecycle.states import AT_REST

if TYPE_CHECKING:
    from muster.api.interface import MusterAPI
    from muster.store.records import NodeRecord, RunSummary

_CATEGORIES = {"not_answering": NotAnswering, "low_space": LowSpace}


def give_warning(notice: Notice) -> None:
    """Give the warning of a notice."""
    warnings.warn(notice.text, _CATEGORIES[notice.kind], stacklevel=3)


def wait(
    api: MusterAPI,
    run_id: str,
    timeout: float | None = None,
    *,
    every: float | None = None,
    show: Callable[[], object] | None = None,
) -> RunSummary:
    """The run, once it has ended or is suspended. show: called at intervals of `every` seconds.
    Raises TimeoutError after `timeout` seconds."""
    run: RunSummary | None = None
    for item in api.watch(run_id, timeout, every):
        if isinstance(item, Notice):
            give_warning(item)
            continue
        run = item.run
        if show is not None and run.state not in AT_REST:
            show()
    assert run is not None, "the last item is the run at rest"
    return run


def unreachable_nodes(api: MusterAPI, run_id: str) -> list[NodeRecord]:
    """The nodes of a run that run, as far as is known, and that cannot be reached."""
    from muster.lifecycle.states import ALIVE
    from muster.store.records import NodeFilter

    nodes = api.nodes(run_id, NodeFilter(states=ALIVE))
    return [node for node in nodes if node.unreachable_since is not None]


async def wait_async(api: MusterAPI, run_id: str, timeout: float | None = None) -> RunSummary:
    """As `wait`, in an event loop of asyncio."""
    run: RunSummary | None = None
    async with aclosing(api.watch_async(run_id, timeout)) as items:
        async for item in items:
            if isinstance(item, Notice):
                give_warning(item)
            else:
                run = item.run
    assert run is not None, "the last item is the run at rest"
    return run


def chunks(
    items: Generator[LogChunk | Pause | Notice], pause: Callable[[Pause], object] | None = None
) -> Iterator[LogChunk]:
    """The lines of a log. pause: called with each pause."""
    with closing(items):
        for item in items:
            if type(item) is LogChunk:
                yield item
            elif isinstance(item, Notice):
                give_warning(item)
            elif pause is not None and isinstance(item, Pause):
                pause(item)
