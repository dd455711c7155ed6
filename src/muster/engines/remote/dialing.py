"""What engines share whose node servers dial the supervisor (`remote.listener`): where it listens,
how servers find that out, and what they are told.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from muster.engines.base import RunContext
from muster.engines.loop import RunLoop
from muster.engines.remote.contact import Arrivals
from muster.engines.remote.listener import RunListener
from muster.engines.remote.run_secrets import contact_secrets
from muster.engines.remote.server_settings import server_settings
from muster.node.files import replace_file


class Dialing:
    """A run's listener, whose address is in a file: each server reads it when it dials, as another
    supervisor listens elsewhere.

    listen: the address of this machine that nodes reach. address_file: a path that nodes see as
    well. Raises OSError.
    """

    def __init__(self, context: RunContext, loop: RunLoop, listen: str, address_file: Path) -> None:
        self._plan = context.plan
        run_dir = context.home.run_dir(context.plan.run_id)
        self._secrets = contact_secrets(run_dir)
        self._listener = RunListener(loop, context.plan.run_id, self._secrets, listen)
        self._address_file = address_file
        host = f"[{listen}]" if ":" in listen else listen
        replace_file(address_file, f"{host}:{self._listener.port}\n".encode())

    @property
    def authority(self) -> str:
        """The certificate of the run's authority: PEM."""
        return self._secrets.authority

    def of(self, slot: int) -> Arrivals:
        """Where the connections of a slot's server arrive."""
        return self._listener.of(slot)

    def token(self, slot: int, server: int = 0) -> str:
        """The token of a slot's server. server: see `Arrivals.server`."""
        return self._secrets.token(slot, server)

    def settings(self, slot: int, shared: str = "", token_file: str = "") -> dict[str, Any]:
        """The settings of a slot's server. shared: see `server_settings`. token_file: a path on
        its host of a file with its token; "": it is in its environment."""
        supervisor = {
            "address": str(self._address_file),
            "authority": self.authority,
            "token_file": token_file,
        }
        return server_settings(self._plan, slot, shared, supervisor=supervisor)

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()
