"""Print docs/reference/oci.md: the operations of the OCI API that the server has."""

from __future__ import annotations

from collections.abc import Iterator

from muster.server.oci.routes import OciRoute, all_routes

#: The beginning of a path -> the service, and its client in the Python SDK.
_SERVICES = (
    ("/20190101/", "Data Science", "data_science.DataScienceClient"),
    ("/n", "Object Storage", "object_storage.ObjectStorageClient"),
    ("/workRequests", "Object Storage: work requests", "object_storage.ObjectStorageClient"),
    ("/p", "Object Storage: pre-authenticated requests", ""),
    ("/20200531/", "Logging", "logging.LoggingManagementClient"),
    ("/20200831/", "Logging Ingestion", "loggingingestion.LoggingClient"),
    ("/20190909/", "Logging Search", "loggingsearch.LogSearchClient"),
    ("/20180401/", "Monitoring", "monitoring.MonitoringClient"),
    ("/20181201/", "Events", "events.EventsClient"),
    (
        *("/20160918/", "Identity and Networking"),
        "identity.IdentityClient, core.VirtualNetworkClient, work_requests.WorkRequestClient",
    ),
    ("/20190301/", "Secret Retrieval", "secrets.SecretsClient"),
    ("/20180608/", "Vault", "vault.VaultsClient"),
    ("/v1/", "Security tokens", ""),
    ("/20180409/", "Resource Search", "resource_search.ResourceSearchClient"),
)
_HEAD = """\
# The OCI API

Clients of OCI use these operations of a server as they use those of OCI:
[how](../guides/oci-clients.md). This page is generated from the server's routes.

A request needs the permissions of its row, for the resource or in the compartment that it names. A
request without a permission shows what is the caller's, or the same for all. Some need more for
what they say: to replace an object, `OBJECT_OVERWRITE` instead of `OBJECT_CREATE`; to run nodes in
a subnet, `SUBNET_ATTACH`; to log, `LOG_GROUP_READ`, and `LOG_GROUP_CREATE` if the log is created
for the job run; to delete a job, `DATA_SCIENCE_JOB_RUN_DELETE` for its job runs; to give
a job of another user its artifact, `DATA_SCIENCE_JOB_UPDATE`.
"""


def page() -> Iterator[str]:
    """The lines of the page."""
    yield _HEAD
    routes = all_routes()
    for prefix, name, client in _SERVICES:
        found = [route for route in routes if _is_of(route, prefix)]
        routes = [route for route in routes if not _is_of(route, prefix)]
        if not found:
            continue
        yield f"\n## {name}\n"
        if client:
            names = ", ".join(f"`oci.{one}`" for one in clients_of(found[0]))
            yield f"In the Python SDK: {names}.\n"
        yield "| operation | request | permission |\n| --- | --- | --- |"
        for route in sorted(found, key=lambda one: (one.path, one.verb)):
            yield f"| {route.operation} | `{route.verb} {route.path}` | {_permissions(route)} |"
    if routes:
        raise ValueError(f"name the service of {routes[0].path}")


def _permissions(route: OciRoute) -> str:
    needed = () if route.permission is None else (route.permission, *route.also)
    return ", ".join(f"`{one}`" for one in needed)


def clients_of(route: OciRoute) -> tuple[str, ...]:
    """The clients in the Python SDK of an operation's service, such as
    `data_science.DataScienceClient`; none if the service has no client."""
    for prefix, _, clients in _SERVICES:
        if _is_of(route, prefix):
            return tuple(one.strip() for one in clients.split(",") if one)
    raise ValueError(f"name the service of {route.path}")


def _is_of(route: OciRoute, prefix: str) -> bool:
    return route.path == prefix or route.path.startswith(prefix.rstrip("/") + "/")


if __name__ == "__main__":
    import sys

    sys.stdout.write("\n".join(page()) + "\n")
