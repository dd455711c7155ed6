"""Verbs, types and permissions."""

from __future__ import annotations

import subprocess
import sys

import pytest

from muster.iam.policies.statements import EVERYTHING
from muster.iam.policies.vocabulary import (
    ALL_RESOURCES,
    CREATED_BY,
    FAMILIES,
    OTHER_TYPES,
    TYPE_OF,
    TYPES,
    VERB_OF,
    VERBS,
    Verb,
    canonical,
    of_type,
    permissions_of,
    tag_variable,
    types_of,
    variables,
)
from muster.permissions import Permission

DS = "DATA_SCIENCE_"
#: Type: what inspect, read, use and manage add (OCI: Policy Reference, and Muster's own).
ADDS = {
    "data-science-projects": (
        f"{DS}PROJECT_INSPECT",
        f"{DS}PROJECT_READ",
        f"{DS}PROJECT_UPDATE",
        f"{DS}PROJECT_CREATE {DS}PROJECT_DELETE {DS}PROJECT_MOVE",
    ),
    "data-science-jobs": (
        f"{DS}JOB_INSPECT",
        f"{DS}JOB_READ",
        f"{DS}JOB_UPDATE",
        f"{DS}JOB_CREATE {DS}JOB_DELETE {DS}JOB_MOVE",
    ),
    "data-science-job-runs": (
        f"{DS}JOB_RUN_INSPECT",
        f"{DS}JOB_RUN_READ",
        f"{DS}JOB_RUN_UPDATE",
        f"{DS}JOB_RUN_CREATE {DS}JOB_RUN_DELETE {DS}JOB_RUN_MOVE",
    ),
    "data-science-job-run-nodes": ("", "", f"{DS}JOB_RUN_NODE_ENTER", ""),
    "data-science-schedules": (
        f"{DS}SCHEDULE_INSPECT",
        f"{DS}SCHEDULE_READ",
        f"{DS}SCHEDULE_UPDATE",
        f"{DS}SCHEDULE_CREATE {DS}SCHEDULE_DELETE {DS}SCHEDULE_MOVE",
    ),
    "data-science-work-requests": (
        f"{DS}WORK_REQUEST_INSPECT",
        f"{DS}WORK_REQUEST_READ",
        "",
        f"{DS}WORK_REQUEST_DELETE",
    ),
    "log-groups": (
        "LOG_GROUP_INSPECT",
        "LOG_GROUP_READ",
        "LOG_GROUP_UPDATE",
        "LOG_GROUP_CREATE LOG_GROUP_DELETE",
    ),
    "log-content": ("", "LOG_CONTENT_READ", "LOG_CONTENT_PUSH", ""),
    "metrics": ("METRIC_INSPECT", "METRIC_READ", "METRIC_WRITE", ""),
    "cloudevents-rules": (
        "EVENTRULE_LIST",
        "EVENTRULE_READ",
        "EVENTRULE_MODIFY",
        "EVENTRULE_CREATE EVENTRULE_DELETE",
    ),
    "buckets": (
        "BUCKET_INSPECT",
        "BUCKET_READ",
        "BUCKET_UPDATE",
        "BUCKET_CREATE BUCKET_DELETE PAR_MANAGE",
    ),
    "objects": (
        "OBJECT_INSPECT",
        "OBJECT_READ",
        "OBJECT_OVERWRITE",
        "OBJECT_CREATE OBJECT_DELETE",
    ),
    "repos": (
        "REPOSITORY_INSPECT",
        "REPOSITORY_READ",
        "REPOSITORY_UPDATE",
        "REPOSITORY_CREATE REPOSITORY_DELETE REPOSITORY_MANAGE",
    ),
    "vcns": ("VCN_READ", "", "", ""),
    "subnets": ("SUBNET_READ", "", "SUBNET_ATTACH", ""),
    "vnics": ("VNIC_READ", "", "VNIC_CREATE VNIC_ATTACH", ""),
    "private-ips": ("PRIVATE_IP_READ", "", "", ""),
    "security-lists": ("SECURITY_LIST_READ", "", "", ""),
    "secrets": (
        "SECRET_INSPECT",
        "SECRET_READ",
        "SECRET_UPDATE",
        "SECRET_CREATE SECRET_DELETE",
    ),
    "secret-bundles": ("SECRET_BUNDLE_INSPECT", "SECRET_BUNDLE_READ", "", ""),
    "engines": ("ENGINE_INSPECT", "", "ENGINE_USE", ""),
    "compartments": (
        "COMPARTMENT_INSPECT",
        "COMPARTMENT_READ",
        "COMPARTMENT_UPDATE",
        "COMPARTMENT_CREATE COMPARTMENT_DELETE COMPARTMENT_MOVE",
    ),
    "tenancies": ("TENANCY_INSPECT", "", "", ""),
    "project-members": ("PROJECT_MEMBER_INSPECT", "", "", "PROJECT_MEMBER_UPDATE"),
    "project-tokens": (
        "PROJECT_TOKEN_INSPECT",
        "",
        "",
        "PROJECT_TOKEN_CREATE PROJECT_TOKEN_DELETE",
    ),
    "audit-events": ("", "AUDIT_EVENT_READ", "", ""),
    "policies": ("POLICY_READ", "", "", "POLICY_UPDATE POLICY_CREATE POLICY_DELETE"),
    "users": ("USER_INSPECT", "USER_READ", "", "USER_UPDATE USER_CREATE USER_DELETE"),
    "groups": ("GROUP_INSPECT", "GROUP_READ", "GROUP_UPDATE", "GROUP_CREATE GROUP_DELETE"),
    "dynamic-groups": (
        "DYNAMIC_GROUP_INSPECT",
        "DYNAMIC_GROUP_READ",
        "DYNAMIC_GROUP_UPDATE",
        "DYNAMIC_GROUP_CREATE DYNAMIC_GROUP_DELETE",
    ),
    "server": ("", "", "", "SERVER_MANAGE"),
}


