"""Where a user's Muster is: on this machine, or behind a server that the user has logged in to.

The file `contexts.json` in MUSTER_HOME, private to the user, has the servers with their tokens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem

#: The name of the context without a server.
LOCAL = "local"
#: The largest file that is read.
_MOST = 1 << 20


class Address(Struct, frozen=True, omit_defaults=True):
    """Where a server is, and who asks there."""

    #: `http://HOST:PORT` or `https://HOST`; a path may follow, if a proxy needs one.
    url: str
    token: str = ""
    #: The project to work in; None for the user's default.
    project: str | None = None
    #: A file with certificates to trust, in PEM; "" for those of the system.
    ca: str = ""


class Contexts(Struct, frozen=True):
    """What the file says."""

    #: The one that commands use.
    current: str = LOCAL
    servers: Mapping[str, Address] = {}

    def used(self, name: str) -> Contexts:
        """With another current context. Raises InvalidInput for an unknown name."""
        if name != LOCAL and name not in self.servers:
            from muster.spec.wording import suggestion

            hint = suggestion(name, [LOCAL, *self.servers])
            raise InvalidInput(Problem("", f"there is no context {name!r}", hint))
        return replace(self, current=name)

    def having(self, name: str, address: Address) -> Contexts:
        """With a server, which becomes the current one."""
        return Contexts(name, {**self.servers, name: address})

    def without(self, name: str) -> Contexts:
        """Without a server. Raises InvalidInput for an unknown name."""
        self.used(name)
        rest = {other: one for other, one in self.servers.items() if other != name}
        return Contexts(LOCAL if self.current == name else self.current, rest)


def current_address() -> Address | None:
    """The server that commands of this process use; None for this machine's own Muster.

    MUSTER_URL (with MUSTER_TOKEN, or the token of a login there) comes before the current context.
    MUSTER_PROJECT chooses another project. Raises InvalidInput.
    """
    url, project = os.environ.get("MUSTER_URL"), os.environ.get("MUSTER_PROJECT")
    if url:
        found = _from_environment(url)
    else:
        try:  # nearly always there is none, and every command looks
            contexts = _read(_file())
        except OSError:  # where the user may not look, none was written
            return None
        if contexts.current == LOCAL:
            return None
        found = contexts.servers[contexts.current]
    return found if not project else replace(found, project=project)


def _from_environment(url: str) -> Address:
    url = checked_url(url)
    token = os.environ.get("MUSTER_TOKEN", "")
    known = next((one for one in read_contexts().servers.values() if one.url == url), None)
    if known is not None:
        return replace(known, token=token or known.token)
    return Address(url, token)


def read_contexts() -> Contexts:
    """All contexts of the user. Raises InvalidInput if the file is damaged."""
    try:
        return _read(_file())
    except FileNotFoundError:
        return Contexts()


def write_contexts(contexts: Contexts) -> None:
    """Store the contexts, readable only for the user. Raises InvalidInput."""
    from muster.node.files import replace_file

    path = _file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, msgspec.json.format(msgspec.json.encode(contexts)), 0o600)
    except OSError as error:
        raise InvalidInput(Problem("", f"cannot write {path}: {error.strerror}")) from None


def checked_url(url: str) -> str:
    """The address of a server in its normal form. Raises InvalidInput."""
    from muster.addresses import is_server_url  # few commands ask

    if "://" not in url:
        url = f"http://{url}" if url.startswith(("localhost", "127.")) else f"https://{url}"
    if not is_server_url(url):
        hint = "write https://HOST or http://HOST:PORT"
        raise InvalidInput(Problem("", f"{url!r} is not the address of a server", hint))
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def name_of(url: str) -> str:
    """The default name of a context: the server's host, with the port if there is one."""
    return urlsplit(url).netloc


def _file() -> Path:
    from muster.storage.home import default_home

    return default_home().contexts


def _read(path: Path) -> Contexts:
    with open(path, "rb") as file:
        data = file.read(_MOST)
    try:
        found = msgspec.json.decode(data, type=Contexts)
        return found.used(found.current)
    except (msgspec.DecodeError, msgspec.ValidationError, InvalidInput) as error:
        hint = "`muster login URL` writes it anew; remove it first"
        raise InvalidInput(Problem("", f"{path} is damaged: {error}", hint)) from None
