"""What the methods of `MusterAPI` return, other than records of the store and streams."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.describe.stacks import ThreadStack


class OutputFile(Struct, frozen=True):
    """A file, or a symbolic link, that a program wrote to its output directory."""

    #: The node in whose $MUSTER_OUTPUTS it is; None: it is in $MUSTER_RUN_OUTPUTS, which the nodes
    #: share.
    rank: int | None
    #: Its path in this directory, with slashes.
    path: str
    #: In bytes.
    size: int
    #: Epoch seconds.
    modified: float
    #: Its permissions: the lowest nine bits of its mode.
    mode: int
    #: What a symbolic link points to; None for files.
    link: str | None = None
    #: Whether it is a link to something outside the outputs of the run, which cannot be read.
    leaves_outputs: bool = False
    #: What a link in a copy of all outputs points to; None for files, and for links that leave.
    link_in_copy: str | None = None


class OutputList(Struct, frozen=True):
    """The outputs of a run."""

    #: Their folder on Muster's machine, for people who use that machine.
    folder: str
    #: Those that the nodes share, then by rank and path.
    files: tuple[OutputFile, ...]


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


class PlanLimits(Struct, frozen=True):
    """What the nodes of a planned run would get."""

    #: Group -> what each of its nodes gets, as a phrase; without groups that have no limits.
    limits: Mapping[str, str]
    #: Group -> how many bytes of memory each of its nodes should use.
    memory: Mapping[str, int]


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
