"""Who is in a cluster, and what they write about themselves. Pure.

The files hold what ADS's nodes write and read (`OCI__MAIN_IP`, `SCHEDULER_IP`, ...), and under
`muster` what ours go by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, ValidationError, convert, field, to_builtins

from muster.assemble.parameters import Mode

#: Where programs of other origin look for the main node, by framework.
MAIN_KEYS = {
    "dask": "SCHEDULER_IP",
    "pytorch": "MASTER_ADDR",
    "ray": "HEAD_IP",
    "horovod": "OCI__WORKER_IP",
    "tensorflow": "OCI__WORKER_IP",
}
#: How the files end in which nodes beside the main one say who they are.
CONFIG = "_config.json"
_ORDER: dict[Mode, int] = {"MAIN": 0, "WORKER": 1, "PS": 2}


class Member(Struct, frozen=True):
    """One node. run: what it alone is called, a former life of it is not. ports: where it will
    listen, by the framework's names. rank: if it was told one."""

    run: str
    mode: Mode
    address: str
    hostname: str
    ports: Mapping[str, int] = field(default_factory=dict)
    rank: int | None = None

    @property
    def file(self) -> str:
        """The file in which it says so."""
        return "MAIN_config.json" if self.mode == "MAIN" else f"{self.mode}_{self.run}{CONFIG}"

    @property
    def beat_file(self) -> str:
        """The file in which it shows that it lives, if it is not the main node."""
        return f"{self.mode}_{self.run}_beat.json"

    @property
    def end_file(self) -> str:
        """The file in which it says how it has ended."""
        return f"{self.mode}_{self.run}_end.json"


class Assembly(Struct, frozen=True):
    """A cluster that has come together. members: in rank order, the main node first.
    token: by which its nodes know each other."""

    cluster: str
    token: str
    members: tuple[Member, ...]

    def rank_of(self, run: str) -> int | None:
        """None if that node is not among them."""
        return next((rank for rank, m in enumerate(self.members) if m.run == run), None)

    def takes(self, run: str, cluster: str) -> bool:
        """Whether this is that cluster, and has that node in it."""
        return self.cluster == cluster and self.rank_of(run) is not None


def config(member: Member, framework: str, scratch: str) -> dict[str, Any]:
    """What every node writes of itself. scratch: its TMPDIR."""
    told: dict[str, Any] = {"tmpdir": scratch, "muster": to_builtins(member)}
    if member.mode == "MAIN":
        told["OCI__MAIN_IP"] = member.address
        if framework in MAIN_KEYS:
            told[MAIN_KEYS[framework]] = member.address
        if framework == "dask" and "scheduler" in member.ports:
            told["SCHEDULER_PORT"] = str(member.ports["scheduler"])
        if framework == "pytorch" and "master" in member.ports:
            told["MASTER_PORT"] = str(member.ports["master"])
        if framework == "tensorflow" and "server" in member.ports:
            told["WORKER_PORT"] = str(member.ports["server"])
    else:
        told["OCI__WORKER_IP"] = member.address
    return told


def member_of(data: Any) -> Member | None:
    """Who wrote this; None if it was none of us."""
    try:
        return convert(data["muster"], Member)
    except (KeyError, TypeError, ValidationError):
        return None


def waiting(member: Member, framework: str, scratch: str, cluster: str, number: int) -> Any:
    """The content of the file of a node that waits for the main node of that cluster to take it in.
    number: how often it was written."""
    return config(member, framework, scratch) | {"cluster": cluster, "number": number}


def waiting_of(data: Any, cluster: str) -> tuple[Member, int] | None:
    """Who waits to be taken into that cluster, and the file's number; None if nobody does."""
    member = member_of(data)
    if member is None or data.get("cluster") != cluster:
        return None
    number = data.get("number")
    return (member, number) if isinstance(number, int) else None


def of_another_version(data: Any) -> bool:
    """Whether a node wrote this that waits in another way: an earlier version did not count."""
    return isinstance(data, dict) and "muster" in data and not {"cluster", "number"} <= data.keys()


def assembly_of(data: Any) -> Assembly | None:
    """What `cluster.json` says; None if that is nothing."""
    try:
        return convert(data, Assembly)
    except ValidationError:
        return None


def ranked(members: Iterable[Member]) -> tuple[Member, ...]:
    """In rank order: the main node, the workers, the parameter servers; among equals by the rank
    each was told, then by name."""
    return tuple(
        sorted(members, key=lambda m: (_ORDER[m.mode], m.rank is None, m.rank or 0, m.run))
    )


def missing(members: Sequence[Member], workers: int, servers: int) -> str:
    """Who has not come, for people; empty if all have."""
    there = {mode: [m for m in members if m.mode == mode] for mode in _ORDER}
    said = []
    for mode, wanted, what in (("WORKER", workers, "worker"), ("PS", servers, "parameter server")):
        come = there[mode]  # type: ignore[index]
        if len(come) < wanted:
            who = ", ".join(f"{m.hostname} ({m.address})" for m in come) or "none"
            said.append(f"{len(come)} of {wanted} {what}s have come: {who}")
    return "; ".join(said)
