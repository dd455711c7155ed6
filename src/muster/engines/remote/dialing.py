"""What engines share whose node servers dial the supervisor (`remote.listener`): where it listens,
how servers find that out, and what they are told.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
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
    """A run's listener. Its address is in a file, which each server reads when it dials, as another
    supervisor listens elsewhere; or servers are told the address itself, where nodes share no files
    with this machine: then every supervisor of the run has to listen on the same port.

    listen: where to listen on this machine. address_file: a path that nodes see as well; None:
    there is none. port: 0 for any. reached_at: the address of this machine for nodes; None: that
    where it listens. Raises OSError.
    """

    def __init__(
        self,
        context: RunContext,
        loop: RunLoop,
        listen: str,
        address_file: Path | None,
        *,
        port: int = 0,
        reached_at: str | None = None,
    ) -> None:
        self._plan = context.plan
        run_dir = context.home.run_dir(context.plan.run_id)
        self._secrets = contact_secrets(run_dir)
        self._listener = RunListener(loop, context.plan.run_id, self._secrets, listen, port)
        host = listen if reached_at is None else reached_at
        host = f"[{host}]" if ":" in host else host
        address = f"{host}:{self._listener.port}"
        if address_file is not None:
            replace_file(address_file, f"{address}\n".encode())
        #: What servers are told: the path of the file, or the address.
        self._address = address if address_file is None else str(address_file)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._listener.port

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
        supervisor = self.supervisor(token_file)
        return server_settings(self._plan, slot, shared, supervisor=supervisor)

    def supervisor(self, token_file: str = "") -> dict[str, str]:
        """Where servers dial (`node.serve.Supervisor`). token_file: see `settings`."""
        return {
            "address": self._address,
            "authority": self.authority,
            "token_file": token_file,
        }

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()


def first_free(make: Callable[[int], Dialing], port: int, ports: tuple[int, int] | None) -> Dialing:
    """Listen on the port where nodes of earlier sessions dial or, if there are none, on the first
    free one of a range.

    make: listens on a port. port: 0 if there are no such nodes. ports: the first and the last one;
    None: any. Raises OSError.
    """
    if port or ports is None:
        return make(port)
    first, last = ports
    for one in range(first, last + 1):
        try:
            return make(one)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    text = f"all ports from {first} to {last} are in use: set more `ports` in the profile"
    raise OSError(errno.EADDRINUSE, text)
