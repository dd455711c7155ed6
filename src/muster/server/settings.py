"""The settings of a server."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from msgspec import Struct, field

#: What the nodes of a server's own machine start from, besides what the submitter sends.
_ENVIRON = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}


class Settings(Struct, frozen=True):
    """See the module."""

    host: str = "127.0.0.1"
    port: int = 8431
    #: The files of the server's certificate and its key, in PEM; None: it listens without TLS.
    tls_cert: str | None = None
    tls_key: str | None = None
    #: The Python of nodes on the server's own machine.
    python: str = sys.executable
    #: The variables that their environment starts from.
    environ: Mapping[str, str] = field(default_factory=lambda: dict(_ENVIRON))
    #: Muster user -> the Unix user that nodes of the user's runs belong to, on a server that runs
    #: as root. Others get an account of their own.
    accounts: Mapping[str, str] = field(default_factory=dict)
    #: Requests a second that one token may make on average, and at once.
    rate: float = 2000.0
    burst: int = 4000

    @property
    def url(self) -> str:
        """Where the server is, for clients on this machine."""
        scheme = "http" if self.tls_cert is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"
