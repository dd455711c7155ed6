"""The pods of an observed JobSet whose ends were reported, recorded in the run's folder.

A Job keeps the pods that have failed, so the next supervisor finds them in the cluster again: their
ends are not reported a second time, and their logs are not copied again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from muster.lifecycle.status import NodeRef
from muster.node.files import open_regular, read_regular

#: The file in the run's folder: a line for each pod.
ENDED = "observed.ended"
#: Rank, incarnation and uid; the point shows that the line was not cut off.
_LINE = re.compile(r"^(\d+) (\d+) (\S+) \.$", re.MULTILINE)


class EndedPod(Struct, frozen=True):
    """A pod, and the incarnation of a node that has ended with it."""

    ref: NodeRef
    uid: str


def read_ended(path: Path) -> list[EndedPod]:
    """Those that are recorded. Raises OSError."""
    try:
        text = read_regular(path).decode()
    except FileNotFoundError:
        return []
    return [EndedPod(NodeRef(int(f[1]), int(f[2])), f[3]) for f in _LINE.finditer(text)]


def add_ended(path: Path, pods: Iterable[EndedPod]) -> None:
    """Record more, before their ends are reported. Raises OSError.

    The supervisor may be killed in between: then the incarnation is still alive for the next one,
    which reports the end."""
    # each begins a line of its own, as the last one may have been cut off
    lines = [f"\n{one.ref.rank} {one.ref.incarnation} {one.uid} ." for one in pods]
    if lines:
        descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write("".join(lines).encode())
