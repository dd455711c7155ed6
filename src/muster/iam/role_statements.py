"""What each role gives, as statements. Pure.

A role gives nothing in the compartments below its project: each of those has members of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from msgspec.structs import replace

from muster.caller import Role
from muster.iam.policies.decisions import Policy
from muster.iam.policies.parsing import parse_statement
from muster.iam.policies.statements import (
    All,
    Comparison,
    Location,
    Operator,
    Statement,
    Subject,
    SubjectKind,
    Value,
)
from muster.identity import DEFAULT_PROJECT, id_of
from muster.spec.ocids import ocid

#: Only what the caller has created.
_OWN = "target.resource.createdBy = request.user.id"
#: What a role gives beside what the one before gives: what it allows, and under which condition.
_GIVEN: Mapping[Role, tuple[tuple[str, str], ...]] = {
    Role.VIEWER: (
        ("read data-science-family", ""),
        ("read object-family", ""),
        ("read logging-family", ""),
        ("read metrics", ""),
        ("read cloudevents-rules", ""),
        ("read repos", ""),
        ("read virtual-network-family", ""),
        ("read secrets", ""),
        ("inspect secret-bundles", ""),
        ("inspect engines", ""),
        ("read compartments", ""),
        ("inspect tenancies", ""),
        ("inspect project-members", ""),
        ("read policies", ""),
    ),
    Role.SUBMITTER: (
        (
            "{DATA_SCIENCE_PROJECT_CREATE, DATA_SCIENCE_JOB_CREATE, DATA_SCIENCE_JOB_RUN_CREATE, "
            "DATA_SCIENCE_SCHEDULE_CREATE, EVENTRULE_CREATE}",
            "",
        ),
        ("use data-science-family", _OWN),
        ("use data-science-job-run-nodes", _OWN),
        ("{DATA_SCIENCE_SCHEDULE_DELETE}", _OWN),
        ("manage cloudevents-rules", _OWN),
        ("use log-groups", ""),
        ("{LOG_GROUP_CREATE}", ""),
        ("use log-content", ""),
        ("use metrics", ""),
        ("manage objects", ""),
        ("{PAR_MANAGE}", ""),
        ("use repos", ""),
        ("use virtual-network-family", ""),
        ("read secret-bundles", ""),
        ("use engines", ""),
    ),
    Role.MAINTAINER: (
        ("manage data-science-family", ""),
        ("use data-science-job-run-nodes", ""),
        ("manage cloudevents-rules", ""),
        ("manage log-groups", ""),
        ("manage buckets", ""),
        ("manage repos", ""),
        ("manage secrets", ""),
    ),
    Role.ADMIN: (
        ("use compartments", ""),
        ("manage project-members", ""),
        ("manage project-tokens", ""),
        ("read audit-events", ""),
        ("manage policies", ""),
    ),
}
#: Groups and policies that are kept: those of some hundred projects.
_MOST_KEPT = 1024
#: Statements of the root compartment speak of all others: who manages the default project does not
#: administer the server.
_NOT_AT_THE_ROOT = ("manage policies",)
#: The group of those who administer the server, and the policy about it.
ADMINISTRATORS = "Administrators"
ADMINISTRATORS_ID = ocid("group", id_of("group", ADMINISTRATORS))
_OF_ADMINISTRATORS = f"Allow group {ADMINISTRATORS} to manage all-resources in tenancy"


def group_of(project: str, role: Role) -> str:
    """The group of a project's members who have a role."""
    return f"{project}-{role}"


@lru_cache(_MOST_KEPT)
def group_id(project: str, role: Role) -> str:
    """The OCID of that group."""
    return ocid("group", id_of("group", project, role))


@lru_cache(_MOST_KEPT)
def policy_of(project: str, role: Role) -> Policy:
    """What a role gives in a project, with what the roles before it give."""
    return Policy(f"role {role}", project, tuple(_statements(project, role)))


def administrators() -> Policy:
    """What administrators may do: everything."""
    return Policy(ADMINISTRATORS, DEFAULT_PROJECT, (parse_statement(_OF_ADMINISTRATORS),))


def _statements(project: str, role: Role) -> Iterator[Statement]:
    subject = Subject(SubjectKind.GROUP, (group_of(project, role),))
    at_root = project == DEFAULT_PROJECT
    location = Location() if at_root else Location((project,))
    here = Comparison("target.compartment.name", Operator.EQUAL, (Value(project),))
    for one in Role:
        for allowed, template in _templates(one):
            if at_root and allowed in _NOT_AT_THE_ROOT:
                continue
            rest = template.condition
            condition = here if rest is None else All((here, rest))
            made = replace(template, subject=subject, location=location, condition=condition)
            yield replace(made, text=str(made))
        if one is role:
            return


@cache
def _templates(role: Role) -> tuple[tuple[str, Statement], ...]:
    """What a role adds, as statements about the group `g`. Parsed once, not for each project."""
    return tuple(
        (allowed, parse_statement(f"Allow group g to {allowed} in tenancy{where}"))
        for allowed, condition in _GIVEN[role]
        for where in [f" where {condition}" if condition else ""]
    )
