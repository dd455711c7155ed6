"""Start a server as `muster server` does."""

from __future__ import annotations

import time
from collections.abc import Callable

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
    settings: Settings,
    database_url: str | None,
    say: Callable[[str], None],
    show_secret: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C. database_url: None for that of MUSTER_HOME. say: prints a line
    for who has started the server. show_secret: prints a token. Raises InvalidInput, StoreError,
    PortInUse."""
    check_open_files()
    listener = listen(settings.host, settings.port)
    backend = Backend(default_home())
    first = create_first_admin(backend.store)
    authenticator = Authenticator(backend.store.accounts)

    def authenticate(token: str, project: str | None) -> Caller:
        return authenticator.authenticate(token, time.time(), project)

    server = Server(settings, backend, authenticate, ServerLog())
    say(f"muster serves {backend.home.root} at {settings.url}")
    if first is not None:
        say(f"{first.record.user} administers the server, with this token, shown only now:")
        show_secret(first.text)
        say(f"log in with it: muster login {settings.url}")
    server.run(listener)
    say("the server has stopped; runs continue")
