"""Start a server as `muster server` does."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from muster.caller import Caller
from muster.control.launcher import check_open_files
from muster.iam.authenticate import Authenticator
from muster.server.log import ServerLog
from muster.server.serve import Server, listen
from muster.server.settings import Settings
from muster.service.backend import Backend
from muster.service.logins import create_first_admin
from muster.storage.home import default_home


def serve(
    *,
    host: str,
    port: int,
    database_url: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    say: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C. say: prints a line for who has started it. Raises
    InvalidInput, StoreError, PortInUse."""
    check_open_files()
    settings = replace(Settings(), host=host, port=port, tls_cert=tls_cert, tls_key=tls_key)
    listener = listen(host, port)
    backend = Backend(default_home())
    authenticator = Authenticator(backend.store.accounts)

    first = create_first_admin(backend.store)

    def authenticate(token: str, project: str | None) -> Caller:
        return authenticator.authenticate(token, time.time(), project)

    server = Server(settings, backend, authenticate, ServerLog())
    scheme = "http" if tls_cert is None else "https"
    shown = f"[{host}]" if ":" in host else host
    say(f"muster serves {backend.home.root} at {scheme}://{shown}:{port}")
    if first is not None:
        say(f"the first user is {first.record.user}, who administers the server; the token, which")
        say("is shown only now:")
        say(f"    {first.text}")
        say(f"log in with it: muster login {scheme}://{shown}:{port}")
    server.run(listener)
    say("the server has stopped; runs continue")
