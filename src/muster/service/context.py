"""What every use case gets: who asks and from where, and what it works with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from muster.caller import Caller
from muster.service.backend import Backend
from muster.submission import Submission

if TYPE_CHECKING:
    from muster.storage.artifact_lock import ArtifactLock
    from muster.storage.home import Home
    from muster.store.base import Store


class Context(Struct, frozen=True):
    """One caller's access to a MUSTER_HOME. Threads may share a context."""

    backend: Backend
    caller: Caller
    #: Where the request comes from.
    submission: Submission

    @property
    def home(self) -> Home:
        """MUSTER_HOME."""
        return self.backend.home

    @property
    def store(self) -> Store:
        """The store; see `Backend.store`."""
        return self.backend.store

    @property
    def project(self) -> str:
        """The caller's project."""
        return self.caller.project

    @property
    def artifact_lock(self) -> ArtifactLock:
        """See `Backend.artifact_lock`."""
        return self.backend.artifact_lock
