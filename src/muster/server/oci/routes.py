"""All operations of the OCI API with their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from muster.server.answers import Answer, Stream
from muster.server.oci.request import OciRequest
from muster.server.routes import Routes

#: Called in a thread, after the body was read and verified.
Handler = Callable[[OciRequest], Answer]
#: Called in the event loop: reads the body itself, which is not signed.
StreamHandler = Callable[[OciRequest], Awaitable[Answer | Stream]]


class OciRoute(Struct, frozen=True):
    """An operation."""

    #: Its name in the SDK, such as `create_job`.
    operation: str
    verb: str
    path: str
    handler: Handler | None = None
    stream: StreamHandler | None = None
    #: Whether it needs no signature.
    public: bool = False


def all_routes() -> list[OciRoute]:
    """Every operation."""
    from muster.server.oci import (
        event_rules,
        identity,
        job_runs,
        jobs,
        log_search,
        logs,
        monitoring,
        networks,
        projects,
        resource_search,
        schedules,
        sessions,
        shapes,
        vault,
        work_requests,
    )
    from muster.server.oci.object_storage import routes as object_storage

    modules = (
        *(projects, jobs, job_runs, schedules, shapes, work_requests, logs, log_search),
        *(monitoring, identity, networks, vault, resource_search, sessions, event_rules),
        object_storage,
    )
    return [route for module in modules for route in module.ROUTES]


def routes_of(given: list[OciRoute]) -> Routes[OciRoute]:
    """Operations by verb and path."""
    made: Routes[OciRoute] = Routes()
    for route in given:
        made.add(route.verb, route.path, route)
    return made
