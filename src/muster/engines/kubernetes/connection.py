"""The way to the API server of a profile: which cluster it is, and requests with credentials that
are renewed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from muster.engines.kubernetes import access
from muster.engines.kubernetes.access import Access
from muster.engines.kubernetes.answers import content, decoded, discard, refused, understood
from muster.engines.kubernetes.cluster_ref import ClusterRef
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.refusals import CannotCall, Operation
from muster.engines.kubernetes.sessions import Request, Session, Shared, shared
from muster.engines.kubernetes.versions import Versions
from muster.engines.remote.pauses import Backoff

if TYPE_CHECKING:
    import urllib3

T = TypeVar("T")
#: Seconds for which a call is tried again, unless the caller says otherwise.
RETRY_FOR = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 8.0
#: Kubernetes: the namespace that each cluster has, and keeps.
_SYSTEM = "kube-system"


def retried(call: Callable[[], T], seconds: float) -> T:
    """Call, and again for a while as long as that may help. Raises CannotCall, as `call` does."""
    deadline = time.monotonic() + seconds
    backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
    while True:
        try:
            return call()
        except CannotCall as error:
            wait = max(backoff.next() * random.uniform(0.5, 1.0), error.retry_after or 0.0)
            if error.refused or time.monotonic() + wait > deadline:
                raise
        time.sleep(wait)


class Connection:
    """See `Cluster`, whose parameters these are. Methods raise CannotCall, and may be called from
    several threads."""

    def __init__(
        self, profile: KubernetesProfile, environ: Mapping[str, str], ref: ClusterRef | None
    ) -> None:
        self._profile, self._environ, self._ref = profile, environ, ref
        self._lock = threading.Lock()
        self._shared: Shared | None = None

    @property
    def key(self) -> Hashable:
        """What two have in common that call the same namespace of the same cluster."""
        one = self._profile
        return self._ref or (one.kubeconfig, one.context, one.namespace)

    @property
    def namespace(self) -> str:
        """The namespace of all calls."""
        if self._ref is not None:
            return self._ref.namespace
        return self._profile.namespace or self._session().credentials.found.namespace

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._session().credentials.found.server

    def bind(self, retry_for: float | None = None) -> ClusterRef:
        """Find out which cluster it is, and call no other one from now on. retry_for: seconds, as
        for calls if None."""
        if self._ref is None:
            session = self._session()
            found = session.credentials.found
            try:
                for name in (_SYSTEM, found.namespace):
                    uid = retried(
                        partial(_uid, session, name), RETRY_FOR if retry_for is None else retry_for
                    )
                    if uid is not None:
                        found = replace(found, uid=uid, uid_of=name)
                        break
            except CannotCall:
                self._forget(session)  # its credentials may be renewed until the next call
                raise
            with self._lock:
                self._ref, self._shared = found, None
            self._sharing().offer(session)
        return self._ref

    def access(self) -> Access:
        """How the API server is reached by others. Raises ConnectionError."""
        try:
            return self._session().credentials.access()
        except CannotCall as error:
            raise ConnectionError(str(error)) from None

    def not_accepted(self, one: Access) -> None:
        """The API server has not accepted these credentials (401): the configuration is read again
        at the next call, unless that was done since."""
        with suppress(CannotCall):
            session = self._session()
            if session.credentials.access() == one:
                self._forget(session)

    def send(self, request: Request) -> urllib3.BaseHTTPResponse:
        """Send a request, and once more if the credentials have been renewed meanwhile. Returns an
        answer without error, whose content was not read."""
        session = self._session()
        answer = self._send(session, request)
        if answer.status == 401:
            discard(answer)
            self._forget(session)
            renewed = self._session()
            answer = self._send(renewed, request)
            if answer.status == 401:
                self._forget(renewed)  # they may be renewed until the next call
        if answer.status < 400:
            return answer
        raise refused(request.operation, answer)

    def read(self, request: Request) -> bytes:
        """The content of the answer to a request. See `send`."""
        return content(self.send(request), request.path, request.most)

    def versions(self, find: Callable[[], Versions]) -> Versions:
        """See `Shared.versions`."""
        return self._sharing().versions(find)

    def close(self) -> None:
        """Close the connections, unless others use them. Calls open them again."""
        with self._lock:
            self._shared = None

    # --- sessions

    def _send(self, session: Session, request: Request) -> urllib3.BaseHTTPResponse:
        try:
            return session.send(request)
        except CannotCall as error:
            if error.refused:  # such as a certificate, which may be renewed until the next call
                self._forget(session)
            raise

    def _session(self) -> Session:
        return self._sharing().session()

    def _sharing(self) -> Shared:
        with self._lock:
            if self._shared is None:
                # not a method: it would keep this one, and so itself, for ever
                load = partial(_load, self._profile, self._environ, self._ref)
                known = access.configuration_of(self._profile, self._environ)
                self._shared = shared((known, self._ref), load)
            return self._shared

    def _forget(self, session: Session) -> None:
        """The configuration is read again: its credentials may have been renewed."""
        self._sharing().forget(session)


def _load(
    profile: KubernetesProfile, environ: Mapping[str, str], ref: ClusterRef | None
) -> Session:
    """A session with the cluster of a run. ref: None: with that of the profile. Raises CannotCall,
    also if only other clusters are found."""
    if ref is None:
        return Session(access.load(profile, environ))
    reasons: list[str] = []
    unknown: CannotCall | None = None
    for read in access.ways_to(ref, profile, environ):
        try:
            session = Session(read())
            why = _why_another(session, ref)
        except CannotCall as error:
            if error.refused and error.status is None:
                reasons.append(str(error))
            else:  # it may be this one, which does not answer now
                unknown = unknown or error
            continue
        if not why:
            return session
        reasons.append(why)
    if unknown is not None:
        raise unknown
    why = "; ".join(dict.fromkeys(reasons))
    todo = (
        "restore this context, or name a file that has it in $KUBECONFIG"
        if ref.kubeconfig
        else "continue it in a pod there, or with a current context that leads there"
    )
    raise CannotCall(f"{why}; the run is in {ref.place}: {todo}", refused=True)


def _why_another(session: Session, ref: ClusterRef) -> str:
    """Why a configuration does not lead to the cluster of a run; "" if it does."""
    found = session.credentials.found
    where = f"context {found.context} of {found.kubeconfig}" if found.context else "the pod"
    uid = _uid(session, ref.uid_of) if ref.uid else None
    if uid is None:  # only the address is known
        return "" if found.server == ref.server else f"{where} is for {found.server}"
    return "" if uid == ref.uid else f"{where} is for another cluster, at {found.server}"


def _uid(session: Session, namespace: str) -> str | None:
    """The uid of a namespace, whose right is not in Muster's Role; None if it is not shown."""
    operation = Operation("get", "", "namespaces", "Namespace", "", namespace)
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}"
    answer = session.send(Request(operation, path))
    if answer.status < 400:
        with understood():
            return str(decoded(content(answer, path))["metadata"]["uid"])
    error = refused(operation, answer)
    if error.status in (403, 404):
        return None
    raise error
