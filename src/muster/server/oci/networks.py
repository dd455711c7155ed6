"""Subnets, as programs look for their own address in one (OCI: Core Services API 20160918).

Muster connects nodes without them. Whichever subnet a client names is answered: its block has the
addresses of nodes (`[oci] subnet` in server.toml), and its security list lets everything pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from muster.describe.times import time_text_ms
from muster.identity import DEFAULT_PROJECT
from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import not_found
from muster.server.oci.request import OciRequest
from muster.server.oci.routes import OciRoute
from muster.spec.ocids import TENANCY, ocid, split_ocid

_API = "/20160918"
#: The last part of the OCIDs of what is listed.
_LISTED = "nodes"


def get_subnet(request: OciRequest) -> Answer:
    """GET /subnets/{subnet_id}"""
    given, identifier = _named(request, "subnet")
    return Answer(encoded(_subnet(request, identifier, given)))


def list_subnets(request: OciRequest) -> Answer:
    """GET /subnets"""
    return _listing(request, _subnet(request, _LISTED, ocid("subnet", _LISTED)))


def get_vcn(request: OciRequest) -> Answer:
    """GET /vcns/{vcn_id}"""
    given, identifier = _named(request, "vcn")
    return Answer(encoded(_vcn(request, identifier, given)))


def list_vcns(request: OciRequest) -> Answer:
    """GET /vcns"""
    return _listing(request, _vcn(request, _LISTED, ocid("vcn", _LISTED)))


def get_security_list(request: OciRequest) -> Answer:
    """GET /securityLists/{security_list_id}"""
    given, identifier = _named(request, "securitylist", "security_list_id")
    return Answer(encoded(_security_list(request, identifier, given)))


def list_security_lists(request: OciRequest) -> Answer:
    """GET /securityLists"""
    return _listing(request, _security_list(request, _LISTED, ocid("securitylist", _LISTED)))


def list_private_ips(request: OciRequest) -> Answer:
    """GET /privateIps"""
    # the addresses of nodes are those of their machines: none is taken from a subnet
    return Answer(b"[]")


def _named(request: OciRequest, kind: str, parameter: str = "") -> tuple[str, str]:
    """The OCID in the path, and its last part. Raises OciError if it is of another kind."""
    given = request.path[parameter or f"{kind}_id"]
    parts = split_ocid(given)
    if parts is None or parts[0] != kind:
        raise not_found()
    return given, parts[1]


def _listing(request: OciRequest, only: Mapping[str, Any]) -> Answer:
    project = request.project_of(request.required("compartmentId"))
    if project == DEFAULT_PROJECT:
        request.answer_everybody()
    else:
        request.require(project, request.permission)
    return Answer(encoded([only]))


def _common(request: OciRequest, given: str, name: str) -> dict[str, Any]:
    return {
        "id": given,
        "compartmentId": request.compartments.tenancy or TENANCY,
        "displayName": name,
        "lifecycleState": "AVAILABLE",
        "timeCreated": time_text_ms(0.0),
        "freeformTags": {},
        "definedTags": {},
    }


def _block(request: OciRequest) -> str:
    return request.state.settings.file.oci.subnet


def _subnet(request: OciRequest, identifier: str, given: str) -> Mapping[str, Any]:
    network = ip_network(_block(request))
    return _common(request, given, "nodes") | {
        "cidrBlock": str(network),
        "ipv4CidrBlocks": [str(network)],
        "vcnId": ocid("vcn", identifier),
        "securityListIds": [ocid("securitylist", identifier)],
        "routeTableId": ocid("routetable", identifier),
        "virtualRouterIp": str(network[1]),
        "virtualRouterMac": "00:00:17:00:00:00",
        "prohibitPublicIpOnVnic": True,
        "prohibitInternetIngress": True,
    }


def _vcn(request: OciRequest, identifier: str, given: str) -> Mapping[str, Any]:
    return _common(request, given, "nodes") | {
        "cidrBlock": _block(request),
        "cidrBlocks": [_block(request)],
        "defaultSecurityListId": ocid("securitylist", identifier),
        "defaultRouteTableId": ocid("routetable", identifier),
    }


def _security_list(request: OciRequest, identifier: str, given: str) -> Mapping[str, Any]:
    return _common(request, given, "nodes") | {
        "vcnId": ocid("vcn", identifier),
        "ingressSecurityRules": [
            {
                "protocol": "all",
                "source": _block(request),
                "sourceType": "CIDR_BLOCK",
                "isStateless": False,
            }
        ],
        "egressSecurityRules": [
            {
                "protocol": "all",
                "destination": "0.0.0.0/0",
                "destinationType": "CIDR_BLOCK",
                "isStateless": False,
            }
        ],
    }


ROUTES = (
    OciRoute("get_subnet", "GET", f"{_API}/subnets/{{subnet_id}}", get_subnet),
    OciRoute("list_subnets", "GET", f"{_API}/subnets", list_subnets, Permission.SUBNET_READ),
    OciRoute("get_vcn", "GET", f"{_API}/vcns/{{vcn_id}}", get_vcn),
    OciRoute("list_vcns", "GET", f"{_API}/vcns", list_vcns, Permission.VCN_READ),
    OciRoute(
        "get_security_list",
        *("GET", f"{_API}/securityLists/{{security_list_id}}", get_security_list),
    ),
    OciRoute(
        *("list_security_lists", "GET", f"{_API}/securityLists", list_security_lists),
        permission=Permission.SECURITY_LIST_READ,
    ),
    OciRoute("list_private_ips", "GET", f"{_API}/privateIps", list_private_ips),
)
