"""The API server of the cluster, on loopback, with TLS.

Bodies are JSON or YAML. Watches have resource versions, bookmarks and 410; lists have pages, of the
state at the first one.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import select
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import yaml

from support.kube import discovery, metrics, patches
from support.kube.access import Access, Attributes, User, may
from support.kube.channels import (
    EXEC_PROTOCOLS,
    FORWARD_PROTOCOLS,
    Channels,
    serve_exec,
    serve_forward,
)
from support.kube.containers import Log
from support.kube.faults import Call, Fault, Faults
from support.kube.kubelet import Kubelet
from support.kube.objects import (
    JOBSET_GROUP,
    ApiError,
    Obj,
    Resource,
    Selector,
    fields_of,
    key_of,
    labels_of,
    timestamp,
)
from support.kube.scheduler import disrupt
from support.kube.storage import Event, Storage

_PATCHES: Mapping[str, Callable[[Any, Any], Any]] = {
    "application/merge-patch+json": patches.merge_patch,
    "application/strategic-merge-patch+json": patches.strategic_patch,
    "application/json-patch+json": patches.json_patch,
}
_APPLY = ("application/apply-patch+yaml", "application/apply-patch+json")
_SUBRESOURCES = ("status", "log", "exec", "portforward", "eviction")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter."
)


class Page(NamedTuple):
    """What a list has after its first pages."""

    number: int
    items: list[Obj]


class ApiServer:
    """Answers from `start` to `stop`, which may be repeated: the port stays."""

    def __init__(
        self,
        storage: Storage,
        resources: list[Resource],
        tls: ssl.SSLContext,
        *,
        kubernetes: discovery.Version,
        jobset: discovery.Version | None,
    ) -> None:
        self.storage, self.resources = storage, resources
        self.kubernetes, self.jobset = kubernetes, jobset
        self.access, self.faults = Access(), Faults()
        self.kubelet: Kubelet | None = None
        #: None: no metrics API is installed.
        self.metrics: metrics.MetricsServer | None = None
        #: The requests that have arrived, in order.
        self.calls: list[Call] = []
        #: Seconds between bookmarks.
        self.bookmark_interval = 1.0
        #: Pages of lists have at most so many objects.
        self.most_items = 10_000
        self.port = 0
        self.tls = tls
        self.connections: set[socket.socket] = set()
        self.pages: dict[str, Page] = {}
        #: Watches end, or stop to send, if this is not what it was when they began.
        self.epoch = 0
        self.stalled = 0
        self._tokens = itertools.count(1)
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def start(self) -> None:
        server = ThreadingHTTPServer(("127.0.0.1", self.port), partial(_Handler, self))
        server.daemon_threads = True
        self._server, self.port = server, server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Answer no more, and close all connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        self.end_streams()
        self.drop_connections()

    def drop_connections(self) -> None:
        """Close the connections of all clients."""
        for one in [*self.connections]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def end_streams(self) -> None:
        """End all watches, as if their time was over: without an error."""
        with self.storage.changed:
            self.epoch += 1
            self.storage.changed.notify_all()

    def stall_streams(self) -> None:
        """The watches that there are send nothing more, and stay open."""
        with self.storage.changed:
            self.stalled = self.epoch + 1
            self.epoch += 1
            self.storage.changed.notify_all()

    def next_token(self, page: Page) -> str:
        token = f"page-{next(self._tokens)}"
        self.pages[token] = page
        return token


class _Request(NamedTuple):
    """A request for objects."""

    resource: Resource
    subresource: str
    namespace: str
    name: str
    query: Mapping[str, str]
    verb: str
    user: User

    @property
    def attributes(self) -> Attributes:
        one = self.resource
        return Attributes(
            self.verb, one.group, one.plural, self.subresource, self.namespace, self.name
        )


class _Dropped(Exception):  # noqa: N818
    """The connection is closed without an answer."""


class _Answered(Exception):  # noqa: N818
    """The answer was sent."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, server: ApiServer, *words: Any) -> None:
        self.api = server
        super().__init__(*words)

    def setup(self) -> None:
        self.request = self.api.tls.wrap_socket(
            self.request, server_side=True, do_handshake_on_connect=False
        )
        self.request.settimeout(30)
        # as Go has it: a second small frame waits for no acknowledgement of the first
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().setup()

    def handle(self) -> None:
        self.api.connections.add(self.request)
        try:
            self.request.do_handshake()
            self.request.settimeout(None)
            super().handle()
        except OSError:
            pass  # the client, or the connection, is gone
        finally:
            self.api.connections.discard(self.request)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()
        self.request.close()

    def log_message(self, *_words: Any) -> None:
        """Nobody reads it."""

    # --- one request

    def _answer(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        self._body = self.rfile.read(size)
        where = urlsplit(self.path)
        self._lists = parse_qs(where.query, keep_blank_values=True)
        query = {key: values[0] for key, values in self._lists.items()}
        try:
            try:
                self._serve(where.path, query)
            except ApiError as error:
                self._json(error.code, error.status())
        except _Answered:
            pass
        except _Dropped:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.request.shutdown(socket.SHUT_RDWR)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    def _serve(self, path: str, query: Mapping[str, str]) -> None:
        parts = path.strip("/").split("/")
        user = self.api.access.authenticate(self.headers.get("authorization"))
        request = self._request(parts, query, user)
        if request is None:
            self._about(path.strip("/"), parts, user)
            return
        asked = request.attributes
        body = self._body if asked.verb in ("create", "patch") else b""
        place = (asked.resource, asked.subresource, asked.namespace, asked.name)
        self.api.calls.append(Call(asked.verb, *place, user.name, query, body, asked.group))
        fault = self.api.faults.take(asked)
        self._meet(fault)
        self.api.access.authorize(user, asked)
        status, answer = self._do(request)
        if fault.drop == "after":
            raise _Dropped
        if answer is not None:
            self._json(status, answer)

    def _meet(self, fault: Fault) -> None:
        if fault.delay:
            time.sleep(fault.delay)
        if fault.drop == "before":
            raise _Dropped
        if fault.status:
            reasons = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
            reason = reasons.get(fault.status, "")
            error = ApiError(fault.status, reason, fault.message or "a test asked for it")
            headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after >= 0 else {}
            self._json(fault.status, error.status(), headers)
            raise _Answered

    def _request(self, parts: list[str], query: Mapping[str, str], user: User) -> _Request | None:
        """A request for objects; None if it is for something else."""
        if parts[:2] == ["api", "v1"]:
            group, version, rest = "", "v1", parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return None
        known = {
            one.plural: one
            for one in self.api.resources
            if (one.group, one.version) == (group, version)
        }
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] in known:
            namespace, rest = rest[1], rest[2:]
        if not rest or rest[0] not in known:
            return None
        name, subresource = (rest[1:2] or [""])[0], (rest[2:3] or [""])[0]
        if subresource and subresource not in _SUBRESOURCES:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        verb = self._verb(name, query)
        resource = known[rest[0]]
        if resource.plural == "namespaces":
            namespace = name
        return _Request(resource, subresource, namespace, name, query, verb, user)

    def _verb(self, name: str, query: Mapping[str, str]) -> str:
        if self.command == "GET":
            watches = _is_set(query, "watch")
            return "watch" if watches else "get" if name else "list"
        if self.command == "DELETE":
            return "delete" if name else "deletecollection"
        return _VERBS[self.command]

    def _about(self, path: str, parts: list[str], user: User) -> None:
        """What is not about objects."""
        resources = self.api.resources
        answer: Obj | None = None
        if path == "version":
            answer = discovery.version(self.api.kubernetes)
        elif path == "api":
            answer = {"kind": "APIVersions", "versions": ["v1"]}
        elif path == "apis":
            answer = discovery.groups(resources)
        elif parts[0] == "apis" and len(parts) == 2:
            answer = discovery.group(parts[1], resources)
        elif path == "api/v1" or (parts[0] == "apis" and len(parts) == 3):
            answer = discovery.kinds("/".join(parts[1:]), resources)
        elif path == "openapi/v3":
            answer = discovery.openapi_index(resources)
        elif path.startswith("openapi/v3/"):
            answer = discovery.openapi("/".join(parts[2:]), resources, self.api.jobset)
        elif path in ("healthz", "readyz", "livez"):
            self._send(200, b"ok", "text/plain")
            return
        elif path.endswith("/selfsubjectaccessreviews") and self.command == "POST":
            self._json(201, _review(_decoded(self._body), user))
            return
        if answer is None:
            self._send(404, b"404 page not found\n", "text/plain", {"audit-id": uuid.uuid4().hex})
        else:
            self._json(200, answer)

    # --- what is done

    def _do(self, request: _Request) -> tuple[int, Obj | None]:
        """The answer; None if it was sent already."""
        if request.resource.plural == "pods" and request.subresource == "log":
            self._log(request)
            return 200, None
        if request.subresource in ("exec", "portforward"):
            self._channels(request)
            return 101, None
        if request.subresource == "eviction":
            return 201, self._evict(request)
        if request.resource == metrics.RESOURCE:
            return 200, self._metrics(request)
        if request.verb == "watch":
            self._watch(request)
            return 200, None
        if request.verb == "list":
            return 200, self._list(request)
        storage, place = self.api.storage, (request.resource.plural, *_place(request))
        if request.verb == "get":
            return 200, storage.get(*place)
        if request.verb == "create":
            return 201, self._create(request)
        if request.verb in ("patch", "update"):
            return self._change(request)
        if request.verb == "deletecollection":
            for one in self._selected(request):
                self._delete(request, key_of(one)[1])
            return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        return 200, self._delete(request, request.name)

    def _selected(self, request: _Request) -> list[Obj]:
        matches = _matcher(request)
        namespace = request.namespace if request.resource.namespaced else ""
        return [
            one
            for one in self.api.storage.listed(request.resource.plural, namespace)
            if matches(one)
        ]

    def _list(self, request: _Request) -> Obj:
        storage, resource = self.api.storage, request.resource
        limit = int(request.query.get("limit") or self.api.most_items)
        if token := request.query.get("continue"):
            page = self.api.pages.pop(token, None)
            if page is None or page.number < storage.compacted:
                raise ApiError(410, "Expired", _EXPIRED)
        else:
            with storage.lock:
                page = Page(storage.number, self._selected(request))
        meta: Obj = {"resourceVersion": str(page.number)}
        items, rest = page.items[:limit], page.items[limit:]
        if rest:
            meta["continue"] = self.api.next_token(Page(page.number, rest))
            meta["remainingItemCount"] = len(rest)
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": meta,
            # as a real one: entries of the list have no kind of their own, but for CRDs
            "items": items
            if resource.group not in ("", "batch")
            else [_bare(one) for one in items],
        }

    def _metrics(self, request: _Request) -> Obj:
        server = self.api.metrics
        assert server is not None, "it is served"
        if request.verb not in metrics.VERBS:
            text = "the server does not allow this method on the requested resource"
            raise ApiError(405, "MethodNotAllowed", text)
        if request.verb == "get":
            return server.get(request.namespace, request.name)
        return server.listed(request.namespace, _matcher(request))

    def _create(self, request: _Request) -> Obj:
        obj = self._given(request)
        manager = self._manager(request)
        patches.own_changes(request.resource, obj, None, manager)
        dry_run = "dryRun" in request.query
        return self.api.storage.create(request.resource.plural, obj, dry_run=dry_run)

    def _given(self, request: _Request) -> Obj:
        """The object of the body."""
        obj = _decoded(self._body)
        if not isinstance(obj, dict):
            raise ApiError(400, "BadRequest", "the body must be an object")
        resource = request.resource
        kind = obj.get("kind", resource.kind), obj.get("apiVersion", resource.api_version)
        if kind != (resource.kind, resource.api_version):
            text = f"the object provided is a {kind[1]} {kind[0]}, not a {resource.kind}"
            raise ApiError(400, "BadRequest", text)
        meta = obj.setdefault("metadata", {})
        if request.name and meta.setdefault("name", request.name) != request.name:
            text = f"the name of the object ({meta['name']}) does not match the name on the URL "
            raise ApiError(400, "BadRequest", f"{text}({request.name})")
        place = meta.setdefault("namespace", request.namespace) if resource.namespaced else ""
        if place and place != request.namespace:
            text = "the namespace of the provided object does not match the namespace sent on "
            raise ApiError(400, "BadRequest", f"{text}the request")
        return self._known(request, obj)

    def _known(self, request: _Request, obj: Obj) -> Obj:
        """A JobSet without fields that its schema does not have: they are refused, or dropped."""
        if request.resource.group != JOBSET_GROUP or self.api.jobset is None:
            return obj
        schema = discovery.jobset_schema(self.api.jobset)
        unknown = list(discovery.unknown_fields(schema, obj))
        if not unknown:
            return obj
        if request.verb == "patch":
            where = "/".join(key_of(obj))
            kind = f"{request.resource.api_version}, Kind={request.resource.kind}"
            text = f"failed to create typed patch object ({where}; {kind}): .{unknown[0]}: field "
            raise ApiError(500, "", f"{text}not declared in schema")
        if request.query.get("fieldValidation") == "Strict":
            listed = ", ".join(f'unknown field "{one}"' for one in unknown)
            raise ApiError(400, "BadRequest", f"strict decoding error: {listed}")
        made: Obj = discovery.pruned(schema, obj)
        return made

    def _manager(self, request: _Request) -> str:
        agent = str(self.headers.get("user-agent", "unknown"))
        return request.query.get("fieldManager") or agent.split("/", maxsplit=1)[0]

    def _change(self, request: _Request) -> tuple[int, Obj]:
        kind = str(self.headers.get("content-type", "")).partition(";")[0]
        if request.verb == "patch" and kind in _APPLY:
            return self._apply(request)
        manager, part = self._manager(request), request.subresource
        body = self._given(request) if request.verb == "update" else _decoded(self._body)
        if request.verb == "patch" and kind not in _PATCHES:
            text = f"the body of the request was in an unknown format - {kind}"
            raise ApiError(415, "UnsupportedMediaType", text)

        def change(obj: Obj) -> None:
            old = json.loads(json.dumps(obj))
            new = body if request.verb == "update" else _PATCHES[kind](old, body)
            if request.verb == "patch":
                new["metadata"].setdefault("resourceVersion", obj["metadata"]["resourceVersion"])
            obj.clear()
            obj.update(new)
            patches.own_changes(request.resource, obj, old, manager, part)

        place = (request.resource.plural, *_place(request))
        dry_run = "dryRun" in request.query
        return 200, self.api.storage.update(*place, change, subresource=part, dry_run=dry_run)

    def _apply(self, request: _Request) -> tuple[int, Obj]:
        manager = request.query.get("fieldManager")
        if not manager:
            text = "is required for apply patch"
            message = (
                f'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: {text}'
            )
            raise ApiError(422, "Invalid", message)
        given, resource, part = self._given(request), request.resource, request.subresource
        if given["metadata"].get("managedFields"):
            raise ApiError(400, "BadRequest", "metadata.managedFields must be nil")
        force = _is_set(request.query, "force")
        storage, place = self.api.storage, (resource.plural, *_place(request))
        dry_run = "dryRun" in request.query
        with storage.lock:
            if storage.find(*place) is None and not part:
                self.api.access.authorize(request.user, request.attributes._replace(verb="create"))
                if given["metadata"].get("uid"):
                    text = "uid mismatch: the provided object specified uid, and no object exists"
                    raise ApiError(409, "Conflict", text)
                made = patches.apply(resource, None, given, manager, force=force)
                return 201, storage.create(resource.plural, made, dry_run=dry_run)

            def change(obj: Obj) -> None:
                made = patches.apply(resource, obj, given, manager, force=force, part=part)
                obj.clear()
                obj.update(made)

            return 200, storage.update(*place, change, subresource=part, dry_run=dry_run)

    def _delete(self, request: _Request, name: str) -> Obj:
        options = _decoded(self._body) if self._body else {}
        grace = options.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
        propagation = options.get("propagationPolicy", request.query.get("propagationPolicy"))
        preconditions = options.get("preconditions") or {}
        namespace = request.namespace if request.resource.namespaced else ""
        obj = self.api.storage.delete(
            request.resource.plural,
            namespace,
            name,
            propagation=propagation or "Background",
            grace=None if grace is None else int(grace),
            uid=preconditions.get("uid"),
            version=preconditions.get("resourceVersion"),
        )
        if "deletionTimestamp" in obj["metadata"] and self.api.storage.find(
            request.resource.plural, namespace, name
        ):
            return obj
        details = {"name": name, "kind": request.resource.plural, "uid": obj["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": details}

    def _evict(self, request: _Request) -> Obj:
        pod = self.api.storage.get("pods", request.namespace, request.name)
        disrupt(self.api.storage, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
        self.api.storage.delete("pods", request.namespace, request.name)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    # --- streams

    def _watch(self, request: _Request) -> None:
        storage, query = self.api.storage, request.query
        version = query.get("resourceVersion", "")
        seconds = float(query.get("timeoutSeconds") or 1800)
        matches = _matcher(request)
        epoch = self.api.epoch
        self._begin_stream("application/json")
        try:
            initial = _is_set(query, "sendInitialEvents")
            at = int(version or 0)
            if version in ("", "0") or initial:
                with storage.lock:
                    at, found = storage.number, self._selected(request)
                for one in found:
                    self._event("ADDED", one)
                if initial:
                    self._bookmark(request.resource, at, initial=True)
            self._follow(request, at, matches, epoch, time.monotonic() + seconds)
        except ApiError as error:
            self._event("ERROR", error.status())
        self._end_stream()

    def _follow(
        self,
        request: _Request,
        at: int,
        matches: Callable[[Obj], bool],
        epoch: int,
        end: float,
    ) -> None:
        """Send the events after a resource version. Raises ApiError if they are gone. epoch: of
        the server when the watch began."""
        storage, api, plural = self.api.storage, self.api, request.resource.plural
        bookmarks, told = _is_set(request.query, "allowWatchBookmarks"), time.monotonic()
        while True:
            with storage.changed:
                events = storage.since(plural, at)
                if not events and api.epoch == epoch:
                    left = min(end, told + api.bookmark_interval) - time.monotonic()
                    if left > 0:
                        storage.changed.wait(min(left, 5.0))
                    events = storage.since(plural, at)
                now = storage.number
            if api.epoch != epoch:
                if api.stalled == epoch + 1:
                    self._stall()
                return
            for event in events:
                if request.namespace in ("", event.new["metadata"].get("namespace", "")):
                    self._pass(event, matches)
            at = now
            if time.monotonic() >= end:
                return
            if bookmarks and time.monotonic() >= told + api.bookmark_interval:
                self._bookmark(request.resource, at)
                told = time.monotonic()
            elif time.monotonic() >= told + api.bookmark_interval:
                told = time.monotonic()
                self._check_client()

    def _pass(self, event: Event, matches: Callable[[Obj], bool]) -> None:
        """Send an event as it is for those that see only some objects."""
        had = event.old is not None and matches(event.old)
        has = event.kind != "DELETED" and matches(event.new)
        if has:
            self._event("MODIFIED" if had else "ADDED", event.new)
        elif had:
            meta = {**event.new["metadata"], "resourceVersion": str(event.number)}
            self._event("DELETED", {**event.new, "metadata": meta})

    def _bookmark(self, resource: Resource, number: int, *, initial: bool = False) -> None:
        meta: Obj = {"resourceVersion": str(number)}
        if initial:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        self._event("BOOKMARK", obj)

    def _event(self, kind: str, obj: Obj) -> None:
        self._chunk(json.dumps({"type": kind, "object": obj}).encode() + b"\n")

    def _stall(self) -> None:
        """Keep the connection, and send nothing, until the client closes it."""
        while True:
            self._check_client()
            time.sleep(0.1)

    def _check_client(self) -> None:
        """Raises ConnectionError if the client has closed the connection."""
        readable = self.request.pending() or select.select([self.request], [], [], 0)[0]
        if readable and not self.request.recv(1):
            raise ConnectionError

    def _log(self, request: _Request) -> None:
        query = request.query
        log = self._find_log(request)
        first = 0
        if "tailLines" in query:
            first = max(0, len(log.lines) - int(query["tailLines"]))
        since, left = _since(query), int(query.get("limitBytes") or 1 << 62)
        self._begin_stream("text/plain")
        for line in log.follow(first, follow=_is_set(query, "follow")):
            if line is None:
                self._check_client()
            elif line.time >= since and left > 0:
                content = line.content
                if _is_set(query, "timestamps"):
                    part = f"{line.time % 1:.9f}"[1:]
                    content = f"{timestamp(line.time)[:-1]}{part}Z ".encode() + content
                self._chunk(content[:left])
                left -= len(content)
        self._end_stream()

    def _find_log(self, request: _Request) -> Log:
        pod = self.api.storage.get("pods", request.namespace, request.name)
        query = request.query
        names = [one["name"] for one in pod["spec"]["containers"]]
        inits = [one["name"] for one in pod["spec"].get("initContainers", ())]
        wanted = query.get("container") or names[0]
        if not query.get("container") and len(names) > 1:
            text = f"a container name must be specified for pod {request.name}, choose one of: "
            raise ApiError(400, "BadRequest", f"{text}[{' '.join(names)}]")
        if wanted not in [*names, *inits]:
            text = f"container {wanted} is not valid for pod {request.name}"
            raise ApiError(400, "BadRequest", text)
        kubelet = self.api.kubelet
        here = None if kubelet is None else kubelet.pods.get(pod["metadata"]["uid"])
        if _is_set(query, "previous"):
            log = None if here is None else here.previous.get(wanted)
            if log is None:
                text = f'previous terminated container "{wanted}" in pod "{request.name}" not found'
                raise ApiError(400, "BadRequest", text)
            return log
        if here is None or wanted not in here.containers:
            text = f'container "{wanted}" in pod "{request.name}" is waiting to start: '
            raise ApiError(400, "BadRequest", f"{text}ContainerCreating")
        return here.containers[wanted].log

    def _channels(self, request: _Request) -> None:
        """exec and portforward."""
        pod = self.api.storage.get("pods", request.namespace, request.name)
        if self.api.kubernetes >= (1, 35):
            asked = request.attributes._replace(verb="create")
            self.api.access.authorize(request.user, asked)
        kubelet = self.api.kubelet
        if "nodeName" not in pod["spec"]:
            text = f"pod {request.name} does not have a host assigned"
            raise ApiError(400, "BadRequest", text)
        here = None if kubelet is None else kubelet.pods.get(pod["metadata"]["uid"])
        names = [one["name"] for one in pod["spec"]["containers"]]
        name = request.query.get("container") or names[0]
        container = None if here is None else here.containers.get(name)
        if self.headers.get("upgrade", "").lower() != "websocket":
            raise ApiError(400, "BadRequest", "Upgrade request required")
        if name not in names:
            text = f"container {name} is not valid for pod {request.name}"
            raise ApiError(400, "BadRequest", text)
        if kubelet is not None and kubelet.is_silent(pod["spec"]["nodeName"]):
            text = "error dialing backend: dial tcp 192.0.2.7:10250: i/o timeout"
            raise ApiError(500, "InternalError", text)
        if here is None or container is None or container.code is not None:
            text = f'unable to upgrade connection: container not found ("{name}")'
            raise ApiError(500, "InternalError", text)
        # not the path: a real server accepts a megabyte, and what reads this 8 KiB
        head = f"GET / {self.request_version}\r\n".encode()
        head += b"".join(f"{k}: {v}\r\n".encode() for k, v in self.headers.items()) + b"\r\n"
        self.close_connection = True
        stream = Duplex(self.request)
        if request.subresource == "exec":
            channels = Channels(stream, head, EXEC_PROTOCOLS)
            paths = here.paths[name]
            argv = [paths.translate(word) for word in self._lists.get("command", [])]
            asked_for = ("stdin", "stdout", "stderr", "tty")
            streams = {one for one in asked_for if _is_set(request.query, one)}
            serve_exec(channels, argv, container, str(here.folder), streams)
        else:
            channels = Channels(stream, head, FORWARD_PROTOCOLS)
            listed = ",".join(self._lists.get("ports", []))
            serve_forward(channels, here.address, [int(one) for one in listed.split(",") if one])

    # --- answers

    def _json(self, status: int, answer: Obj, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, json.dumps(answer).encode(), "application/json", headers)

    def _send(
        self, status: int, content: bytes, kind: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "content-type": kind}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _begin_stream(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def _chunk(self, content: bytes) -> None:
        if content:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))
            self.wfile.flush()

    def _end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


class Duplex:
    """A connection with TLS that one thread reads and others write."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._lock, self._writing = threading.Lock(), threading.Lock()
        connection.settimeout(0)

    def recv(self, size: int) -> bytes:
        while True:
            with self._lock:
                try:
                    return self._connection.recv(size)
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                    pass
            select.select([self._connection], [], [], 1.0)

    def sendall(self, content: bytes) -> None:
        view = memoryview(content)
        with self._writing:
            while view:
                with self._lock:
                    try:
                        view = view[self._connection.send(view) :]
                        continue
                    except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                        pass
                select.select([], [self._connection], [], 1.0)


def _place(request: _Request) -> tuple[str, str]:
    return (request.namespace if request.resource.namespaced else "", request.name)


def _is_set(query: Mapping[str, str], name: str) -> bool:
    """Whether a query says yes to something: by any value but these, as by Python's `True`."""
    return query.get(name, "false").lower() not in ("false", "0")


def _since(query: Mapping[str, str]) -> float:
    """The time of the first line of a log that a query asks for."""
    if "sinceTime" in query:
        return datetime.fromisoformat(query["sinceTime"]).timestamp()
    seconds = query.get("sinceSeconds")
    return 0.0 if seconds is None else time.time() - float(seconds)


def _bare(obj: Obj) -> Obj:
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


def _matcher(request: _Request) -> Callable[[Obj], bool]:
    """Whether an object has the labels and fields that a request names."""
    labels = Selector(request.query.get("labelSelector", ""))
    fields = Selector(request.query.get("fieldSelector", ""))
    resource, name = request.resource, request.name
    sample = fields_of(resource, {})
    for key in fields.names():
        if key not in sample:
            text = f"field label not supported: {key}"
            raise ApiError(400, "BadRequest", text)

    def matches(obj: Obj) -> bool:
        return (
            name in ("", obj["metadata"]["name"])
            and labels.matches(labels_of(obj))
            and fields.matches(fields_of(resource, obj))
        )

    return matches


def _decoded(body: bytes) -> Any:
    if body.startswith(b"k8s\0"):
        text = "the body of the request was in an unknown format - accepted media types include: "
        raise ApiError(415, "UnsupportedMediaType", f"{text}application/json, application/yaml")
    try:
        return json.loads(body)
    except ValueError:
        pass
    try:
        return yaml.load(io.BytesIO(body), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ApiError(400, "BadRequest", f"error decoding the body: {error}") from None


def _review(review: Obj, user: User) -> Obj:
    """The answer to a SelfSubjectAccessReview."""
    asked = (review.get("spec") or {}).get("resourceAttributes") or {}
    attributes = Attributes(
        asked.get("verb", ""),
        asked.get("group", ""),
        asked.get("resource", ""),
        asked.get("subresource", ""),
        asked.get("namespace", ""),
        asked.get("name", ""),
    )
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": review.get("spec", {}),
        "status": {"allowed": may(user, attributes)},
    }
