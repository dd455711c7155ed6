"""Start a server as `muster server` does."""

from __future__ import annotations

import os
import socket
import ssl
import time
import warnings
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from muster.caller import Caller
from muster.control.launcher import check_open_files
from muster.errors import InvalidInput, Problem
from muster.iam.authenticate import Authenticator
from muster.node.files import replace_file
from muster.server.log import ServerLog
from muster.server.serve import Server, listen
from muster.server.settings import Settings, read_file
from muster.service.backend import Backend
from muster.service.logins import create_first_admin
from muster.storage.home import Home, default_home
from muster.storage.owners import closed_python
from muster.store.sqlite.store import SqliteStore

#: Seconds to wait for PostgreSQL, which may start at the same time.
_DATABASE_TIMEOUT = 15.0


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
    home = default_home()
    settings = replace(settings, file=read_file(home.server))
    trust = ""
    if settings.oci_domain is not None and settings.tls_cert is None:
        settings = with_own_certificate(settings, home)
        trust = f" --ca {home.oci_certificate / 'ca.pem'}"
    check_certificate(settings)
    listener = listen(settings.host, settings.port)
    if database_url is not None:
        use_database(home, database_url)
    note_region(settings, home)
    backend = Backend(home)
    backend.database_timeout = _DATABASE_TIMEOUT
    first = create_first_admin(backend.store)
    authenticator = Authenticator(backend.store.accounts, backend.policies)

    def authenticate(token: str, project: str | None) -> Caller:
        return authenticator.authenticate(token, time.time(), project)

    log = ServerLog()
    warnings.showwarning = lambda message, *_: log.write("warning", str(message))
    server = Server(settings, backend, authenticate, log)
    say(f"muster serves {home.root} at {settings.url}")
    if first is not None:
        say(f"{first.record.user} administers the server, with this token, shown only now:")
        show_secret(first.text)
        say(f"log in with it: muster login {settings.url_for_others}{trust}")
    if os.geteuid() == 0 and settings.file.separate_owners and (closed := closed_python()):
        say(f"runs will fail: {closed}")
    server.run(listener)
    say("the server has stopped; runs continue")


def with_own_certificate(settings: Settings, home: Home) -> Settings:
    """With a certificate of the server's own authority, for the names of OCI's services and for the
    address that it listens on. Raises InvalidInput for what is no domain."""
    from datetime import UTC, datetime

    from muster.server.oci.names import certificate_names
    from muster.storage.certificates import server_certificate

    assert settings.oci_domain is not None
    home.prepare()
    names = [*certificate_names(settings.oci_domain), socket.gethostname(), "localhost"]
    others = [host for host in (settings.host, "127.0.0.1") if host not in ("0.0.0.0", "::")]
    folder = server_certificate(
        home.oci_certificate, list(dict.fromkeys([*names, *others])), datetime.now(UTC)
    )
    return replace(settings, tls_cert=str(folder / "cert.pem"), tls_key=str(folder / "key.pem"))


def note_region(settings: Settings, home: Home) -> None:
    """Tell `muster oci-config` what the server is called."""
    home.prepare()
    if settings.oci_region is None:
        home.oci_region.unlink(missing_ok=True)
    else:
        replace_file(home.oci_region, f"{settings.oci_region}\n".encode(), 0o600)


def check_certificate(settings: Settings) -> None:
    """Raises InvalidInput if the files of the certificate and its key are of no use together."""
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None or key is None:
        return
    for option, file in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            open(file, "rb").close()
        except OSError as error:
            text = f"cannot read {file}: {error.strerror}"
            raise InvalidInput(Problem(option, text)) from None
    try:
        # an encrypted key is refused: nobody may be there to type its passphrase
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        text = f"{cert} and {key} are not a certificate and its key: {_reason(error)}"
        hint = "give both in PEM, the key without a passphrase"
        raise InvalidInput(Problem("--tls-cert", text, hint)) from None


def _reason(error: ssl.SSLError) -> str:
    """What OpenSSL says, such as `key values mismatch`."""
    return (error.reason or str(error)).replace("_", " ").lower()


def use_database(home: Home, url: str) -> None:
    """Have all processes of a MUSTER_HOME use a PostgreSQL database. Raises InvalidInput if the URL
    is none, or the MUSTER_HOME has records in a file, which would be hidden."""
    from muster.store.postgres.url import parameters_of

    parameters_of(url)
    file = home.database_url
    with suppress(FileNotFoundError):
        if file.read_text().strip() == url.strip():
            return
    home.prepare()
    if not file.exists() and home.database.exists() and _has_runs(home):
        text = f"{home.database} has the records of runs, and they are not copied to PostgreSQL"
        hint = "use another MUSTER_HOME for the server"
        raise InvalidInput(Problem("--database-url", text, hint))
    replace_file(file, f"{url.strip()}\n".encode(), 0o600)


def _has_runs(home: Home) -> bool:
    store = SqliteStore.open(home.database, create=False)
    try:
        return store.runs.first_owner() is not None
    finally:
        store.close()
