"""The one region, with one availability domain (OCI: Identity API 20160918)."""

from __future__ import annotations

from muster.identity import id_of
from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import not_found
from muster.server.oci.identity import (
    API,
    REGION_KEY,
    check_tenancy,
    known_compartment,
)
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.spec.ocids import ocid

_DOMAIN, _FAULT_DOMAINS = "AD-1", ("FAULT-DOMAIN-1", "FAULT-DOMAIN-2", "FAULT-DOMAIN-3")


def list_region_subscriptions(request: OciRequest) -> Answer:
    """GET /tenancies/{tenancy_id}/regionSubscriptions"""
    check_tenancy(request)
    region = {
        "regionKey": REGION_KEY,
        "regionName": _region(request),
        "status": "READY",
        "isHomeRegion": True,
    }
    return Answer(encoded([region]))


def list_regions(request: OciRequest) -> Answer:
    """GET /regions"""
    return Answer(encoded([{"key": REGION_KEY, "name": _region(request)}]))


def _region(request: OciRequest) -> str:
    """The region that the client has in its configuration: the services are below it."""
    host = request.header("host")
    return host.removeprefix("identity.") if host.startswith("identity.") else "muster"


def list_availability_domains(request: OciRequest) -> Answer:
    """GET /availabilityDomains"""
    compartment = known_compartment(request)
    domain = {
        "name": _DOMAIN,
        "id": ocid("availabilitydomain", id_of(_DOMAIN)),
        "compartmentId": compartment,
    }
    return Answer(encoded([domain]))


def list_fault_domains(request: OciRequest) -> Answer:
    """GET /faultDomains"""
    compartment = known_compartment(request)
    if request.required("availabilityDomain") != _DOMAIN:
        raise not_found()
    domains = [
        {
            "name": name,
            "id": ocid("faultdomain", id_of(name)),
            "compartmentId": compartment,
            "availabilityDomain": _DOMAIN,
        }
        for name in _FAULT_DOMAINS
    ]
    return Answer(encoded(domains))


ROUTES = (
    OciRoute(
        "list_region_subscriptions",
        "GET",
        f"{API}/tenancies/{{tenancy_id}}/regionSubscriptions",
        list_region_subscriptions,
    ),
    OciRoute("list_regions", "GET", f"{API}/regions", list_regions),
    OciRoute(
        "list_availability_domains",
        *("GET", f"{API}/availabilityDomains", list_availability_domains),
        permission=Permission.COMPARTMENT_INSPECT,
    ),
    OciRoute(
        *("list_fault_domains", "GET", f"{API}/faultDomains", list_fault_domains),
        permission=Permission.COMPARTMENT_INSPECT,
    ),
)
