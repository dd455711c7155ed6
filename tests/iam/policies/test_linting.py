"""What is odd about policies that can be read."""

from __future__ import annotations

import pytest

from muster.iam.policies.decisions import Compartment, DynamicGroup, Group, Policies, Policy
from muster.iam.policies.findings import Severity
from muster.iam.policies.linting import lint
from muster.iam.policies.parsing import parse_policy, parse_rule

COMPARTMENTS = (
    Compartment("default", "ocid1.tenancy.x"),
    Compartment("team", "ocid1.compartment.team", "default"),
    Compartment("research", "ocid1.compartment.research", "team"),
    Compartment("other", "ocid1.compartment.other", "default"),
)
GROUPS = (Group("devs", "ocid1.group.devs"), Group("ops", "ocid1.group.ops"))
DYNAMIC = (
    DynamicGroup("runs", "ocid1.dg.runs", parse_rule("resource.type = 'datasciencejobrun'")),
)


def policies(*statements: str, attached: str = "default") -> Policies:
    parsed = parse_policy("\n".join(statements), "p")
    assert not parsed.errors
    return Policies([Policy("p", attached, parsed.statements)], COMPARTMENTS, GROUPS, DYNAMIC)


R = "to read repos in tenancy"
BUCKETS = "Allow group devs to use object-family in tenancy where"
NEVER = "the condition never holds"

#: Statement, the part that the finding is about, words of the sentence, and the suggestion.
ODD = [
    (f"Allow group dev {R}", "dev", "no group dev", f"Allow group devs {R}"),
    (f"Allow group devs, zzz {R}", "zzz", "no group zzz", "create the group first"),
    (f"Allow group id ocid1.x {R}", "ocid1.x", "no group with the OCID", ""),
    (f"Allow dynamic-group devs {R}", "devs", "no dynamic group devs", "create the dynamic group"),
    (f"Allow dynamic-group run {R}", "run", "no dynamic group run", f"dynamic-group runs {R}"),
    (f"Allow service datascience {R}", "service datascience", "need no statement", "leave it out"),
    (
        "Allow group devs to read repos in compartment research",
        "research",
        "default has no compartment research",
        "in compartment team:research",
    ),
    (
        "Allow group devs to read repos in compartment team:reserch",
        "team:reserch",
        "no compartment team:reserch",
        "in compartment team:research",
    ),
    (
        "Allow group devs to read repos in compartment zzz",
        "zzz",
        "no compartment zzz",
        "name a compartment by its path",
    ),
    (
        "Allow group devs to read repos in compartment id ocid1.compartment.zzz",
        "ocid1.compartment.zzz",
        "no compartment with this OCID",
        "a policy is about its compartment",
    ),
    (
        f"Allow group devs {R} where target.bucket.name = 'x'",
        "target.bucket.name",
        "requests for repos have no target.bucket.name",
        "",
    ),
    (
        f"Allow group devs {R} where target.repo.name = target.job.id",
        "target.job.id",
        "requests for repos have no target.job.id",
        "",
    ),
    (
        "Allow group devs to manage users in compartment team",
        "users",
        "users are the tenancy's",
        "say `in tenancy`",
    ),
    ("Allow group devs to manage instances in tenancy", "", "no permission that Muster has", ""),
    (f"Allow any-user {R}", "any-user", "any-user is everybody", "add a condition"),
    (
        f"Allow any-user {R} where request.user.name != 'x'",
        "any-user",
        "any-user is everybody",
        "add a condition",
    ),
    (
        f"Allow any-user {R} where any {{request.user.name = 'x', target.repo.name = 'x'}}",
        "any-user",
        "any-user is everybody",
        "add a condition",
    ),
]


@pytest.mark.parametrize(("statement", "part", "words", "suggestion"), ODD)
def test_what_is_odd(statement: str, part: str, words: str, suggestion: str) -> None:
    (found,) = lint(policies(statement))
    assert found.severity is Severity.WARNING
    assert (found.source, found.line) == ("p", 1)
    at = found.column - 1
    assert statement[at : at + found.length] == (part or statement)
    assert statement.index(part) == at
    assert words in found.sentence
    assert suggestion in found.suggestion
    if found.is_correction:
        assert lint(policies(found.suggestion)) == ()


