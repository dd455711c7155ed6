"""Bearer tokens: as the header `authorization` has them, and in files."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path

from muster.engines.kubernetes.kubeconfig import bounded
from muster.engines.kubernetes.refusals import CannotCall
from muster.escapes import visible_line

#: What is wrong with a text that no header can have.
NO_HEADER = "has characters that no header can have"
_HEADER = re.compile(r"[\x20-\x7e]*")
#: Seconds after which a token is read from its file again: the kubelet replaces it in time.
_TOKEN_AGE = 60.0
#: Bytes that such a file may have.
_MOST_TOKEN = 1 << 16


def is_header(text: str) -> bool:
    """Whether a header can have a text."""
    return _HEADER.fullmatch(text) is not None


def bearer(token: str, error: CannotCall) -> str:
    """The header for a token; "" for none. Raises the error if no header can have it: exceptions of
    connections would quote it."""
    token = token.strip()  # files and plug-ins may end it with a line break
    if not is_header(token):
        raise error
    return f"Bearer {token}" if token else ""


class TokenFile:
    """A token in a file that is replaced before it expires. May be used by several threads."""

    def __init__(self, path: Path, instead: str = "") -> None:
        """instead: the header if there is no token in the file."""
        self._path, self._instead = path, instead
        self._found = "", -math.inf  # and when

    def authorization(self) -> str:
        """The header `authorization` with it. Raises CannotCall."""
        header, at = self._found
        if time.monotonic() >= at + _TOKEN_AGE:
            header = self._read() or self._instead
            if not header:
                raise CannotCall(f"the token in {self._path} is empty", refused=True)
            self._found = header, time.monotonic()
        return header

    def _read(self) -> str:
        what = f"the token in {visible_line(str(self._path))}"
        try:
            text = bounded(self._path, _MOST_TOKEN).decode("ascii")
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and self._instead:
                return ""
            why = getattr(error, "strerror", None) or "it is not ASCII"
            raise CannotCall(f"{what} cannot be read: {why}", refused=True) from None
        return bearer(text, CannotCall(f"{what} {NO_HEADER}", refused=True))
