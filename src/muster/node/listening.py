"""Waiting until somebody listens: nobody tells us when, elsewhere, so we look often."""

from __future__ import annotations

import socket
import time

_TRY, _GAP = 2.0, 0.01  # seconds for one look, and between two


def await_listener(address: str, port: int, patience: float) -> str:
    """Return when connections are accepted there, or the time is over. Why they are not, then; else
    empty. patience: seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            socket.create_connection((address, port), _TRY).close()
        except OSError as error:
            if time.monotonic() >= deadline:
                return str(error.strerror or error)
        else:
            return ""
        time.sleep(_GAP)
