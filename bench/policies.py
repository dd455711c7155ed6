"""Decisions by policies: 1,000 statements, requests of users and runs, callers of the API, and
lists that are filtered.

Beside Cedar (`pip install cedarpy`), if it is installed, with the same statements and answers. It
has parsed policies and entities before.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, cast

from muster.caller import Caller
from muster.iam.authority import authority_of_user
from muster.iam.current_policies import CompiledPolicies, CurrentPolicies
from muster.iam.policies.decisions import (
    JOB_RUN,
    Access,
    Compartment,
    Group,
    Policies,
    Policy,
    Requester,
)
from muster.iam.policies.parsing import parse_policy
from muster.iam.policies.statements import (
    MOST_STATEMENTS,
    Operator,
    Statement,
    ValueKind,
    comparisons,
)
from muster.iam.policies.vocabulary import TYPES
from muster.permissions import Permission
from muster.store.account_records import ProjectRecord
from muster.store.policy_records import GroupMember, GroupRecord, PolicyRecord, PolicyState

COMPARTMENTS = [Compartment("default", "ocid1.tenancy.x")] + [
    Compartment(f"team{n}", f"ocid1.compartment.team{n}", f"team{n // 4}" if n >= 8 else "default")
    for n in range(50)
]
GROUPS = [Group(f"group{n}", f"ocid1.group.{n}") for n in range(200)]
TYPE_NAMES = ("data-science-jobs", "data-science-job-runs", "buckets", "repos", "log-groups")
RUN = "request.principal.type = 'datasciencejobrun'"
draw = random.Random(1)


def location(team: int) -> str:
    path = [f"team{team}"]
    while team >= 8:
        team //= 4
        path.append(f"team{team}")
    return ":".join(reversed(path))


def statement(number: int) -> str:
    group, where = f"group group{draw.randrange(200)}", location(draw.randrange(50))
    if number % 20 < 12:
        verb = draw.choice(("inspect", "read", "use", "manage"))
        return f"Allow {group} to {verb} {draw.choice(TYPE_NAMES)} in compartment {where}"
    if number % 20 < 17:
        condition = f"target.bucket.name = 'bucket{draw.randrange(500)}'"
        return f"Allow {group} to read objects in compartment {where} where {condition}"
    if number % 20 < 19:
        condition = f"all {{{RUN}, target.bucket.name = 'bucket{draw.randrange(500)}'}}"
        return f"Allow any-user to manage objects in compartment {where} where {condition}"
    condition = f"target.object.name = /part{draw.randrange(500)}-*/"
    return f"Allow {group} to manage objects in compartment {where} where {condition}"


def built(texts: Sequence[str]) -> Policies:
    policies = []
    for start in range(0, len(texts), MOST_STATEMENTS):
        parsed = parse_policy("\n".join(texts[start : start + MOST_STATEMENTS]), f"bench-{start}")
        assert not parsed.findings
        policies.append(Policy(parsed.name, "default", parsed.statements))
    return Policies(policies, COMPARTMENTS, GROUPS)


def requests(count: int) -> list[Access]:
    wanted = [
        one
        for name in (*TYPE_NAMES, "objects")
        for adds in TYPES[name].adds.values()
        for one in adds
    ]
    wanted += [Permission.OBJECT_READ] * 20
    users = [
        Requester(
            f"ocid1.user.{n}",
            f"user{n}",
            frozenset(f"ocid1.group.{draw.randrange(200)}" for _ in range(8)),
        )
        for n in range(50)
    ]
    runs = [
        Requester(f"ocid1.datasciencejobrun.{n}", type=JOB_RUN, compartment="team1")
        for n in range(20)
    ]
    return [
        Access(
            draw.choice(users * 2 + runs),
            draw.choice(wanted),
            f"team{draw.randrange(50)}",
            {
                "target.bucket.name": f"bucket{draw.randrange(500)}",
                "target.object.name": f"part{draw.randrange(500)}-{draw.randrange(99)}",
            },
        )
        for _ in range(count)
    ]


def microseconds(call: Callable[[Any], object], inputs: Sequence[Any], rounds: int = 5) -> float:
    """The median of the CPU time that a call takes."""
    for one in inputs:
        call(one)
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        for one in inputs:
            call(one)
        taken.append((time.process_time() - start) / len(inputs))
    return statistics.median(taken) * 1e6


class _Compiled:
    """In the place of `CurrentPolicies`: no store is read."""

    def __init__(self, compiled: CompiledPolicies) -> None:
        self.get = lambda: compiled


def callers(texts: Sequence[str], count: int) -> list[Caller]:
    """Callers who are in some groups each, with the policies as a server has them."""
    moment = (0.0, "root", 0.0, "root")
    policies = tuple(
        PolicyRecord(
            *(f"p{start}", f"bench-{start}", "default", ""),
            *(tuple(texts[start : start + MOST_STATEMENTS]), 1, *moment),
        )
        for start in range(0, len(texts), MOST_STATEMENTS)
    )
    users = [f"user{n}" for n in range(count)]
    state = PolicyState(
        *(1, policies),
        groups=tuple(GroupRecord(one.name, one.name, "", 1, *moment) for one in GROUPS),
        group_members=tuple(
            GroupMember(group.name, user, 0.0, "root")
            for user in users
            for group in draw.sample(GROUPS, 8)
        ),
        dynamic_groups=(),
        projects=tuple(
            ProjectRecord(one.name, 0.0, "root", "", one.parent) for one in COMPARTMENTS
        ),
        members=(),
        administrators=frozenset(),
    )
    current = cast("CurrentPolicies", _Compiled(CompiledPolicies(state, {}, "")))
    return [
        Caller(one, f"team{draw.randrange(50)}", authority_of_user(current, one)) for one in users
    ]


def resources(count: int) -> list[dict[str, str]]:
    return [
        {
            "target.bucket.name": f"bucket{draw.randrange(500)}",
            "target.object.name": f"part{draw.randrange(5000)}-{draw.randrange(99)}",
        }
        for _ in range(count)
    ]


def filtered(policies: Policies, access: Access, several: Sequence[dict[str, str]]) -> int:
    choose = policies.chooser(access.requester, access.permission, access.compartment)
    return 0 if choose is None else sum(map(choose, several))


def filter_time(policies: Policies, access: Access, several: Sequence[dict[str, str]]) -> float:
    """Milliseconds of a list."""
    return microseconds(lambda one: filtered(policies, access, one), [several]) / 1000


# -- the same in Cedar -----------------------------------------------------------------------------


def condition_parts(one: Statement) -> list[tuple[str, bool, str]]:
    """Variable, whether it is a prefix, and the text."""
    parts = []
    for comparison in comparisons(one.condition):
        assert comparison.operator is Operator.EQUAL
        (value,) = comparison.values
        name = comparison.variable.rsplit(".", 2)[-2]
        parts.append((name, value.kind is ValueKind.PATTERN, value.text.rstrip("*")))
    return parts


def cedar(policies: Policies, accesses: Sequence[Access]) -> Callable[[int], bool]:
    import cedarpy

    texts = []
    for one in policies.statements:
        subject = "principal"
        if one.statement.subject.names:
            subject = f'principal in Group::"{one.statement.subject.names[0]}"'
        actions = ", ".join(f'Action::"{permission}"' for permission in sorted(one.gives))
        when = " && ".join(
            f'context.{name} like "{text}*"' if prefix else f'context.{name} == "{text}"'
            for name, prefix, text in condition_parts(one.statement)
        )
        when = f" when {{ {when} }}" if when else ""
        place = f'resource in Compartment::"{one.compartment}"'
        texts.append(f"permit({subject}, action in [{actions}], {place}){when};")
    parsed = cedarpy.PolicySet.from_str("\n".join(texts))
    entities = [
        {
            "uid": {"type": "Compartment", "id": one.name},
            "attrs": {},
            "parents": [{"type": "Compartment", "id": one.parent}] if one.parent else [],
        }
        for one in COMPARTMENTS
    ]
    names = {one.id: one.name for one in GROUPS}
    seen = {one.requester.id: one.requester for one in accesses}
    entities += [
        {
            "uid": {"type": "User", "id": one.id},
            "attrs": {},
            "parents": [{"type": "Group", "id": names[group]} for group in one.groups],
        }
        for one in seen.values()
    ]
    known = cedarpy.Entities.from_json_str(json.dumps(entities))
    asked = [
        {
            "principal": f'User::"{one.requester.id}"',
            "action": f'Action::"{one.permission}"',
            "resource": f'Compartment::"{one.compartment}"',
            "context": {
                "bucket": one.attributes["target.bucket.name"],
                "object": one.attributes["target.object.name"],
                "principal": one.requester.type,
            },
        }
        for one in accesses
    ]
    return lambda at: cedarpy.is_authorized(asked[at], parsed, known).allowed


def show(name: str, value: float, unit: str, floor: float | None = None) -> None:
    ratio = "" if floor is None else f"{value / floor:10.1f} x"
    print(f"{name:58} {value:10.1f} {unit}{ratio}", flush=True)


def main() -> None:
    texts = [statement(number) for number in range(1000)]
    start = time.process_time()
    policies = built(texts)
    show("parse 1,000 statements and build the index", (time.process_time() - start) * 1e3, "ms")
    accesses = requests(1000)
    answers = [policies.allows(one) for one in accesses]
    allowed = [one for one in accesses if policies.allows(one)]
    denied = [one for one in accesses if not policies.allows(one)]
    print(f"{len(allowed)} of {len(accesses)} requests are allowed")
    mine = microseconds(policies.allows, accesses)
    show("allows", mine, "us", mine)
    show("decide, allowed", microseconds(policies.decide, allowed), "us", mine)
    show(
        "decide, denied, with the missing statement",
        microseconds(policies.decide, denied),
        "us",
        mine,
    )
    several_callers = callers(texts, 200)
    refused = [one for one in several_callers if not one.allows(Permission.JOB_CREATE)]
    assert len(refused) > len(several_callers) // 2
    show(
        "Caller.allows, denied",
        microseconds(lambda one: one.allows(Permission.JOB_CREATE), refused),
        "us",
        mine,
    )
    show("Caller.rights", microseconds(lambda one: one.rights, several_callers), "us", mine)
    if find_spec("cedarpy") is None:
        print("cedarpy is not installed")
    else:
        call = cedar(policies, accesses)
        differing = [one for at, one in enumerate(accesses) if call(at) != answers[at]]
        assert not differing, differing[0]
        show("Cedar: the same decisions", microseconds(call, range(0, 1000, 20), 3), "us", mine)

    several = resources(10_000)
    mixed = max(
        (one for one in accesses if one.permission is Permission.OBJECT_READ),
        key=lambda one: filtered(policies, one, several),
    )
    print(f"\n10,000 resources, of which {filtered(policies, mixed, several)} are chosen")
    show("filter", filter_time(policies, mixed, several), "ms")
    user = Requester("ocid1.user.u", "u", frozenset({"ocid1.group.0"}))
    for kind, form in (
        ("texts", "target.object.name = 'part{n}-7'"),
        (
            "texts with a second comparison",
            "all {{target.object.name = 'part{n}-7', target.bucket.name = /b*/}}",
        ),
        ("prefixes", "target.object.name = /part{n}-*/"),
        ("suffixes", "target.object.name = /*{n}-7/"),
        ("parts", "target.object.name = /*rt{n}-*/"),
        ("differing texts", "target.object.name != 'part{n}-7'"),
    ):
        many = built(
            [
                f"Allow group group0 to read objects in tenancy where {form.format(n=n * 5)}"
                for n in range(1000)
            ]
        )
        access = Access(user, Permission.OBJECT_READ, "team9", several[0])
        chosen = filtered(many, access, several)
        show(
            f"filter, 1,000 statements for one group: {kind} ({chosen})",
            filter_time(many, access, several),
            "ms",
        )
        miss = Access(user, Permission.OBJECT_READ, "team9", {"target.object.name": "x"})
        show("    allows", microseconds(many.allows, [miss]), "us")


if __name__ == "__main__":
    main()