CONTRADICTIONS = [
    "all {target.bucket.name = 'a', target.bucket.name = 'b'}",
    "all {target.bucket.name = 'a', target.bucket.name != 'A'}",
    "all {target.bucket.name in ('a', 'b'), all {target.bucket.name in ('c', 'd')}}",
    "all {target.bucket.name = 'a', target.bucket.name = /b*/}",
    "all {target.bucket.name = /ab*/, target.bucket.name = /b*/}",
    "all {target.bucket.name = /*ab/, target.bucket.name = /*ac/}",
    "all {target.bucket.name = 'a', target.bucket.name not in ('a', 'b')}",
    "any {all {target.bucket.name = 'a', target.bucket.name = 'b'}}",
    "request.permission = 'REPOSITORY_READ'",
    "request.permission = /*_DELETE/",
    "all {request.permission = 'OBJECT_READ', request.permission = 'BUCKET_READ'}",
    "all {request.utc-timestamp before '2026-01-01Z', request.utc-timestamp after '2026-02-01Z'}",
    "request.utc-timestamp between '2026-02-01Z' and '2026-01-01Z'",
]
POSSIBLE = [
    "all {target.bucket.name = 'a', target.object.name = 'b'}",
    "any {target.bucket.name = 'a', target.bucket.name = 'b'}",
    "all {target.bucket.name in ('a', 'b'), target.bucket.name in ('b', 'c')}",
    "all {target.bucket.name = /ab*/, target.bucket.name = /a*/, target.bucket.name = /*c/}",
    "all {request.groups.id = 'a', request.groups.id = 'b'}",
    "all {target.bucket.name = 'a', target.bucket.name = request.user.name}",
    "any {request.permission = 'REPOSITORY_READ', request.permission = 'OBJECT_READ'}",
    "request.utc-timestamp.time-of-day between '17:00' and '01:00'",
    "all {request.utc-timestamp after '2026-01-01Z', request.utc-timestamp before '2026-02-01Z'}",
    # only objects have the variable: the statement still gives them
    "target.object.name = 'x'",
]


@pytest.mark.parametrize("condition", CONTRADICTIONS)
def test_conditions_that_never_hold(condition: str) -> None:
    (found,) = lint(policies(f"{BUCKETS} {condition}"))
    assert found.sentence.startswith(NEVER)


@pytest.mark.parametrize("condition", POSSIBLE)
def test_conditions_that_may_hold(condition: str) -> None:
    assert lint(policies(f"{BUCKETS} {condition}")) == ()


IMPLIED = [
    ("group devs to read repos in compartment team", "group devs to use repos in tenancy"),
    ("group devs to read repos in tenancy", "group devs, ops to manage all-resources in tenancy"),
    (
        "group devs to read objects in tenancy where target.bucket.name = 'a'",
        "group devs to read object-family in tenancy",
    ),
    (
        "group devs to read objects in tenancy where "
        "all {target.bucket.name = 'a', target.object.name = 'b'}",
        "group devs to use objects in tenancy where target.bucket.name = 'A'",
    ),
    ("group devs to {OBJECT_READ} in tenancy", "group devs to read objects in tenancy"),
    (
        "group devs to read repos in tenancy",
        "any-group to read repos in compartment default",
    ),
]


@pytest.mark.parametrize(("narrow", "broad"), IMPLIED)
@pytest.mark.parametrize("first", [True, False])
def test_statements_that_another_one_implies(narrow: str, broad: str, first: bool) -> None:
    texts = [f"Allow {narrow}", f"Allow {broad}"]
    (found,) = lint(policies(*(texts if first else texts[::-1])))
    assert found.text == texts[0]
    assert f"{'p#2' if first else 'p#1'} allows all of it: {texts[1]}" in found.sentence


def test_of_two_statements_that_say_the_same_one_is_superfluous() -> None:
    found = lint(policies(f"Allow group devs {R}", f"allow group DEVS {R}", f"Allow group ops {R}"))
    assert [one.line for one in found] == [2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("group devs to read repos in tenancy", "group ops to use repos in tenancy"),
        ("group devs to read repos in tenancy", "group devs to use repos in compartment team"),
        ("group devs to use repos in tenancy", "group devs to read all-resources in tenancy"),
        (
            "group devs to read repos in tenancy",
            "group devs to use repos in tenancy where target.repo.name = 'x'",
        ),
        ("dynamic-group runs to read repos in tenancy", "any-group to use repos in tenancy"),
    ],
)
def test_statements_that_the_other_one_does_not_imply(one: str, other: str) -> None:
    assert lint(policies(f"Allow {one}", f"Allow {other}")) == ()


def test_a_policy_below_the_root_does_not_speak_about_the_tenancy() -> None:
    (found,) = lint(policies(f"Allow group devs {R}", attached="team"))
    assert found.severity is Severity.ERROR
    assert found.sentence == "a policy of team cannot speak about the tenancy"
    assert found.suggestion == "Allow group devs to read repos in compartment team"
    assert lint(policies(found.suggestion, attached="team")) == ()


def test_only_some_policies_are_looked_at() -> None:
    statements = parse_policy(f"Allow group zzz {R}", "p").statements
    several = [Policy(name, "default", statements) for name in ("a", "b")]
    both = Policies(several, COMPARTMENTS, GROUPS, DYNAMIC)
    assert [one.source for one in lint(both)] == ["a", "b"]
    assert [one.source for one in lint(both, only=["b"])] == ["b"]


def test_statements_in_order_are_not_odd() -> None:
    assert (
        lint(
            policies(
                "Allow group devs to manage data-science-family in compartment team",
                "Allow group devs to read repos in compartment team:research",
                "Allow dynamic-group runs to read repos in tenancy where target.repo.name = /x*/",
                "Allow any-user to read repos in tenancy where "
                "request.principal.compartment.id = target.compartment.id",
            )
        )
        == ()
    )
