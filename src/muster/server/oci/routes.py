"""All operations of the OCI API with their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from muster.permissions import Permission
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
    #: What it needs of the resource or of the compartment that the request names. None: it is
    #: public; or everybody who signs a request may use it for what is theirs (their session, the
    #: users and compartments that they see) or the same for all (regions, the namespace).
    permission: Permission | None = None
    #: What it needs besides, always. Some need even more for what a request says, such as
    #: OBJECT_OVERWRITE if there is an object: the handlers check that.
    also: tuple[Permission, ...] = ()
    stream: StreamHandler | None = None
    #: Whether it needs no signature.
    public: bool = False


def all_routes() -> list[OciRoute]:
    """Every operation."""
    from muster.server.oci import (
        dynamic_groups,
        event_rules,
        federation,
        groups,
        job_runs,
        jobs,
        log_search,
        logs,
        monitoring,
        networks,
        policies,
        projects,
        regions,
        resource_search,
        schedules,
        sessions,
        shapes,
        tenancies,
        users,
        vault,
        work_requests,
    )
    from muster.server.oci.object_storage import routes as object_storage

    modules = (
        *(projects, jobs, job_runs, schedules, shapes, work_requests, logs, log_search),
        *(monitoring, users, groups, dynamic_groups, policies, tenancies, regions, networks),
        *(vault, resource_search, sessions, federation, event_rules, object_storage),
    )
    return [route for module in modules for route in module.ROUTES]


def routes_of(given: list[OciRoute]) -> Routes[OciRoute]:
    """Operations by verb and path."""
    made: Routes[OciRoute] = Routes()
    for route in given:
        made.add(route.verb, route.path, route)
    return made
