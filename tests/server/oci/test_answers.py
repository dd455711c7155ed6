"""The answer of every route against the model that the SDK reads it with: a field is given, or is
in a table of those that are absent, none of which the SDK's documentation promises."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from muster.server.oci.reference import clients_of
from muster.server.oci.routes import all_routes
from support.oci_cases import CASES, World
from support.oci_teams import OciTeams
from support.sdk_models import answer_model, is_required, missing, unknown, unknown_values

#: What is requested before the cases, so that their lists are not empty.
FIRST = (
    "POST /20180401/metrics",
    "PUT /n/{namespace}/b/{bucket}/u/{object...}",
)
#: Lists that have nothing: there is no replication, no work request fails, and no address is a
#: subnet's.
EMPTY = (
    "GET /20160918/privateIps",
    "GET /20160918/workRequests/{work_request_id}/errors",
    "GET /20190101/workRequests/{work_request_id}/errors",
    "GET /20200531/workRequests/{work_request_id}/errors",
    "GET /workRequests/{work_request}/errors",
    "GET /workRequests/{work_request}/logs",
    "GET /n/{namespace}/b/{bucket}/replicationPolicies",
    "GET /n/{namespace}/b/{bucket}/replicationSources",
)
#: Model -> the fields that it does not have here.
ABSENT: dict[str, tuple[str, ...]] = {
    # an identity domain's, and what only a federated user has
    "User": (
        *("dbUserName", "email", "emailVerified", "externalIdentifier", "identityProviderId"),
        *("lastSuccessfulLoginTime", "previousSuccessfulLoginTime"),
    ),
    "Tenancy": ("upiIdcsCompatibilityLayerEndpoint",),
    # networks have neither DNS of OCI, nor IPv6, nor tags of the system
    "Subnet": (
        *("availabilityDomain", "dhcpOptionsId", "dnsLabel", "ipv6CidrBlock", "ipv6CidrBlocks"),
        *("ipv6VirtualRouterIp", "subnetDomainName", "systemTags"),
    ),
    "Vcn": (
        *("byoipv6CidrBlocks", "defaultDhcpOptionsId", "dnsLabel", "ipv6CidrBlocks"),
        *("ipv6PrivateCidrBlocks", "isZprOnly", "securityAttributes", "systemTags"),
        "vcnDomainName",
    ),
    "SecurityList": (
        "systemTags",
        *(
            f"{way}SecurityRules.{field}"
            for way in ("egress", "ingress")
            for field in ("description", "icmpOptions", "tcpOptions", "udpOptions")
        ),
    ),
    # secrets have one version, and are not rotated, replicated or generated
    "Secret": (
        *("isReplica", "lastRotationTime", "lifecycleDetails", "metadata", "nextRotationTime"),
        *("replicationConfig", "rotationConfig", "rotationStatus", "secretGenerationContext"),
        *("secretRules", "sourceRegionInformation", "timeOfCurrentVersionExpiry"),
        "timeOfDeletion",
    ),
    "SecretSummary": (
        *("isReplica", "lastRotationTime", "lifecycleDetails", "nextRotationTime"),
        *("replicationConfig", "rotationConfig", "rotationStatus", "secretGenerationContext"),
        *("sourceRegionInformation", "systemTags", "timeOfCurrentVersionExpiry", "timeOfDeletion"),
    ),
    "SecretBundle": ("timeOfDeletion", "timeOfExpiry", "versionName"),
    "SecretBundleVersionSummary": ("timeOfDeletion", "timeOfExpiry", "versionName"),
    "ResourceSummaryCollection": (
        *("items.availabilityDomain", "items.identityContext", "items.searchContext"),
    ),
    "ResourceType": ("fields.isArray", "fields.objectProperties"),
    "Bucket": ("bucketScope", "isBucketKeyEnabled"),
    "BucketSummary": ("bucketScope", "definedTags", "freeformTags"),
    # fields that a request has not asked for, and the next page of a list that has one
    "ListObjects": (
        *("nextStartWith", "prefixes", "objects.archivalState", "objects.etag", "objects.md5"),
        *("objects.size", "objects.storageTier", "objects.timeCreated", "objects.timeModified"),
    ),
}


def models() -> Iterator[tuple[str, ModuleType, str, bool]]:
    """The routes whose answers have a model, with what `answer_model` finds."""
    for route in all_routes():
        clients = clients_of(route)
        if clients and (found := answer_model(route.operation, clients)) is not None:
            yield f"{route.verb} {route.path}", *found


MODELS = {route: found for route, *found in models()}


@pytest.fixture(scope="module")
def answers(oci: OciTeams) -> dict[str, Any]:
    """Route -> the answer to its case, for the project's admin or, if that may not, for who
    administers the server."""
    world, answers = World(oci), {}
    for route in (*FIRST, *CASES):
        user = "anouk" if "anouk" in CASES[route].allowed else "root"
        answers[route] = world.request(route, user, world.names)
    return answers


@pytest.mark.parametrize("route", MODELS)
def test_answers_have_all_fields_of_the_model(answers: dict[str, Any], route: str) -> None:
    module, model, is_list = MODELS[route]
    assert answers[route].status_code < 300, answers[route].text
    found = answers[route].json()
    assert isinstance(found, list) == is_list
    assert bool(found) == (route not in EMPTY), "there is something to see"
    for one in found if is_list else [found]:
        assert {*missing(module, model, one)} == {*ABSENT.get(model, ())}
        assert not {*unknown(module, model, one)}, "fields that no client knows"
        assert not {*unknown_values(module, model, one)}


@pytest.mark.parametrize("model", ABSENT)
def test_what_is_absent_is_optional(model: str) -> None:
    modules = [module for module, name, _ in MODELS.values() if name == model]
    for field in ABSENT[model]:
        assert not is_required(modules[0], model, field), field
