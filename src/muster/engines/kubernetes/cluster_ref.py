"""Which cluster a run is in, and how it is found again. Pure."""

from __future__ import annotations

from msgspec import Struct


class ClusterRef(Struct, frozen=True):
    """The cluster of a run, as recorded before anything is applied there. Later processes may have
    other settings of kubectl, and look for this cluster all the same."""

    #: The files as in $KUBECONFIG, with absolute paths; "": the service account of a pod.
    kubeconfig: str
    #: The context in them; "" for a service account.
    context: str
    namespace: str
    #: The URL of its API server.
    server: str
    #: The uid of a namespace there, and which one: no other cluster has it. "": none may be read.
    uid: str = ""
    uid_of: str = ""

    @property
    def place(self) -> str:
        """It as a phrase, for people."""
        if not self.kubeconfig:
            return f"the cluster of its pod ({self.server})"
        return f"context {self.context} ({self.server})"
