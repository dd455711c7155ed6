"""What a node has told of its newest incarnation, in memory and in a file.

A new supervisor is told it again. A new node server reads it from the file if the one before was
killed: how an incarnation ended is not lost with it.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import List

from muster.node.files import open_or_replace, read_regular, replace_file
from muster.node.messages import (
    Ended,
    InvalidMessage,
    Launched,
    Message,
    SlotNode,
    decode,
    encode,
)


class Journal:
    """The messages about the newest incarnation, the first being its `Launched`.

    path: of the file. Raises OSError.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.said: List[Message] = _read(path)
        #: Whether the file may have a part of a line, or lack one: then it is written anew.
        self._incomplete = True

    @property
    def incarnation(self) -> int:
        """The number of the newest incarnation; -1 if there was none."""
        first = self.said[0] if self.said else None
        return first.incarnation if isinstance(first, Launched) else -1

    @property
    def ended(self) -> bool:
        """Whether no incarnation is in progress."""
        return not self.said or isinstance(self.said[-1], Ended)

    def begin(self, incarnation: int, attempt: int = 0, node: SlotNode | None = None) -> Launched:
        """Begin with another incarnation. node: see `Launch`. Returns what to say of it. Raises
        OSError."""
        launched, self._incomplete = Launched(incarnation, attempt, node), True
        replace_file(self._path, _line(launched), 0o600)
        self.said, self._incomplete = [launched], False
        return launched

    def add(self, message: Message) -> None:
        """Add what is said of the newest incarnation. Also if it cannot be written to the file, as
        on a full disk: a server that follows would then only know that the node was lost."""
        self.said.append(message)
        with contextlib.suppress(OSError):
            if self._incomplete:
                replace_file(self._path, b"".join(map(_line, self.said)), 0o600)
            else:
                self._append(_line(message))
            self._incomplete = False

    def _append(self, line: bytes) -> None:
        """Raises OSError."""
        self._incomplete = True
        descriptor = open_or_replace(self._path, os.O_WRONLY | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line)


def _line(message: Message) -> bytes:
    return json.dumps(encode(message)).encode() + b"\n"


def _read(path: str) -> List[Message]:
    try:
        lines = read_regular(path).split(b"\n")
    except FileNotFoundError:
        return []
    said: List[Message] = []
    for line in lines[:-1]:  # the last one is empty, or was being written
        with contextlib.suppress(InvalidMessage, ValueError, RecursionError):  # of a full disk
            said.append(decode(json.loads(line)))
    return said if said and isinstance(said[0], Launched) else []
