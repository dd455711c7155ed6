"""What `muster server doctor` finds: whether a server of this MUSTER_HOME can work, how safely."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from muster.control.open_store import open_store
from muster.engines.findings import Finding
from muster.errors import InvalidInput, MusterError
from muster.iam.oidc.settings import read_settings
from muster.server.command import check_certificate
from muster.server.settings import Settings, read_file
from muster.service.findings import home_finding, key_findings
from muster.spec.quantities import format_size
from muster.storage.home import Home
from muster.storage.owners import closed_python
from muster.store.account_records import UserKind

#: Bytes that the disk of MUSTER_HOME should have left.
_SPACE = 1 << 30
#: Seconds for the server to answer.
_TIMEOUT = 3.0
_PACKAGES = ("uvicorn", "uvloop", "httptools", "joserfc", "prometheus-client", "psycopg")


def examine(home: Home, settings: Settings) -> Iterator[Finding]:
    """Each finding, as it is made. Changes nothing but what opening the records does."""
    yield _packages()
    yield home_finding()
    yield from key_findings()
    yield _space(home)
    yield _settings_file(home)
    yield from _records(home)
    yield _logins(home)
    yield from _separation(home)
    yield _address(settings)


def _packages() -> Finding:
    found, missing = [], []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        says = f"not installed: {', '.join(missing)}"
        return Finding("packages", False, says, "pip install 'muster-jobs[server]'")
    return Finding("packages", True, ", ".join(found))


def _space(home: Home) -> Finding:
    folder = next(one for one in (home.root, *home.root.parents) if one.exists())
    free = shutil.disk_usage(folder).free
    says = f"{format_size(free)} free on the disk of MUSTER_HOME"
    advice = "" if free >= _SPACE else "free some: `muster disk`, `muster prune`"
    return Finding("disk", free >= _SPACE, says, advice)


def _settings_file(home: Home) -> Finding:
    name = "server.toml"
    try:
        read_file(home.server)
    except InvalidInput as error:
        return Finding(name, False, str(error), "correct it; the server does not start with it")
    return Finding(name, True, "it is valid" if home.server.exists() else "none: the defaults")


def _records(home: Home) -> Iterator[Finding]:
    name = "records"
    if not home.records.exists():
        yield Finding(name, True, "none yet: the server makes them at its first start")
        return
    began = time.perf_counter()
    try:
        store = open_store(home, create=False)
        runs = sum(store.runs.state_counts().values())
        people = [user for user in store.accounts.users() if user.kind == UserKind.PERSON]
        store.close()
    except MusterError as error:
        yield Finding(name, False, str(error))
        return
    took = (time.perf_counter() - began) * 1000
    where = "PostgreSQL" if home.database_url.exists() else str(home.database)
    yield Finding(name, True, f"{where}: {runs:,} runs, opened and read in {took:.0f} ms")
    active = [user.name for user in people if user.admin and not user.disabled]
    if not people:
        yield Finding("users", True, "none yet: the server makes the first at its start")
    else:
        yield Finding("users", True, f"{len(people)}; administered by {', '.join(active)}")


def _logins(home: Home) -> Finding:
    name = "logins"
    try:
        settings = read_settings(home.oidc)
    except InvalidInput as error:
        return Finding(name, False, str(error), "correct it; logins fail with it")
    if settings is None:
        return Finding(name, True, "by tokens; oidc.toml would add OpenID Connect")
    return Finding(name, True, f"by tokens, and at {settings.issuer}")


def _separation(home: Home) -> Iterator[Finding]:
    name = "several owners on engine local"
    if os.geteuid() != 0:
        says = "the server does not run as root: one user at most may run jobs on engine local"
        yield Finding(name, False, says, "run it as root, or start a server for each user")
        return
    try:
        separate = read_file(home.server).separate_owners
    except InvalidInput:  # which was reported
        return
    if not separate:
        says = "separate_owners = false in server.toml: one user at most may run jobs, as root"
        yield Finding(name, True, says)
        return
    if (closed := closed_python()) is not None:
        yield Finding(name, False, closed.message, closed.hint)
        return
    yield Finding(name, True, "each owner's runs have a Unix account and a network of their own")


def _address(settings: Settings) -> Finding:
    name = f"{settings.host}:{settings.port}"
    try:
        check_certificate(settings)
    except InvalidInput as error:
        return Finding(name, False, str(error), "correct it; the server does not start with it")
    # its certificate names the machine, seldom this address; nothing secret is sent
    context = ssl._create_unverified_context()
    try:
        with urlopen(f"{settings.url}/readyz", timeout=_TIMEOUT, context=context) as answer:
            return Finding(name, True, f"a server answers there: {answer.read().decode()}")
    except HTTPError as error:
        says = f"a server answers there, and is not ready: {error.read().decode(errors='replace')}"
        return Finding(name, False, says)
    except (URLError, OSError):
        pass
    try:
        socket.create_server((settings.host, settings.port)).close()
    except OSError as error:
        says = f"cannot listen there: {error.strerror}"
        return Finding(name, False, says, "choose another --port, or end the program that uses it")
    return Finding(name, True, "nothing listens there: a server can")
