"""Addresses, host names and endpoints of the nodes of a run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Network
from muster.node.files import overwrite_file, replace_file
from muster.plan.model import NodePlan
from muster.plan.names import node_names

#: A Linux bridge has 1024 ports.
MAX_BRIDGE_NODES = 1000
#: The interface of a node that has a network of its own.
INTERFACE = "eth0"

#: Bounds of the addresses given to nodes on the shared network, as offsets in 127.0.0.0/8.
#: 127.0.x.y is left to other programs.
_FIRST, _LAST = 1 << 16, (1 << 24) - 256

HOSTS = Path("/etc/hosts")
RESOLVER = Path("/etc/resolv.conf")
#: The name of this machine on nodes of a cluster network.
MACHINE = "host.muster.internal"
#: A preloaded library that resolves the names of nodes where there is no mount namespace.
_WRAPPER = "libnss_wrapper.so"


# --- addresses


def allocate(network: Network, nodes: int) -> Sequence[str]:
    """An address for each of `nodes` nodes. Raises InvalidInput if the network has too few.

    On the shared network each run gets a random range of 127.0.0.0/8, so that two runs do not bind
    the same address. Other networks exist once for each run, so all runs use the same addresses.
    """
    if network != "shared":
        if nodes > MAX_BRIDGE_NODES:
            raise InvalidInput(
                Problem(
                    "network",
                    f"network: {network} supports {MAX_BRIDGE_NODES} nodes, the run has {nodes}",
                    "use network: shared",
                )
            )
        return [f"10.77.{(rank + 1) >> 8}.{(rank + 1) & 255}" for rank in range(nodes)]
    if not sys.platform.startswith("linux"):
        return ["127.0.0.1"] * nodes  # other systems configure only this loopback address
    # Runs of different users do not know of each other. A random start among 16 million addresses
    # makes it very unlikely that their ranges overlap.
    offset = int.from_bytes(os.urandom(4)) % (_LAST - nodes - _FIRST)
    start = (_FIRST + offset) & ~0xFF
    return [_loopback(start + rank + 1) for rank in range(nodes)]


def _loopback(offset: int) -> str:
    return f"127.{offset >> 16 & 255}.{offset >> 8 & 255}.{offset & 255}"


# --- host names


def write_hosts(
    path: Path,
    nodes: Sequence[NodePlan],
    shared: Sequence[str] = (),
    *,
    aliases: Mapping[str, Sequence[str]] | None = None,
    routed: bool = False,
    again: bool = False,
) -> None:
    """Write a hosts file: these nodes, then the entries of this machine's file.

    shared: names that resolve to the addresses of all nodes. aliases: names of other addresses,
    instead of those that the machine has for them. routed: whether the nodes reach this
    machine through an uplink. again: the file exists, mounted in nodes of which none runs.
    """
    names_of = {node.rank: (*node_names(node), *shared) for node in nodes}
    own = {name for names in names_of.values() for name in names}
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{node.address} {' '.join(names_of[node.rank])}" for node in nodes]
    if routed:
        from muster.engines.local.network import uplink  # few runs need it

        lines.append(f"{uplink.MACHINE} {MACHINE}")
    for address, given in (aliases or {}).items():
        lines.append(f"{address} {' '.join(given)}")
        own.update(given)
    others = [line for line, names in _machine_hosts() if not own & names]
    lines += map(_routed, others) if routed else others
    write = overwrite_file if again else replace_file
    write(path, ("\n".join(lines) + "\n").encode())


def _routed(line: str) -> str:
    """An entry of the machine's hosts file for nodes with an uplink: names of its loopback address
    are those of the machine."""
    from muster.engines.local.network import uplink

    address, names = line.split(maxsplit=1)
    return f"{uplink.MACHINE} {names}" if address.startswith("127.") else line


def _machine_hosts() -> Iterator[tuple[str, set[str]]]:
    """The entries of this machine's hosts file with the names in them, except localhost's."""
    with contextlib.suppress(OSError):  # the machine may have no such file
        for line in HOSTS.read_text().splitlines():
            names = set(line.partition("#")[0].split()[1:])
            if names and "localhost" not in names:
                yield line, names


def write_resolver(path: Path) -> None:
    """Write the resolv.conf of nodes with an uplink."""
    try:
        text = RESOLVER.read_text()
    except OSError:  # the machine may have no such file
        text = ""
    replace_file(path, resolver_for_nodes(text).encode())


def resolver_for_nodes(text: str) -> str:
    """A resolv.conf for nodes with an uplink, made from this machine's.

    Name servers that nodes cannot reach, such as those on the machine's loopback address, are
    replaced by the uplink's. So are IPv6 ones: the uplink carries IPv4 only.
    """
    from muster.engines.local.network import uplink

    servers: list[str] = []
    others = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["nameserver"] and len(words) > 1:
            servers.append(words[1] if _reachable(words[1]) else uplink.RESOLVER)
        else:
            others.append(line)
    lines = [f"nameserver {server}" for server in dict.fromkeys(servers or [uplink.RESOLVER])]
    return "\n".join([*lines, *others]) + "\n"


def _reachable(server: str) -> bool:
    """Whether nodes with an uplink reach this name server of the machine."""
    import ipaddress

    try:
        address = ipaddress.IPv4Address(server)
    except ValueError:
        return False
    return not address.is_loopback and not address.is_unspecified


def wrapper() -> str | None:
    """The path of libnss-wrapper; None if it is not installed."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"):
        library = f"{folder}/{_WRAPPER}"
        if os.path.exists(library):
            return library
    return None


def wrapper_environment(hosts: Path, node: NodePlan) -> dict[str, str]:
    """Variables that make node names resolve without namespaces; none if libnss-wrapper is not
    installed."""
    library = wrapper()
    if library is None:
        return {}
    return {
        "LD_PRELOAD": library,
        "NSS_WRAPPER_HOSTS": str(hosts),
        "NSS_WRAPPER_HOSTNAME": node.hostname,
    }
