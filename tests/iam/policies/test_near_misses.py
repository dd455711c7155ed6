"""Why something is not allowed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from muster.iam.policies.decisions import (
    Access,
    Compartment,
    Group,
    Policies,
    Policy,
    Requester,
)
from muster.iam.policies.near_misses import Reason, near_misses
from muster.iam.policies.parsing import parse_policy
from muster.permissions import Permission

P = Permission
COMPARTMENTS = (
    Compartment("default", "ocid1.tenancy.x"),
    Compartment("team", "ocid1.compartment.team", "default"),
    Compartment("other", "ocid1.compartment.other", "default"),
)
DEV = Requester("ocid1.user.dev", "dev", frozenset({"ocid1.group.devs"}))


def policies(*statements: str, attached: str = "default") -> Policies:
    parsed = parse_policy("\n".join(statements), "p")
    assert not parsed.errors
    groups = (Group("devs", "ocid1.group.devs"), Group("ops", "ocid1.group.ops"))
    return Policies([Policy("p", attached, parsed.statements)], COMPARTMENTS, groups)


READ = "Allow group devs to read objects in compartment team"


@pytest.mark.parametrize(
    ("statement", "permission", "attributes", "reason", "sentence"),
    [
        (
            f"{READ} where target.bucket.name = 'y'",
            *(P.OBJECT_READ, {"target.bucket.name": "X"}, Reason.CONDITION),
            "target.bucket.name is 'X', the statement wants 'y'",
        ),
        (
            f"{READ} where target.bucket.name != 'x'",
            *(P.OBJECT_READ, {"target.bucket.name": "x"}, Reason.CONDITION),
            "target.bucket.name is 'x', the statement wants anything but 'x'",
        ),
        (
            f"{READ} where target.bucket.name in ('a', /b*/)",
            *(P.OBJECT_READ, {"target.bucket.name": "x"}, Reason.CONDITION),
            "target.bucket.name is 'x', the statement wants one of 'a', /b*/",
        ),
        (
            f"{READ} where target.bucket.name = 'y'",
            *(P.OBJECT_READ, {}, Reason.CONDITION),
            "the request has no target.bucket.name",
        ),
        (
            f"{READ} where target.resource.createdBy = request.user.id",
            *(P.OBJECT_READ, {"target.resource.createdBy": "ocid1.user.x"}, Reason.CONDITION),
            "target.resource.createdBy is 'ocid1.user.x', the statement wants request.user.id, "
            "which is 'ocid1.user.dev'",
        ),
        (
            f"{READ} where target.bucket.name = request.principal.compartment.id",
            *(P.OBJECT_READ, {"target.bucket.name": "x"}, Reason.CONDITION),
            "the request has no request.principal.compartment.id",
        ),
        (
            f"{READ} where all {{target.bucket.name = 'a', target.object.name = /b*/, "
            "request.user.name = 'DEV'}",
            *(P.OBJECT_READ, {"target.bucket.name": "x", "target.object.name": "y"}),
            Reason.CONDITION,
            "target.bucket.name is 'x', the statement wants 'a'; "
            "target.object.name is 'y', the statement wants /b*/",
        ),
        (
            f"{READ} where any {{target.bucket.name = 'a', request.permission = 'OBJECT_CREATE'}}",
            *(P.OBJECT_READ, {"target.bucket.name": "x"}, Reason.CONDITION),
            "one of these would do: target.bucket.name is 'x', the statement wants 'a', or "
            "request.permission is 'OBJECT_READ', the statement wants 'OBJECT_CREATE'",
        ),
        (
            f"{READ} where request.utc-timestamp between '2026-01-01Z' and '2026-02-01Z'",
            *(P.OBJECT_READ, {}, Reason.CONDITION),
            "request.utc-timestamp is '2023-11-14t22:13:20z', the statement wants a time from "
            "'2026-01-01Z' to '2026-02-01Z'",
        ),
        (READ, P.OBJECT_CREATE, {}, Reason.VERB, "gives read objects, needs manage"),
        (
            "Allow group devs to {OBJECT_READ, OBJECT_INSPECT} in tenancy",
            *(P.OBJECT_CREATE, {}, Reason.VERB),
            "gives OBJECT_INSPECT, OBJECT_READ, needs OBJECT_CREATE",
        ),
        (
            "Allow group devs to read object-family in compartment other",
            *(P.OBJECT_READ, {}, Reason.COMPARTMENT),
            "is about compartment other; the request is about team",
        ),
        (
            "Allow group ops, x to read objects in tenancy",
            *(P.OBJECT_READ, {}, Reason.SUBJECT),
            "is about group ops, x, and dev is none of them",
        ),
        (
            "Allow group ops to read objects in tenancy",
            *(P.OBJECT_READ, {}, Reason.SUBJECT),
            "dev is not in group ops",
        ),
    ],
)
def test_the_one_thing_that_does_not_fit(
    statement: str,
    permission: Permission,
    attributes: Mapping[str, str],
    reason: Reason,
    sentence: str,
) -> None:
    access = Access(DEV, permission, "team", attributes, now=1_700_000_000)
    assert not policies(statement).allows(access)
    (near,) = near_misses(policies(statement), access)
    assert (near.statement.place, near.reason, near.sentence) == ("p#1", reason, sentence)


def test_a_policy_that_cannot_speak_about_what_it_names() -> None:
    found = near_misses(
        policies("Allow group devs to read objects in tenancy", attached="other"),
        Access(DEV, P.OBJECT_READ, "team"),
    )
    assert found[0].sentence == (
        "is about tenancy, which the policy of other cannot speak about; the request is about team"
    )


def test_statements_of_which_more_does_not_fit_are_left_out() -> None:
    found = near_misses(
        policies(
            "Allow group ops to inspect objects in tenancy",
            "Allow group ops to read objects in compartment other",
            "Allow group devs to read repos in compartment team",
            f"{READ} where target.bucket.name = 'x'",
            "Allow group devs to inspect objects in compartment team",
            "Allow group ops to read objects in tenancy",
        ),
        Access(DEV, P.OBJECT_READ, "team", {"target.bucket.name": "y"}),
    )
    assert [one.statement.number for one in found] == [5, 4, 6]


def test_nothing_nearly_allows_what_is_allowed() -> None:
    assert near_misses(policies(READ), Access(DEV, P.OBJECT_READ, "team")) == ()


def test_at_most_ten_statements_are_listed() -> None:
    many = [f"{READ} where target.bucket.name = 'b{number}'" for number in range(30)]
    access = Access(DEV, P.OBJECT_READ, "team", {"target.bucket.name": "y"})
    assert len(near_misses(policies(*many), access)) == 10
