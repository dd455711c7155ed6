"""Who asks and where: ids, users, hosts, projects."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache

from msgspec import Struct

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no characters that look alike
_LENGTH = 10

#: The project of everything that is recorded on a machine without a server.
DEFAULT_PROJECT = "default"


def new_id() -> str:
    """A new id: ten characters, 50 random bits."""
    return "".join(_ALPHABET[byte & 31] for byte in os.urandom(_LENGTH))


def id_of(*parts: str) -> str:
    """The id that these texts name: always the same, and another one for other texts."""
    from hashlib import sha256

    digest = sha256("\0".join(parts).encode(errors="surrogateescape")).digest()
    return "".join(_ALPHABET[byte & 31] for byte in digest[:_LENGTH])


def is_id(text: str) -> bool:
    """Whether `new_id` may have returned this."""
    return len(text) == _LENGTH and set(text) <= set(_ALPHABET)


def user_name() -> str:
    """The user of this process: the name, or the number if it has none (OCI: createdBy)."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


class Owner(Struct, frozen=True):
    """A process that drives runs, as the owner of their leases."""

    #: Unique among all processes of all hosts.
    id: str
    #: The name of its host.
    host: str
    #: Identifies the start of the host's kernel, which containers share; "" if unknown.
    boot: str

    def on_same_host(self, host: str, boot: str) -> bool:
        """Whether a process with this host and boot ran on the host of this one, maybe before it
        was restarted."""
        return host == self.host or bool(boot and boot == self.boot)


def new_owner() -> Owner:
    """An owner on this host."""
    return Owner(new_id(), os.uname().nodename, _boot_id())


def is_this_host(host: str, boot: str) -> bool:
    """Whether an owner with this host and boot is, or was, on this host."""
    return Owner("", os.uname().nodename, _boot_id()).on_same_host(host, boot)


@cache
def _boot_id() -> str:
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:  # Linux
        return file.read().strip()
    return ""
