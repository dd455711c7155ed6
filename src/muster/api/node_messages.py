"""The messages about commands in nodes and copies, between a client and a server (WebSocket).

A command: the client first sends a `Command` as text, and the server answers `Started`, or an
`Ended` with an error. After that, data are binary: the number of the standard stream as one byte,
then the bytes; none are the end of the stream. What else is sent is text: `Signal` and `Size` by
the client, `Taken` and at last `Ended` by the server. The client sends at most `MOST_UNREAD`
messages with input before `Taken`, so that no signal waits for a command that reads nothing.

A copy: the end that sends is at the client or at the server. Its data are binary, and an empty
message is their end. At last the server sends `Copied`. Whoever closes the connection before that
interrupts the copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from muster.api.problems import ProblemDetails

#: Bytes of data in one message.
MOST_DATA = 1 << 16
#: Messages with input that the server keeps until the command reads them.
MOST_UNREAD = 16
#: Rows or columns of a terminal.
Extent = Annotated[int, Meta(ge=0, le=(1 << 16) - 1)]


class Command(Struct, frozen=True, tag=True):
    """See `NodeCommand`."""

    argv: Annotated[tuple[str, ...], Meta(min_length=1)]
    env: Mapping[str, str] = {}
    cwd: str = ""
    #: Rows and columns of a terminal; None: it gets pipes.
    terminal: tuple[Extent, Extent] | None = None


class Signal(Struct, frozen=True, tag=True):
    """A signal for the command."""

    number: Annotated[int, Meta(ge=1, le=64)]


class Size(Struct, frozen=True, tag=True):
    """The terminal has another size."""

    rows: Extent
    columns: Extent


class Started(Struct, frozen=True, tag=True):
    """The command has started."""


class Taken(Struct, frozen=True, tag=True):
    """The command has read one more message with input, or reads no more."""


class Ended(Struct, frozen=True, tag=True, omit_defaults=True):
    """The command has ended, or was not started."""

    #: See `NodeProcess.wait`.
    code: int = 0
    error: ProblemDetails | None = None


class Copied(Struct, frozen=True, tag=True, omit_defaults=True):
    """A copy has ended."""

    #: What was left out, with the reasons.
    left_out: tuple[str, ...] = ()
    error: ProblemDetails | None = None
