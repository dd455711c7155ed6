"""The server's log: a JSON object in each line, for people and for collectors."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock
from typing import IO, Any

import msgspec

from muster.secrets import redacted

#: What uvicorn says of each WebSocket that was refused with an answer of HTTP, as it should be.
_NO_HANDSHAKE = "ASGI callable returned without completing handshake."


class ServerLog:
    """Writes to a file, from any thread. What clients send is data in it: a value with line breaks
    stays in its line."""

    def __init__(self, file: IO[str] | None = None) -> None:
        """file: default: standard error, as it is at each entry."""
        self._file = file
        self._lock = Lock()

    def write(self, level: str, message: str, **data: Any) -> None:
        """Add an entry."""
        now = datetime.now(UTC)
        entry = {
            "time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": level,
            "message": redacted(message),
        }
        # each text by itself, as what is around it in the line is never secret
        entry |= {
            name: redacted(value) if isinstance(value, str) and value else value
            for name, value in data.items()
        }
        line = msgspec.json.encode(entry).decode()
        file = self._file or sys.stderr
        with self._lock:
            file.write(f"{line}\n")
            file.flush()

    def info(self, message: str, **data: Any) -> None:
        """Add an entry about what has happened."""
        self.write("info", message, **data)

    def defect(self, message: str, error: BaseException, request_id: str = "") -> None:
        """Add an entry about a defect of Muster, with its traceback."""
        text = "".join(traceback.format_exception(error))
        named = {"request": request_id} if request_id else {}
        self.write("error", message, **named, traceback=text)


class _Handler(logging.Handler):
    def __init__(self, log: ServerLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == _NO_HANDSHAKE:
            return
        message = f"{record.name}: {record.getMessage()}".strip()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._log.defect(message, error)
        else:
            self._log.write(record.levelname.lower(), message)


@contextmanager
def logging_to(log: ServerLog, *names: str) -> Iterator[None]:
    """Write warnings of libraries to the log. names: of their loggers."""
    loggers, handler = [logging.getLogger(name) for name in names], _Handler(log)
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
