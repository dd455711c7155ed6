"""What the methods of `MusterAPI` return, other than records of the store and streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.describe.stacks import ThreadStack
from muster.permissions import Right


class CallerInfo(Struct, frozen=True):
    """Who calls."""

    user: str
    project: str
    rights: frozenset[Right]
    """What the caller may do in the project."""
    token_id: str = ""
    """Of the token that it shows; "" if it shows none."""


class ClusterAccess(Struct, frozen=True):
    """What a client of the cluster of a run needs besides its addresses."""

    #: PEM: the authority, the client's certificate and its key; "" if the nodes use no TLS.
    ca: str = ""
    certificate: str = ""
    key: str = ""
    #: The folder with `ca.pem`, `cert.pem` and `key.pem` on Muster's machine, for people who use
    #: that machine; "" if the nodes use no TLS.
    folder: str = ""
    #: "" if clients need none.
    token: str = ""


class Stacks(Struct, frozen=True):
    """The stacks of a run's Python threads."""

    threads: tuple[ThreadStack, ...]
    #: What could not be read, and why.
    problems: tuple[str, ...]


class EngineInfo(Struct, frozen=True):
    """An engine that runs can name."""

    name: str
    #: `built in`, `its profile`, or the distributions that provide it, with their versions.
    origin: str
    #: Why it cannot be used; "" if it can.
    unusable: str
    #: See `engines.capabilities`; None if it cannot be loaded.
    capabilities: Mapping[str, bool] | None


class PlanLimits(Struct, frozen=True):
    """What the nodes of a planned run would get from their engine."""

    #: Group -> what each of its nodes gets, as a phrase; without groups that have no limits.
    limits: Mapping[str, str]
    #: Group -> how many bytes of memory each of its nodes should use.
    memory: Mapping[str, int]
    #: What the engine does that others do differently: sentences.
    engine: Sequence[str] = ()
    #: What the engine would create: title -> text.
    created: Mapping[str, str] = {}


class DiskItem(Struct, frozen=True):
    """One kind of what Muster keeps on disk."""

    #: code, runs, environments, volumes, database or temporary.
    kind: str
    #: The number of stored versions of code, of runs, environments and volumes; else of files.
    count: int
    #: Bytes. What several share counts once.
    size: int
    #: Bytes that `prune` would free.
    prunable: int
    #: Of runs: the bytes of their logs, nodes (working directories), outputs, and the rest.
    parts: Mapping[str, int] = {}


class Pruned(Struct, frozen=True):
    """What was deleted, or with `dry_run` would be."""

    dry_run: bool
    #: Names of runs.
    runs: tuple[str, ...]
    #: The number of stored versions of code.
    code: int
    #: Keys of environments.
    environments: tuple[str, ...]
    #: The number of files and folders that killed processes have left.
    leftovers: int
    #: Bytes.
    freed: int
    #: What was kept although it is not needed, and why.
    kept: tuple[str, ...] = ()
    #: What could not be deleted, and why.
    failed: tuple[str, ...] = ()
