"""Commands that work only on the machine of the jobs and runs."""

from __future__ import annotations

import os

from muster.client.contexts import current_address
from muster.errors import InvalidInput, Problem


def check_local(what: str) -> None:
    """Raises InvalidInput if commands use a server. what: is done on its machine."""
    address = current_address()
    if address is not None:
        hint = "run the command there; for this machine, `muster context use local`"
        if "MUSTER_URL" in os.environ:
            hint = "run the command there; for this machine, unset MUSTER_URL"
        text = f"{what} on the machine of the server {address.url}, not over its API"
        raise InvalidInput(Problem("", text, hint))
