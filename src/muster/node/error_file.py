"""What a program noted of its own failure, in the file TORCHELASTIC_ERROR_FILE names.

PyTorch: torch.distributed.elastic.multiprocessing.errors (`@record`), which writes
`{"message": {"message": ..., "extraInfo": {"py_callstack": ..., "timestamp": "1610000000"}}}`, or
`{"message": text}`. Anybody may write such a file, and nobody has to.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import Any, NamedTuple

from muster.node.files import read_regular, replace_file

VARIABLE = "TORCHELASTIC_ERROR_FILE"
_LARGEST = 1 << 20  # bytes; a larger file is not one of these
_LONGEST = 4096  # characters kept of what it says


class Raised(NamedTuple):
    """message: the last lines of the traceback, or the error, or "". at: epoch seconds, None if
    it does not say; PyTorch's have whole seconds."""

    message: str
    at: float | None

    def or_else(self, message: str) -> Raised:
        """With this message, if it has none."""
        return self if self.message else self._replace(message=message)


def forget(path: str) -> None:
    """Remove what an earlier life of the program has left."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def write(path: str, headline: str, raised: Raised) -> None:
    """Note an error under a headline, of which nothing is cut off. Raises OSError."""
    text = headline
    if raised.message:
        room = max(_LONGEST - len(headline) - len(":\n"), 0)
        text += ":\n" + raised.message[-room:]
    extra = {} if raised.at is None else {"timestamp": str(raised.at)}
    noted = {"message": {"message": text, "extraInfo": extra}}
    replace_file(path, json.dumps(noted).encode())


def read(path: str) -> Raised | None:
    """What is noted there; None if that is nothing, or nothing one can understand."""
    try:
        # the program may have put anything there: a pipe, say, that would keep us waiting
        noted = json.loads(read_regular(path, _LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    message = noted.get("message") if isinstance(noted, dict) else None
    if isinstance(message, str):
        return Raised(_last_lines(message), None)
    if not isinstance(message, dict):
        return None
    extra = message.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    texts = (extra.get("py_callstack"), message.get("message"))
    said = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    return Raised(_last_lines(said), _seconds(extra.get("timestamp")))


def _seconds(said: Any) -> float | None:
    if isinstance(said, bool) or not isinstance(said, (str, int, float)):
        return None
    try:
        seconds = float(said)
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _last_lines(text: str) -> str:
    """All of it, or what says why it failed where there is not room for all."""
    text = text.strip()
    if len(text) <= _LONGEST:
        return text
    from muster.node.failure_text import explain

    return "\n".join(explain(text).lines)
