"""Names of nodes: each resolves on every node of its run, and nowhere else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from muster.node.files import replace_file
from muster.plan.model import NodePlan

HOSTS = Path("/etc/hosts")
RESOLVER = Path("/etc/resolv.conf")
#: The machine that nodes with a network of their own are on, as they know it.
_MACHINE = "host.muster.internal"
#: Gives names to any dynamically linked program where there is no mount namespace.
_WRAPPER = "libnss_wrapper.so"


def node_names(node: NodePlan) -> tuple[str, ...]:
    """Everything a node is called, its full name first: that is the one an address is looked up
    as."""
    return tuple(dict.fromkeys((node.fqdn, node.hostname, *node.names, f"node-{node.rank}")))


def write_hosts(
    path: Path, nodes: Sequence[NodePlan], shared: Sequence[str] = (), *, routed: bool = False
) -> None:
    """The run's hosts file: this machine's, with the run's nodes before it. shared: what all of
    them are called: such a name has all their addresses. routed: whether the nodes reach the
    machine through a network of their own."""
    names_of = {node.rank: (*node_names(node), *shared) for node in nodes}
    own = {name for names in names_of.values() for name in names}
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{node.address} {' '.join(names_of[node.rank])}" for node in nodes]
    if routed:
        from muster.engines.local import uplink  # few runs need it

        lines.append(f"{uplink.MACHINE} {_MACHINE}")
    with contextlib.suppress(OSError):  # a machine may have none
        for line in HOSTS.read_text().splitlines():
            names = line.partition("#")[0].split()[1:]
            if names and "localhost" not in names and not own & set(names):
                lines.append(line)
    replace_file(path, ("\n".join(lines) + "\n").encode())


def write_resolver(path: Path) -> None:
    """The resolv.conf of nodes with a way out: this machine's, with another name server in the
    place of those that they cannot reach, as those that listen on its loopback."""
    try:
        text = RESOLVER.read_text()
    except OSError:  # a machine may have none
        text = ""
    replace_file(path, resolver_for_nodes(text).encode())


def resolver_for_nodes(text: str) -> str:
    """What `write_resolver` makes of a resolv.conf. The nodes have no IPv6 outside."""
    from muster.engines.local import uplink

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
    """Whether nodes reach a name server that the machine reaches."""
    import ipaddress

    try:
        address = ipaddress.IPv4Address(server)
    except ValueError:
        return False
    return not address.is_loopback and not address.is_unspecified


def wrapper() -> str | None:
    """Where libnss-wrapper is; None where it is not."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"):
        library = f"{folder}/{_WRAPPER}"
        if os.path.exists(library):
            return library
    return None


def wrapper_environment(hosts: Path, node: NodePlan) -> dict[str, str]:
    """Environment that makes names work without namespaces; empty where libnss-wrapper is not."""
    library = wrapper()
    if library is None:
        return {}
    return {
        "LD_PRELOAD": library,
        "NSS_WRAPPER_HOSTS": str(hosts),
        "NSS_WRAPPER_HOSTNAME": node.hostname,
    }
