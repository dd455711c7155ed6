"""Where the nodes of a run are, kept in the run's folder: a later supervisor finds them there, also
if the profile has changed meanwhile."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from muster.engines.hosts.profile import Machine
from muster.node.files import read_regular, replace_file


class Record(Struct, frozen=True):
    """Where the nodes of a run are."""

    #: The folder of their files on the machines (`HostsProfile.folder`).
    folder: str
    #: rank -> machine.
    machines: dict[int, Machine] = {}
    #: `HostsProfile.isolation_timeout` when the run started: node servers that run keep theirs,
    #: whatever the profile says by now.
    isolation: float | None = None

    def folder_of(self, run_id: str, rank: int) -> str:
        """The folder of a node's server."""
        return f"{self.folder}/{run_id}-{rank}"


def read_record(path: Path) -> Record | None:
    """None if there is none. Raises OSError, also if it is damaged: nodes may run on machines that
    nobody knows."""
    try:
        return msgspec.json.decode(read_regular(path), type=Record)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OSError(f"{path} is damaged: {error}") from None


def write_record(path: Path, record: Record) -> None:
    """Write it. Raises OSError."""
    replace_file(path, msgspec.json.encode(record), 0o600)
