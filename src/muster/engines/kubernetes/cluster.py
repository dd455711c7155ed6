"""Calls of one API server, in one namespace. They block: threads make them.

Each call may be made again: what is applied or deleted twice is the same as once, and what is
created twice is refused the second time. So connections that are lost, and answers that never come,
are met by another try.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.engines.kubernetes.access import why_not_installed
from muster.engines.kubernetes.answers import (
    LONGEST_OBJECT,
    check_object,
    decoded,
    excerpt,
    listed,
    understood,
)
from muster.engines.kubernetes.cluster_ref import ClusterRef
from muster.engines.kubernetes.connection import RETRY_FOR, Connection, retried
from muster.engines.kubernetes.excerpts import Page
from muster.engines.kubernetes.kinds import KINDS, Kind
from muster.engines.kubernetes.names import FIELD_MANAGER
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.refusals import CannotCall, Operation
from muster.engines.kubernetes.sessions import JSON, Request
from muster.engines.kubernetes.streams import (
    STREAM_SECONDS,
    ByteStream,
    Event,
    VersionExpired,
    Watch,
)
from muster.engines.kubernetes.versions import (
    JOBSET_API_GROUP,
    KUEUE_API_GROUP,
    Versions,
    read_versions,
)

__all__ = [
    "ByteStream",
    "CannotCall",
    "Cluster",
    "Event",
    "Listing",
    "VersionExpired",
    "Watch",
    "why_not_installed",
]

T = TypeVar("T")
#: Seconds for which calls are tried again where a person waits, and can try again.
RETRY_BRIEFLY = 2.0
#: Objects in a page of a list; how often a list is begun whose pages were forgotten, and seconds
#: between two of these.
_PAGE, _MOST_LISTS, _LIST_PAUSE = 100, 3, 0.2
#: Pages of a list that are read: several times the pods for which Kubernetes is made.
_MOST_PAGES = 5000
#: Bytes of a page of a list, or of a whole log, that are read: twice of what etcd stores of each
#: object by default, as JSON is longer.
_LONGEST_PAGE = _LONGEST_LOG = _PAGE * (3 << 20)
_APPLY = "application/apply-patch+yaml"
#: Seconds between two looks whether objects are gone: nobody else watches them.
_GONE_PAUSE, _GONE_TIMEOUT = 1.0, 300.0


class Listing(Struct, frozen=True):
    """Objects of a kind, as they were at one time."""

    items: Sequence[dict[str, Any]]
    #: Changes can be watched from here on.
    version: str


class Cluster:
    """The API server of a profile, whose configuration is read at the first call. Methods raise
    CannotCall, and may be called from several threads.

    environ: see `access`. ref: of a run that is in a cluster already: no other one is called,
    whatever kubectl's current context is. retry_for: seconds for which a failed call is retried, at
    most.
    """

    def __init__(
        self,
        profile: KubernetesProfile,
        environ: Mapping[str, str] = os.environ,
        ref: ClusterRef | None = None,
        *,
        retry_for: float = RETRY_FOR,
    ) -> None:
        #: Where it is, and how it is reached.
        self.connection = Connection(profile, environ, ref)
        self._retry_for = retry_for
        self._kueue = ""  # the version of its API
        self._versions: Versions | None = None

    # --- objects

    def apply(self, manifest: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Create an object, or change its fields that Muster owns. Returns it as it is then.
        dry_run: the cluster only says whether it would do so."""
        name = manifest["metadata"]["name"]
        operation = self._operation("patch", str(manifest["kind"]), name, manifest)
        query = {"fieldManager": FIELD_MANAGER, "force": "false", "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        path = self._kind(operation.kind).path(operation.namespace, name)
        return self._object(operation, path, query, manifest, _APPLY)

    def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object. Returns it. One that exists already is refused (409), though it may be
        that of this call, if an answer was lost: its labels have to say whose it is."""
        operation = self._operation(
            "create", str(manifest["kind"]), manifest["metadata"]["name"], manifest
        )
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return self._object(
            operation, self._kind(operation.kind).path(operation.namespace), query, manifest
        )

    def delete(self, kind: str, name: str, uid: str | None = None) -> None:
        """Delete an object, and in the background what it owns. One that is not there, or has
        another uid, is deleted."""
        operation = self._operation("delete", kind, name)
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        options = body if uid is None else {**body, "preconditions": {"uid": uid}}
        try:
            self._call(operation, self._kind(kind).path(operation.namespace, name), {}, options)
        except CannotCall as error:
            if error.status != 404 and not (error.status == 409 and uid is not None):
                raise

    def read(self, kind: str, name: str, *, retry_for: float = RETRY_FOR) -> dict[str, Any]:
        """An object as it is now."""
        operation = self._operation("get", kind, name)
        path = self._kind(kind).path(operation.namespace, name)
        return self._object(operation, path, retry_for=retry_for)

    def list(self, kind: str, selector: str = "") -> Listing:
        """The objects with these labels."""
        for _ in range(_MOST_LISTS):
            with contextlib.suppress(VersionExpired):  # it took too long
                pages = [*self.pages(kind, selector)]
                return Listing([one for page in pages for one in page.items], pages[-1].version)
            time.sleep(_LIST_PAUSE)
        text = f"the API server has forgotten a list of {kind} objects before it was read"
        raise CannotCall(text, refused=False)

    def pages(
        self,
        kind: str,
        selector: str = "",
        *,
        excerpts: bool = False,
        retry_for: float = RETRY_FOR,
    ) -> Iterator[Listing]:
        """The objects with these labels, some at a time; all pages have one version. Raises
        VersionExpired if they are not known any more. selector: of labels, or `metadata.name=NAME`.
        excerpts: only the fields that `excerpts` has."""
        operation = self._operation("list", kind)
        path = self._kind(kind).path(operation.namespace)
        query = {"limit": str(_PAGE), **_selection(selector)}
        more = ""
        for _ in range(_MOST_PAGES):
            own = query | ({"continue": more} if more else {})
            try:
                form = Page if excerpts else dict[str, Any]
                found = self._call(
                    operation, path, own, form=form, most=_LONGEST_PAGE, retry_for=retry_for
                )
            except CannotCall as error:
                if error.status == 410 and more:
                    raise VersionExpired from None
                raise
            with understood():
                about, every = found.get("metadata") or {}, found.get("items") or ()
                version, more = (
                    str(about.get("resourceVersion", "")),
                    str(about.get("continue") or ""),
                )
                items = [excerpt(one) for one in every] if excerpts else listed(found)
            yield Listing(items, version)
            if not more:
                return
        text = f"the cluster's answer cannot be read: its list of {kind} objects does not end"
        raise CannotCall(text, refused=False)

    def events(
        self, kind: str, name: str, reason: str = "", *, retry_for: float = RETRY_FOR
    ) -> Sequence[dict[str, Any]]:
        """What the cluster has reported of an object (Kubernetes: Event). reason: only those."""
        operation = self._operation("list", "Event")
        fields = f"involvedObject.kind={kind},involvedObject.name={name}"
        fields += f",reason={reason}" if reason else ""
        query = {"fieldSelector": fields, "limit": str(_PAGE)}
        path = self._kind("Event").path(operation.namespace)
        return listed(self._call(operation, path, query, most=_LONGEST_PAGE, retry_for=retry_for))

    def wait_until_gone(self, kind: str, selector: str, timeout: float = _GONE_TIMEOUT) -> None:
        """Wait until no object has these labels."""
        deadline = time.monotonic() + timeout
        while items := self.list(kind, selector).items:
            if time.monotonic() > deadline:
                with understood():
                    names = ", ".join(str(one["metadata"]["name"]) for one in items[:3])
                raise CannotCall(f"{len(items)} {kind} objects do not end: {names}", refused=False)
            time.sleep(_GONE_PAUSE)

    def watch(self, kind: str, selector: str, version: str) -> Watch:
        """The changes of objects with these labels since a version, with excerpts of them. Raises
        VersionExpired."""
        operation = self._operation("watch", kind)
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(STREAM_SECONDS),
            **_selection(selector),
        }
        path = self._kind(kind).path(operation.namespace)
        try:
            answer = self.connection.send(Request(operation, path, query, is_stream=True))
        except CannotCall as error:
            if error.status == 410:
                raise VersionExpired from None
            raise
        return Watch(operation, answer)

    def log(
        self,
        pod: str,
        container: str,
        since: str | None = None,
        *,
        lines: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
        retry_for: float = RETRY_FOR,
    ) -> bytes:
        """What a container has written. since: a time as the API has it. lines: the last ones.
        previous: of the container that was restarted. timestamps: whether each line begins with
        its time."""
        operation, path = self._log(pod)
        query = _log_query(container, since)
        query |= {"tailLines": str(lines)} if lines is not None else {}
        query |= {"previous": "true"} if previous else {}
        query |= {"timestamps": "true"} if timestamps else {}
        request = Request(operation, path, query, most=_LONGEST_LOG)
        return self._retried(lambda: self.connection.read(request), retry_for)

    def stream_log(
        self, pod: str, container: str, since: str | None = None, *, follow: bool = True
    ) -> ByteStream:
        """What a container has written; each line begins with its time. follow: and writes until it
        ends. since: see `log`. One request: nothing is tried again."""
        operation, path = self._log(pod)
        query = {**_log_query(container, since), "timestamps": "true"}
        query |= {"follow": "true"} if follow else {}
        return ByteStream(self.connection.send(Request(operation, path, query, is_stream=True)))

    def _log(self, pod: str) -> tuple[Operation, str]:
        operation = replace(self._operation("get", "Pod", pod), resource="pods/log")
        return operation, KINDS["Pod"].path(operation.namespace, pod, "log")

    # --- the cluster itself

    def versions(self) -> Versions:
        """What is installed; it is requested once."""
        if self._versions is None:
            self._versions = self.connection.versions(self._find_versions)
        return self._versions

    def serves(self, kind: str) -> bool:
        """Whether objects of a kind can be listed now: what defines it may be installed later than
        `versions` says."""
        served = self._groups().get(KINDS[kind].group, ())
        return bool(served) and self._kind(kind).version in served

    @understood()
    def _find_versions(self) -> Versions:
        groups = self._groups()
        schema: Mapping[str, Any] = {}
        if JOBSET_API_GROUP in groups:
            served, known = groups[JOBSET_API_GROUP], KINDS["JobSet"].version
            if known not in served:
                text = (
                    f"the cluster has JobSet's API {', '.join(served)}; this Muster needs {known}"
                )
                raise CannotCall(text, refused=True)
            path = f"/openapi/v3/apis/{JOBSET_API_GROUP}/{known}"
            try:
                schema = _jobset_schema(self._get(path))
            except CannotCall as error:
                if not error.refused:
                    raise
                # it is not shown: then it is taken for the newest
        return read_versions(self._get("/version"), groups, schema)

    def _groups(self) -> Mapping[str, Sequence[str]]:
        """Groups of the API that are served, with their versions."""
        found = self._get("/apis")
        with understood():
            return {
                str(group["name"]): [str(one["version"]) for one in group.get("versions") or ()]
                for group in found.get("groups") or ()
            }

    def missing_verbs(
        self, rights: Sequence[tuple[str, str, str]]
    ) -> Sequence[tuple[str, str, str]]:
        """Those of some rights that these credentials do not have in the namespace. Each is a verb,
        a group of the API and a resource, such as `pods/log`."""
        return [one for one in rights if not self._is_allowed(*one)]

    def _is_allowed(self, verb: str, group: str, resource: str) -> bool:
        resource, _, below = resource.partition("/")
        attributes = {"namespace": self.connection.namespace, "verb": verb, "group": group}
        attributes |= {"resource": resource, **({"subresource": below} if below else {})}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        operation = Operation(
            "create", "authorization.k8s.io", "selfsubjectaccessreviews", "access", ""
        )
        answer = self._call(operation, path, {}, body)
        with understood():
            return answer["status"].get("allowed") is True

    def close(self) -> None:
        """Close the connections, unless others use them. Calls open them again."""
        self._versions = None
        self.connection.close()

    # --- calls

    def _kind(self, name: str) -> Kind:
        """With the version of the API that the cluster has."""
        if KINDS[name].group != KUEUE_API_GROUP:
            return KINDS[name]
        if not self._kueue:
            served = self._groups().get(KUEUE_API_GROUP, ())
            if not served:
                return KINDS[name]  # it may be installed later
            newest = KINDS[name].version
            self._kueue = newest if newest in served else served[0]
        return replace(KINDS[name], version=self._kueue)

    def _operation(
        self, verb: str, kind: str, name: str = "", manifest: Mapping[str, Any] | None = None
    ) -> Operation:
        one = KINDS[kind]
        return Operation(
            verb, one.group, one.resource, kind, self.connection.namespace, name, manifest or {}
        )

    def _get(self, path: str) -> dict[str, Any]:
        """What the API server says of itself."""
        return self._call(Operation("get", "", path, path, ""), path)

    def _call(
        self,
        operation: Operation,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        *,
        form: Any = dict[str, Any],
        check: Callable[[dict[str, Any]], None] = lambda _: None,
        most: int = LONGEST_OBJECT,
        retry_for: float = RETRY_FOR,
    ) -> dict[str, Any]:
        """Call, and again for a while if that may help. Returns the object of the answer. form: the
        type of what is read of it. check: may raise CannotCall. most: see `Request`."""
        sent = None if body is None else msgspec.json.encode(body)
        request = Request(operation, path, query or {}, sent, content_type, most=most)

        def call() -> dict[str, Any]:
            found: dict[str, Any] = decoded(self.connection.read(request), form)
            check(found)
            return found

        return self._retried(call, retry_for)

    def _object(
        self, operation: Operation, *how: Any, retry_for: float = RETRY_FOR
    ) -> dict[str, Any]:
        """The same for an object of the cluster. how: see `_call`."""
        check = partial(check_object, kind=operation.kind)
        return self._call(operation, *how, retry_for=retry_for, check=check)

    def _retried(self, call: Callable[[], T], retry_for: float) -> T:
        return retried(call, min(retry_for, self._retry_for))


def _log_query(container: str, since: str | None) -> dict[str, str]:
    return {"container": container, **({"sinceTime": since} if since else {})}


def _selection(selector: str) -> dict[str, str]:
    """The query for the objects of a selector, of labels or of fields."""
    kind = "fieldSelector" if selector.startswith("metadata.") else "labelSelector"
    return {kind: selector} if selector else {}


def _jobset_schema(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a JobSet in an OpenAPI document; {} if it has none."""
    schemas = (document.get("components") or {}).get("schemas") or {}
    return next((one for name, one in schemas.items() if name.endswith(".JobSet")), {})