@pytest.mark.parametrize("name", TYPES)
def test_each_verb_gives_what_the_verbs_before_it_give_and_more(name: str) -> None:
    given: set[str] = set()
    for verb, adds in zip(VERBS, ADDS[name], strict=True):
        given |= set(adds.split())
        assert {str(one) for one in permissions_of(verb, name)} == given


def test_the_table_has_every_type() -> None:
    assert set(ADDS) == set(TYPES)
    assert not OTHER_TYPES & {*TYPES, *FAMILIES}


@pytest.mark.parametrize("permission", Permission)
def test_each_permission_is_of_exactly_one_type(permission: Permission) -> None:
    of = [name for name in TYPES if permission in permissions_of(Verb.MANAGE, name)]
    assert of == [TYPE_OF[permission].name]
    verbs = [verb for verb in VERBS if permission in permissions_of(verb, of[0])]
    assert verbs[0] is VERB_OF[permission]


def test_manage_all_resources_gives_everything() -> None:
    assert permissions_of(Verb.MANAGE, ALL_RESOURCES) == frozenset(Permission) == EVERYTHING


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gives_what_its_types_give(family: str) -> None:
    for verb in VERBS:
        parts = [permissions_of(verb, name) for name in FAMILIES[family]]
        assert permissions_of(verb, family) == frozenset().union(*parts)


def test_only_manage_gives_what_gives_rights_to_others() -> None:
    used = permissions_of(Verb.USE, ALL_RESOURCES)
    assert not used & {
        Permission.MEMBER_UPDATE,
        Permission.TOKEN_CREATE,
        Permission.POLICY_CREATE,
        Permission.POLICY_UPDATE,
        Permission.USER_UPDATE,
    }


def test_statements_written_for_oci_do_not_let_anybody_into_nodes() -> None:
    assert Permission.NODE_ENTER not in permissions_of(Verb.MANAGE, "data-science-family")
    assert Permission.NODE_ENTER in permissions_of(Verb.USE, "data-science-job-run-nodes")


def test_types_of_other_services_give_nothing() -> None:
    assert types_of("instances") == ()
    assert permissions_of(Verb.MANAGE, "instances") == frozenset()


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("Target.Bucket.NAME", "target.bucket.name"),
        ("target.resource.createdby", CREATED_BY),
        ("target.resource.tag.Costs.Team", "target.resource.tag.costs.team"),
        ("request.ad", "request.ad"),
        ("target.resource.tag.team", None),
        ("target.bucket", None),
        ("request.user", None),
    ],
)
def test_names_of_variables(written: str, known: str | None) -> None:
    assert canonical(written) == known


def test_who_has_created_a_resource_has_a_name_for_each_type() -> None:
    jobs, runs = TYPES["data-science-jobs"], TYPES["data-science-job-runs"]
    assert of_type("target.job.createdBy", jobs) == CREATED_BY
    assert of_type("target.job.createdBy", runs) is None
    assert of_type(CREATED_BY, runs) == CREATED_BY
    assert of_type("target.bucket.name", runs) is None
    assert of_type(tag_variable("Costs", "Team"), runs) == "target.resource.tag.costs.team"


def test_every_variable_is_written_as_it_is_known() -> None:
    assert all(canonical(name) == name for name in variables())


def test_deciding_does_not_import_the_parser() -> None:
    program = (
        "import sys, muster.iam.policies.decisions, muster.iam.policies.near_misses, "
        "muster.iam.policies.linting; sys.exit('lark' in sys.modules or 're2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
