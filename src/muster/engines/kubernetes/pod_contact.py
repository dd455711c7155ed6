"""How the pods of one run are reached: through exec streams of the API server, or they dial this
machine.
"""

from __future__ import annotations

from collections.abc import Callable

from muster.engines.base import RunContext
from muster.engines.kubernetes.applied import PodDialing
from muster.engines.kubernetes.cluster import Cluster
from muster.engines.kubernetes.exec_streams import ExecStreams
from muster.engines.kubernetes.jobsets import JobSets
from muster.engines.kubernetes.pods import NODE, connect_command
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.loop import RunLoop
from muster.engines.remote.dialing import Dialing, first_free
from muster.engines.remote.pauses import Pauses
from muster.engines.remote.run_secrets import ContactSecrets, contact_secrets
from muster.node.connection import Connection, Transport
from muster.plan.model import GroupPlan

#: Seconds until it is tried again to make the secrets, and to listen.
_RETRY_PAUSE = 5.0


class PodContact:
    """If pods dial, makes the run's secrets, which takes its time, and listens.

    ready: called when pods can be reached, or dial. failed: gets why they cannot, as a phrase; it
    is tried again.
    """

    def __init__(
        self,
        context: RunContext,
        profile: KubernetesProfile,
        loop: RunLoop,
        cluster: Cluster,
        jobsets: JobSets,
        ready: Callable[[], object],
        failed: Callable[[str], object],
    ) -> None:
        self._context, self._profile = context, profile
        self._loop, self._cluster, self._jobsets = loop, cluster, jobsets
        self._ready, self._failed = ready, failed
        self._secrets: ContactSecrets | None = None
        self._streams: ExecStreams | None = None
        self._dialing: Dialing | None = None
        self._pauses = Pauses(loop)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        if self._profile.contact == "exec":
            self._loop.post(self._open_streams)
        else:
            self._loop.in_thread(self._make_secrets, self._secrets_made)

    def _open_streams(self) -> None:
        if not self._closed:
            self._streams = ExecStreams(self._cluster.connection)
            self._ready()

    def _make_secrets(self) -> ContactSecrets | OSError:
        """In a thread."""
        run_dir = self._context.home.run_dir(self._context.plan.run_id)
        try:
            return contact_secrets(run_dir)
        except OSError as error:
            return error

    def _secrets_made(self, made: ContactSecrets | OSError) -> None:
        if self._closed:
            return
        if isinstance(made, OSError):
            self._try_again(f"the secrets of the run cannot be kept: {made}")
            return
        try:
            self._listen()
        except OSError as error:
            self._try_again(f"pods cannot reach this machine: {error}")
            return
        self._secrets = made
        self._ready()

    def _try_again(self, why: str) -> None:
        self._failed(why)
        self._pauses.after(_RETRY_PAUSE, self._begin)

    def _listen(self) -> None:
        """Raises OSError."""
        self._dialing = first_free(self._listening_at, self._jobsets.port, self._profile.ports)
        self._jobsets.listens_at(self._dialing.port)

    def _listening_at(self, port: int) -> Dialing:
        """Raises OSError."""
        address = self._profile.address
        return Dialing(self._context, self._loop, "", None, port=port, reached_at=address)

    def close(self) -> None:
        """Open no streams any more, and listen no more."""
        self._closed = True
        self._pauses.close()
        if self._streams is not None:
            self._streams.close()
        if self._dialing is not None:
            self._dialing.close()

    # --- once it is ready

    @property
    def is_ready(self) -> bool:
        """Whether pods can be reached, or dial."""
        return self._streams is not None or self._secrets is not None

    @property
    def dials(self) -> bool:
        """Whether pods dial this machine."""
        return self._dialing is not None

    def pod_dialing(self) -> PodDialing | None:
        """How pods dial; None if they do not."""
        if self._dialing is None or self._secrets is None:
            return None
        return PodDialing(self._dialing.supervisor(), self._secrets.key_of)

    def open(self, pod: str, group: GroupPlan, explain: Callable[[str], str]) -> Transport:
        """A stream into the node server of a pod that does not dial. explain: see
        `ExecStreams.open`. Raises OSError."""
        if self._streams is None:
            raise OSError("pods are not reached yet")
        return self._streams.open(pod, NODE, connect_command(group, self._profile), explain)

    def expect(self, slot: int, take: Callable[[Connection], None]) -> None:
        """The pod of a slot may dial. take: gets its connection, and may raise Refusal."""
        if self._dialing is not None:
            self._dialing.of(slot).take = take

    def expect_server(self, slot: int, server: int) -> None:
        """Which of the servers of a slot may dial: see `Arrivals.server`."""
        if self._dialing is not None:
            self._dialing.of(slot).server = server

    def refuse(self, slot: int) -> None:
        """The pod of a slot may not dial any more."""
        if self._dialing is not None:
            self._dialing.of(slot).take = None
