"""Names of nodes: each resolves on every node of its run, and nowhere else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from muster.node.files import replace_file
from muster.plan.model import NodePlan

HOSTS = Path("/etc/hosts")
#: Gives names to any dynamically linked program where there is no mount namespace.
_WRAPPER = "libnss_wrapper.so"


def node_names(node: NodePlan) -> tuple[str, ...]:
    """Everything a node is called, its full name first: that is the one an address is looked up
    as."""
    return tuple(dict.fromkeys((node.fqdn, node.hostname, *node.names, f"node-{node.rank}")))


def write_hosts(path: Path, nodes: Sequence[NodePlan], shared: Sequence[str] = ()) -> None:
    """The run's hosts file: this machine's, with the run's nodes before it. shared: what all of
    them are called: such a name has all their addresses."""
    names_of = {node.rank: (*node_names(node), *shared) for node in nodes}
    own = {name for names in names_of.values() for name in names}
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{node.address} {' '.join(names_of[node.rank])}" for node in nodes]
    with contextlib.suppress(OSError):  # a machine may have none
        for line in HOSTS.read_text().splitlines():
            names = line.partition("#")[0].split()[1:]
            if names and "localhost" not in names and not own & set(names):
                lines.append(line)
    replace_file(path, ("\n".join(lines) + "\n").encode())


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
