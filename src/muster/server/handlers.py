"""All routes of the server with their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from muster.api.account_operations import ACCOUNT_OPERATIONS
from muster.api.logins import LOGIN
from muster.server import health, logins, node_commands, node_ports, submissions, uploads
from muster.server.accounts import account_handlers
from muster.server.call import Call
from muster.server.operations import Handler, operation_handlers
from muster.server.routes import Routes
from muster.server.web_socket import WebSocket

SocketHandler = Callable[[Call, WebSocket], Awaitable[None]]


def all_routes() -> Routes[Handler]:
    """The routes below `/v1`, which need a token."""
    routes: Routes[Handler] = Routes()
    for operation, handler in operation_handlers():
        routes.add(operation.verb, operation.path, handler)
    for name, account_handler in account_handlers().items():
        operation = ACCOUNT_OPERATIONS[name]
        routes.add(operation.verb, operation.path, account_handler)
    routes.add("POST", "/jobs", submissions.create_job)
    routes.add("POST", "/jobs/preview", submissions.preview_job)
    routes.add("POST", "/runs", submissions.start_run)
    routes.add("POST", "/runs/preview", submissions.preview_run)
    routes.add("GET", "/runs/{run_id}/in-progress", node_commands.in_progress)
    routes.add("GET", "/runs/{run_id}/nodes/running", node_commands.running)
    routes.add("GET", "/code/{sha256}", uploads.find_code)
    routes.add("GET", "/uploads/{digest}", uploads.received)
    routes.add("PUT", "/uploads/{digest}", uploads.receive)
    routes.add("POST", "/uploads/{digest}", uploads.finish)
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
    """The routes of WebSockets, below `/v1`."""
    routes: Routes[SocketHandler] = Routes()
    routes.add("GET", "/runs/{run_id}/nodes/{rank}/exec", node_commands.execute)
    routes.add("GET", "/runs/{run_id}/nodes/{rank}/forward", node_ports.forward)
    return routes
