"""What all requests to a server share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from muster.caller import Caller
from muster.errors import HomeGone, Problem
from muster.plan.model import PrincipalPlan
from muster.server.log import ServerLog
from muster.server.metrics import Metrics
from muster.server.node_ports import ForwardedPorts
from muster.server.oci.compartments import Compartments
from muster.server.settings import Settings
from muster.server.tracing import make_tracer
from muster.service.audit import Origin
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.spec.ocids import NO_REGION, TENANCY
from muster.storage.owners import account_of
from muster.submission import Submission
from muster.unix_account import UnixAccount

if TYPE_CHECKING:
    from muster.plan.model import MountPlan

T = TypeVar("T")
#: Finds the caller of a token, in a project (None: the default one).
Authenticate = Callable[[str, str | None], Caller]
#: Threads for requests: each reads or writes the store, or files.
_THREADS = 32
#: Threads for the bytes of objects. They are others, since a gigabyte that is flushed to the disk
#: keeps one for seconds.
_FILE_THREADS = 16


class ServerState:
    """See the module."""

    def __init__(
        self, settings: Settings, backend: Backend, authenticate: Authenticate, log: ServerLog
    ) -> None:
        self.authenticate = authenticate
        self.settings = settings
        self.backend = backend
        self.log = log
        #: The projects by the OCIDs that clients of OCI know.
        self.compartments = Compartments(lambda: backend.store, settings.file.oci.compartments)
        backend.policies.configure(settings.file.oci.compartments, settings.oci_region or "")
        self.forwarded_ports = ForwardedPorts()
        self.metrics = Metrics()
        self.tracer = make_tracer()
        #: Seconds since the last look for runs without a supervisor.
        self.recovery_age: Callable[[], float] = lambda: 0.0
        #: That of a request which starts nothing.
        self._submission = Submission(
            environ=settings.file.environ,
            python=settings.file.python,
            folder=Path("/"),
            has_files=False,
            allow_private_addresses=settings.file.allow_private_addresses,
            separate_owners=os.geteuid() == 0 and settings.file.separate_owners,
        )
        self._accounts: dict[str, UnixAccount] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "request")
        self._file_threads = ThreadPoolExecutor(_FILE_THREADS, "files")
        #: Set when the server stops: streams end then.
        self.stopping = asyncio.Event()

    def api(
        self,
        caller: Caller,
        origin: Origin,
        environ: Mapping[str, str],
        created_id: str | None = None,
        *,
        may_start: bool,
        local: bool = False,
        oci_names: Mapping[str, str] | None = None,
        inputs: tuple[MountPlan, ...] = (),
        python: str | None = None,
    ) -> EmbeddedAPI:
        """Muster for a caller. environ: the variables that the caller has sent. created_id,
        oci_names, inputs: see `Submission`. python: of nodes, instead of that of the settings.
        may_start: whether a run may be started or planned, which needs the Unix account of the
        caller. local: the caller is a user of this MUSTER_HOME, on this machine. Raises
        InvalidInput if there can be no account."""
        submission = self._submission
        if environ or created_id is not None or may_start:
            submission = replace(
                submission,
                environ={**submission.environ, **environ},
                created_id=created_id,
                account=self.account_of_runs(caller.user, local=local) if may_start else None,
                has_files=local,
                oci_names=oci_names or {},
                inputs=inputs,
                principal=self._principal_of_runs(caller.project) if may_start else None,
                python=python or submission.python,
            )
        return EmbeddedAPI(
            caller=caller, backend=self.backend, submission=submission, origin=origin
        )

    def _principal_of_runs(self, project: str) -> PrincipalPlan | None:
        """How runs of a project act here; None if they do not."""
        settings, compartments = self.settings, self.compartments
        if not settings.file.oci.resource_principals:
            return None
        region = settings.oci_region
        return PrincipalPlan(
            tenancy=compartments.tenancy or TENANCY,
            compartment=compartments.ocid(project),
            region=region or NO_REGION,
            endpoint="" if region else settings.endpoint,
            own_authority=settings.tls_cert == str(self.backend.home.oci_certificate / "cert.pem"),
        )

    def check_home(self) -> None:
        """Raises HomeGone if MUSTER_HOME is not in its place, before anything is written there: an
        empty one would give Unix accounts and names anew."""
        root = self.backend.home.root
        if not root.exists():
            hint = "put it back, or start the server with another MUSTER_HOME"
            raise HomeGone(str(Problem("", f"{root} was deleted or moved away", hint)))

    def account_of_runs(self, user: str, *, local: bool = False) -> UnixAccount | None:
        """Whom the nodes of a user's runs belong to; None if that is the user of this process.
        local: see `api`. Raises InvalidInput if there can be no account."""
        if local or not self._submission.separate_owners:
            return None
        known = self._accounts.get(user)
        if known is None:
            known = account_of(self.backend.home, user, self.settings.file.accounts.get(user))
            self._accounts[user] = known
        return known

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that may block."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    async def in_file_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that reads or writes many bytes."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._file_threads, function, *args)

    def close(self) -> None:
        """Close what is open. Runs continue."""
        self.forwarded_ports.close()
        self.tracer.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._file_threads.shutdown(wait=True, cancel_futures=True)
        self.backend.close()
