"""All routes of the server with their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from muster.api.logins import LOGIN
from muster.api.operations import PREFIX
from muster.api.prepared import PreparedJob
from muster.api.schedules import ScheduleRequest
from muster.api.submissions import (
    JobRequest,
    Preview,
    PreviewRequest,
    StartRequest,
)
from muster.server import (
    health,
    logins,
    metrics,
    node_commands,
    node_copies,
    node_ports,
    openapi,
    submissions,
    uploads,
)
from muster.server.accounts import account_handlers
from muster.server.answers import BYTES
from muster.server.call import Call
from muster.server.operations import Handler, operation_handlers
from muster.server.routes import Routes
from muster.server.web_socket import WebSocket
from muster.storage.artifacts import ArtifactRef
from muster.store.records import JobRecord, NodeRecord, RunRecord
from muster.store.schedule_records import ScheduleRecord

SocketHandler = Callable[[Call, WebSocket], Awaitable[None]]


class Route(Struct, frozen=True):
    """A route that is no method of an interface."""

    verb: str
    #: Below `/v1`.
    path: str
    handler: Handler
    summary: str
    #: The type of the JSON body; None if it has none. `BYTES` for bytes.
    body: Any = None
    #: The type of the answer.
    answer: Any = None
    status: int = 200
    #: The name and the type of each parameter in the query.
    query: Mapping[str, Any] = {}
    #: Whether requests may have an idempotency key.
    has_key: bool = False


ROUTES = (
    Route(
        *("POST", "/jobs", submissions.create_job),
        "Create a job, unless the project has one with this content.",
        body=JobRequest,
        answer=JobRecord,
        status=201,
        has_key=True,
    ),
    Route(
        *("POST", "/jobs/preview", submissions.preview_job),
        "The job that would be created, or is found. Nothing is recorded.",
        body=JobRequest,
        answer=PreparedJob,
    ),
    Route(
        *("POST", "/runs", submissions.start_run),
        "Start a run of a spec, of a job, or of what an earlier run ran.",
        body=StartRequest,
        answer=RunRecord,
        status=201,
        has_key=True,
    ),
    Route(
        *("POST", "/runs/preview", submissions.preview_run),
        "A run as it would start now. Nothing is recorded.",
        body=PreviewRequest,
        answer=Preview,
    ),
    Route(
        *("POST", "/schedules", submissions.create_schedule),
        "Create a schedule that starts such runs, in the name of the caller.",
        body=ScheduleRequest,
        answer=ScheduleRecord,
        status=201,
        has_key=True,
    ),
    Route(
        *("POST", "/schedules/{schedule_id}/trigger", submissions.trigger_schedule),
        "Start a run as the schedule does, now, in the name of the caller.",
        answer=RunRecord,
        status=201,
        has_key=True,
    ),
    Route(
        *("GET", "/runs/{run_id}/in-progress", node_commands.in_progress),
        "Whether a run has processes: an error says why it has none.",
    ),
    Route(
        *("GET", "/runs/{run_id}/nodes/running", node_commands.running),
        "A node with processes; without a rank, the only one.",
        answer=NodeRecord,
        query={"rank": int},
    ),
    Route(
        *("GET", "/code/{sha256}", uploads.find_code),
        "Whether the project can use code with this digest: an error says that it cannot.",
        answer=uploads.Code,
    ),
    Route(
        *("GET", "/uploads/{digest}", uploads.received),
        "How much has arrived of the payload with this SHA-256.",
        answer=uploads.Received,
    ),
    Route(
        *("PUT", "/uploads/{digest}", uploads.receive),
        "Send a payload, or the rest of one, from an offset. Code is a file, or a folder as a tar "
        "archive.",
        body=BYTES,
        answer=uploads.Received,
        query={"offset": int},
    ),
    Route(
        *("POST", "/uploads/{digest}", uploads.finish),
        "Store a complete payload as code.",
        body=uploads.Upload,
        answer=ArtifactRef,
        status=201,
    ),
    Route(
        *("GET", "/metrics", metrics.metrics),
        "What the server counts, as Prometheus reads it.",
        answer=str,
    ),
    Route(*("GET", "/openapi.json", openapi.openapi), "This description.", answer=dict[str, Any]),
)


def token_routes() -> Routes[Handler]:
    """The routes below `/v1`, without those of WebSockets. They need a token."""
    routes: Routes[Handler] = Routes()
    for operation, handler in operation_handlers():
        routes.add(operation.verb, operation.path, handler)
    for one in account_handlers():
        routes.add(one.operation.verb, one.operation.path, one)
    for route in ROUTES:
        routes.add(route.verb, route.path, route.handler)
    return routes


def open_routes() -> Routes[Handler]:
    """The routes that need no token."""
    routes: Routes[Handler] = Routes()
    routes.add("GET", "/healthz", health.healthz)
    routes.add("GET", "/readyz", health.readyz)
    routes.add("GET", LOGIN, logins.offer)
    routes.add("POST", LOGIN, logins.exchange)
    return routes


def socket_routes() -> Routes[SocketHandler]:
    """The routes of WebSockets, which need a token."""
    routes: Routes[SocketHandler] = Routes()
    routes.add("GET", f"{PREFIX}/runs/{{run_id}}/nodes/{{rank}}/exec", node_commands.execute)
    routes.add("GET", f"{PREFIX}/runs/{{run_id}}/nodes/{{rank}}/forward", node_ports.forward)
    routes.add("GET", f"{PREFIX}/copy", node_copies.copy)
    return routes
