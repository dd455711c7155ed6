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
    ("/20160918/", "Identity and Networking", "identity.IdentityClient, core.VirtualNetworkClient"),
    ("/20190301/", "Secret Retrieval", "secrets.SecretsClient"),
    ("/20180608/", "Vault", "vault.VaultsClient"),
    ("/v1/", "Security tokens", ""),
    ("/20180409/", "Resource Search", "resource_search.ResourceSearchClient"),
)
_HEAD = """\
# The OCI API

Clients of OCI use these operations of a server as they use those of OCI:
[how](../guides/oci-clients.md). This page is generated from the server's routes.
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
            names = ", ".join(f"`oci.{one.strip()}`" for one in client.split(","))
            yield f"In the Python SDK: {names}.\n"
        yield "| operation | request |\n| --- | --- |"
        for route in sorted(found, key=lambda one: (one.path, one.verb)):
            yield f"| {route.operation} | `{route.verb} {route.path}` |"
    if routes:
        raise ValueError(f"name the service of {routes[0].path}")


def _is_of(route: OciRoute, prefix: str) -> bool:
    return route.path == prefix or route.path.startswith(prefix.rstrip("/") + "/")


if __name__ == "__main__":
    import sys

    sys.stdout.write("\n".join(page()) + "\n")
