"""The error that a program recorded in the file that TORCHELASTIC_ERROR_FILE names.

PyTorch's `@record` (torch.distributed.elastic.multiprocessing.errors) writes
`{"message": {"message": ..., "extraInfo": {"py_callstack": ..., "timestamp": "1610000000"}}}` or
`{"message": text}`. Other programs may write such a file too; none has to.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from typing import Any, NamedTuple

from muster.node.files import read_regular, replace_file

VARIABLE = "TORCHELASTIC_ERROR_FILE"
_MAX_BYTES = 1 << 20  # a larger file was not written as an error file
_MAX_CHARACTERS = 4096  # of the message


class RecordedError(NamedTuple):
    """An error that a program recorded."""

    #: The last lines of the traceback, or the error, or "".
    message: str
    #: Epoch seconds, None if unknown. PyTorch records whole seconds.
    raised_at: float | None

    def with_default(self, message: str) -> RecordedError:
        """With `message`, if it has none."""
        return self if self.message else self._replace(message=message)


def remove(path: str) -> None:
    """Remove the file, if there is one."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def write(path: str, headline: str, error: RecordedError) -> None:
    """Record an error. Its message is cut to fit below the headline. Raises OSError."""
    text = headline
    if error.message:
        limit = max(_MAX_CHARACTERS - len(headline) - len(":\n"), 0)
        text += ":\n" + error.message[-limit:]
    extra = {} if error.raised_at is None else {"timestamp": str(error.raised_at)}
    data = {"message": {"message": text, "extraInfo": extra}}
    replace_file(path, json.dumps(data).encode())


def read(path: str) -> RecordedError | None:
    """The recorded error; None without a readable file in one of the known formats."""
    try:
        # a program may have put anything at this path, such as a FIFO that would block
        data = json.loads(read_regular(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    message = data.get("message") if isinstance(data, dict) else None
    if isinstance(message, str):
        return RecordedError(_shorten(message), None)
    if not isinstance(message, dict):
        return None
    extra = message.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    texts = (extra.get("py_callstack"), message.get("message"))
    text = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    return RecordedError(_shorten(text), _seconds(extra.get("timestamp")))


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _shorten(text: str) -> str:
    """The text, or the lines of a long text that explain the failure."""
    text = text.strip()
    if len(text) <= _MAX_CHARACTERS:
        return text
    from muster.node.failure_text import explain

    return "\n".join(explain(text).lines)
