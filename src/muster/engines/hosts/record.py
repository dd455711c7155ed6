"""Where the nodes of a run are, kept in the run's folder: a later supervisor finds them there, also
if the profile has changed meanwhile."""

from __future__ import annotations

from msgspec import Struct

from muster.engines.hosts.profile import Machine


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
