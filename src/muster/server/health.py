"""Whether the server lives, and whether it can work."""

from __future__ import annotations

import time

from muster import __version__
from muster.errors import MusterError
from muster.server.answers import Answer, encoded
from muster.server.call import Call
from muster.store.records import RunFilter


async def healthz(call: Call) -> Answer:
    """GET /healthz: the process answers."""
    return Answer(encoded({"status": "ok", "version": __version__}))


async def readyz(call: Call) -> Answer:
    """GET /readyz: the store can be read and is in its place, runs can be started, and the server
    does not stop."""
    if call.state.stopping.is_set():
        return Answer(encoded({"status": "stopping"}), 503)
    home = call.state.backend.home
    if await call.state.in_thread(home.read_only):
        text = f"{home.root} is on a file system that is read-only"
        return Answer(encoded({"status": "home", "detail": text}), 503)
    began = time.perf_counter()
    try:
        listing = call.state.backend.store.runs.listing
        await call.state.in_thread(listing, None, RunFilter(limit=1))
        if call.state.backend.store.replaced:
            text = f"the database of {home.root} was deleted or moved away"
            return Answer(encoded({"status": "store", "detail": text}), 503)
    except MusterError as error:
        return Answer(encoded({"status": "store", "detail": str(error)}), 503)
    return Answer(encoded({"status": "ok", "store_seconds": time.perf_counter() - began}))
