"""The members of a cluster, and the files in which they describe themselves. Pure.

The files hold the keys that ADS's nodes write and read (`OCI__MAIN_IP`, `SCHEDULER_IP`, ...), and
under `muster` what Muster's nodes use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, ValidationError, convert, field, to_builtins

from muster.bootstrap.parameters import Mode

#: The key under which programs for ADS look for the address of the main node, by framework.
MAIN_KEYS = {
    "dask": "SCHEDULER_IP",
    "pytorch": "MASTER_ADDR",
    "ray": "HEAD_IP",
    "horovod": "OCI__WORKER_IP",
    "tensorflow": "OCI__WORKER_IP",
}
#: The end of the names of registration files.
CONFIG = "_config.json"
_ORDER: dict[Mode, int] = {"MAIN": 0, "WORKER": 1, "PS": 2}


class Member(Struct, frozen=True):
    """One node of a cluster."""

    #: The unique name of this process; a restarted node has another.
    run: str
    mode: Mode
    address: str
    hostname: str
    #: The ports it listens on, by the framework's names for them.
    ports: Mapping[str, int] = field(default_factory=dict)
    #: The rank that its environment gives it among the nodes of its mode.
    rank: int | None = None

    @property
    def file(self) -> str:
        """The file in which the node registers."""
        return "MAIN_config.json" if self.mode == "MAIN" else f"{self.mode}_{self.run}{CONFIG}"

    @property
    def heartbeat_file(self) -> str:
        """The file with its heartbeats. (The main node writes `workdir.HEARTBEAT`.)"""
        return f"{self.mode}_{self.run}_beat.json"

    @property
    def exit_file(self) -> str:
        """The file with its exit report."""
        return f"{self.mode}_{self.run}_end.json"


class Roster(Struct, frozen=True):
    """The members of a complete cluster, as `cluster.json` lists them."""

    #: The id of the cluster.
    cluster: str
    #: The secret by which its nodes recognize each other.
    token: str
    #: In the order of ranks, the main node first.
    members: tuple[Member, ...]

    def rank_of(self, run: str) -> int | None:
        """The rank of the node named `run`; None if it is not a member."""
        return next((rank for rank, m in enumerate(self.members) if m.run == run), None)

    def includes(self, run: str, cluster: str) -> bool:
        """Whether this is the roster of `cluster` and lists the node named `run`."""
        return self.cluster == cluster and self.rank_of(run) is not None

    def name_of(self, member: Member) -> str:
        """A member's name in messages."""
        return f"node-{self.members.index(member)} ({member.address})"


def description(member: Member, framework: str, scratch: str) -> dict[str, Any]:
    """The keys with which every node describes itself. scratch: its TMPDIR."""
    keys: dict[str, Any] = {"tmpdir": scratch, "muster": to_builtins(member)}
    if member.mode == "MAIN":
        keys["OCI__MAIN_IP"] = member.address
        if framework in MAIN_KEYS:
            keys[MAIN_KEYS[framework]] = member.address
        if framework == "dask" and "scheduler" in member.ports:
            keys["SCHEDULER_PORT"] = str(member.ports["scheduler"])
        if framework == "pytorch" and "master" in member.ports:
            keys["MASTER_PORT"] = str(member.ports["master"])
        if framework == "tensorflow" and "server" in member.ports:
            keys["WORKER_PORT"] = str(member.ports["server"])
    else:
        keys["OCI__WORKER_IP"] = member.address
    return keys


def read_member(data: Any) -> Member | None:
    """The node that a file describes; None if Muster did not write the file."""
    try:
        return convert(data["muster"], Member)
    except (KeyError, TypeError, ValidationError):
        return None


def registration(member: Member, framework: str, scratch: str, cluster: str, count: int) -> Any:
    """The file of a node that waits to join a cluster. count: how often it was written before."""
    return description(member, framework, scratch) | {"cluster": cluster, "number": count}


def read_registration(data: Any, cluster: str) -> tuple[Member, int] | None:
    """The node that waits to join this cluster, and its counter; None if the file has neither."""
    member = read_member(data)
    if member is None or data.get("cluster") != cluster:
        return None
    count = data.get("number")
    return (member, count) if isinstance(count, int) else None


def is_of_other_version(data: Any) -> bool:
    """Whether a node of an earlier version of Muster wrote a registration: it has no counter."""
    return isinstance(data, dict) and "muster" in data and not {"cluster", "number"} <= data.keys()


def read_roster(data: Any) -> Roster | None:
    """The content of `cluster.json`; None if it is not a roster."""
    try:
        return convert(data, Roster)
    except ValidationError:
        return None


def ranked(members: Iterable[Member]) -> tuple[Member, ...]:
    """In the order of ranks: the main node, workers, parameter servers. Nodes of the same mode are
    ordered by the rank that their environment gives them, then by name."""
    return tuple(
        sorted(members, key=lambda m: (_ORDER[m.mode], m.rank is None, m.rank or 0, m.run))
    )


def missing(members: Sequence[Member], workers: int, servers: int) -> str:
    """A message that says how many nodes have joined and which; empty if the cluster is complete.

    workers, servers: how many of each the cluster needs.
    """
    parts = []
    needs: tuple[tuple[Mode, int, str], ...] = (
        ("WORKER", workers, "worker"),
        ("PS", servers, "parameter server"),
    )
    for mode, needed, what in needs:
        joined = [member for member in members if member.mode == mode]
        if len(joined) < needed:
            names = ", ".join(f"{m.hostname} ({m.address})" for m in joined)
            some = f"{len(joined)} of {needed} {what}s have joined: {names}"
            parts.append(some if joined else f"no {what} of {needed} has joined")
    return "; ".join(parts)
