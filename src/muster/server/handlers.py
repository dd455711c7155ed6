"""All routes of the server with their handlers."""

from __future__ import annotations

from muster.api.operations import OPERATIONS
from muster.server import health, submissions, uploads
from muster.server.operations import Handler, operation_handlers
from muster.server.routes import Routes


def all_routes() -> Routes[Handler]:
    """The routes below `/v1`, which need a token."""
    routes: Routes[Handler] = Routes()
    for name, handler in operation_handlers().items():
        routes.add(OPERATIONS[name].verb, OPERATIONS[name].path, handler)
    routes.add("POST", "/jobs", submissions.create_job)
    routes.add("POST", "/jobs/preview", submissions.preview_job)
    routes.add("POST", "/runs", submissions.start_run)
    routes.add("POST", "/runs/preview", submissions.preview_run)
    routes.add("GET", "/code/{sha256}", uploads.has_code)
    routes.add("GET", "/uploads/{digest}", uploads.received)
    routes.add("PUT", "/uploads/{digest}", uploads.receive)
    routes.add("POST", "/uploads/{digest}", uploads.finish)
    return routes


def open_routes() -> Routes[Handler]:
    """The routes that need no token."""
    routes: Routes[Handler] = Routes()
    routes.add("GET", "/healthz", health.healthz)
    routes.add("GET", "/readyz", health.readyz)
    return routes
