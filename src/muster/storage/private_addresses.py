"""Keep what a server fetches for its users away from the server's own network.

A URL comes from somebody who may not reach what the server can: what listens on its machine or in
its network, and the credentials that clouds give to machines at 169.254.169.254. A check of the URL
alone is not enough, as its host may redirect to another one, or resolve to another address later:
the process that fetches checks each address at the moment when it connects.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from muster.errors import Problem
from muster.secrets import redacted
from muster.storage.sync_process import REFUSAL

_HINT = "use one that everybody can reach; allow_private_addresses in server.toml permits others"

#: The protocols of fsspec whose URLs name a host.
_WITH_HOST = frozenset({"http", "https", "ftp", "sftp", "ssh", "smb", "webhdfs"})
#: Those that connect outside Python, where nothing can be checked.
_UNCHECKED = frozenset({"hdfs", "arrow_hdfs"})
#: Addresses of IPv6 that translators forward to the address of IPv4 in their last 4 bytes.
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
#: All of IPv6 that is public. What is outside is of one network, as `fec0::/10`, or holds an
#: address of IPv4 that a router may forward to, as `::/96` and `64:ff9b:1::/48`. To Python, most of
#: it is public.
_PUBLIC = ipaddress.IPv6Network("2000::/3")
#: Not public either, which not every Python knows (IANA: Special-Purpose Address Registries).
_SPECIAL = (ipaddress.IPv6Network("3fff::/20"), ipaddress.IPv4Network("192.0.0.0/24"))


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found in _TRANSLATED:
            return is_public(str(ipaddress.IPv4Address(found.packed[-4:])))
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if inner:
            return is_public(str(inner))
        if found not in _PUBLIC:
            return False
    if any(found in network for network in _SPECIAL):
        return False
    return found.is_global and not found.is_multicast


def private_sources(sources: Mapping[str, str]) -> list[Problem]:
    """The URLs that lead to private addresses as far as can be known before they are fetched.
    sources: source -> path in the spec."""
    return [problem for source, path in sources.items() for problem in _check(source, path)]


def _check(source: str, path: str) -> Iterator[Problem]:
    shown = redacted(source)
    # fsspec chains URLs with the two colons that addresses of IPv6 have, too
    for link in re.split(r"::(?=[A-Za-z0-9_]+://)", source):
        protocol = link.partition("://")[0].lower()
        if protocol in _UNCHECKED:
            yield Problem(path, f"{shown}: a server cannot check where {protocol}:// leads", _HINT)
        elif protocol in _WITH_HOST and any(not is_public(one) for one in _addresses(link)):
            yield Problem(path, f"{shown}: {REFUSAL}", _HINT)


def _addresses(url: str) -> list[str]:
    """Those of a URL's host now; none if it has none."""
    try:
        host = urlsplit(url).hostname
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except (OSError, ValueError):
        return []  # fetching it fails, and says why
    return [str(entry[4][0]) for entry in found]


#: Events of Python before another program is started.
_PROGRAMS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.exec", "os.system", "os.fork"})


class NotAllowedError(OSError):
    """A connection to an address that is not one of the public internet, or a program."""


def refuse_private_addresses(but: str = "") -> list[str]:
    """From now on, let Python code of this process connect to public addresses only, and start no
    program, which could connect anywhere: a file with credentials may name one that obtains them.
    Both raise NotAllowedError. but: HOST:PORT that it may connect to; "": nowhere. Returns the list
    of addresses that are refused."""
    refused: list[str] = []
    allowed = {(address, but.rpartition(":")[2]) for address in _addresses(f"//{but}")}

    def check(event: str, args: tuple[object, ...]) -> None:
        if event in _PROGRAMS:
            raise NotAllowedError("a server starts no programs to copy files")
        if event != "socket.connect":
            return
        connecting, address = args
        if not isinstance(connecting, socket.socket) or not isinstance(address, tuple):
            return
        host = str(address[0])
        if not is_public(host) and (host, str(address[1])) not in allowed:
            refused.append(host)
            raise NotAllowedError(f"{host} is not an address of the public internet")

    sys.addaudithook(check)
    return refused
