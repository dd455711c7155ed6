"""Servers in threads of the test process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from threading import Thread

#: Seconds after which a server notices that it is to end; half a second by default.
POLL_INTERVAL = 0.02


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Answer requests until the block ends, and close the server."""
    thread = Thread(target=server.serve_forever, args=(POLL_INTERVAL,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
