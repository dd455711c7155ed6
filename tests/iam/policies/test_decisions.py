"""Which requests policies allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any as Anything

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.iam.policies.decisions import (
    INSTANCE,
    JOB_RUN,
    USER,
    Access,
    Compartment,
    DynamicGroup,
    Group,
    Policies,
    Policy,
    Requester,
    allow_all,
)
from muster.iam.policies.parsing import parse_policy, parse_rule
from muster.permissions import Permission

P = Permission
COMPARTMENTS = (
    Compartment("default", "ocid1.tenancy.x"),
    Compartment("team", "ocid1.compartment.team", "default", ("ocid1.compartment.oc1..team",)),
    Compartment("sub", "ocid1.compartment.sub", "team"),
    Compartment("leaf", "ocid1.compartment.leaf", "sub"),
    Compartment("other", "ocid1.compartment.other", "default"),
)
GROUPS = (Group("Devs", "ocid1.group.devs"), Group("ops", "ocid1.group.ops"))
RUNS = DynamicGroup(
    "Runs",
    "ocid1.dynamicgroup.runs",
    parse_rule(
        "all {resource.type = 'datasciencejobrun', "
        "resource.compartment.id = 'OCID1.COMPARTMENT.TEAM'}"
    ),
)
DEV = Requester("ocid1.user.dev", "dev", frozenset({"ocid1.group.devs"}))
NOBODY = Requester("ocid1.user.n", "n")
RUN = Requester("ocid1.datasciencejobrun.r", type=JOB_RUN, compartment="team", created_by=DEV.id)
HOST = Requester("ocid1.instance.h", type=INSTANCE, compartment="team")


def policies(text: str, attached: str = "default", **others: Anything) -> Policies:
    parsed = parse_policy(text, "p")
    assert not parsed.errors
    given = {"groups": GROUPS, "dynamic_groups": (RUNS,)} | others
    return Policies([Policy("p", attached, parsed.statements)], COMPARTMENTS, **given)


def allows(
    text: str,
    requester: Requester = DEV,
    permission: Permission = P.OBJECT_READ,
    compartment: str = "team",
    attributes: Mapping[str, str] | None = None,
    attached: str = "default",
    now: float | None = None,
) -> bool:
    access = Access(requester, permission, compartment, attributes or {}, "GetObject", now)
    return policies(text, attached).allows(access)


READ = "to read objects in tenancy"


@pytest.mark.parametrize(
    ("subject", "requesters"),
    [
        ("group devs", [DEV]),
        ("group ops", []),
        ("group ops, DEVS", [DEV]),
        ("group id ocid1.group.devs", [DEV]),
        ("group id OCID1.group.Devs", [DEV]),
        ("group runs", []),
        ("any-user", [DEV, NOBODY, RUN, HOST]),
        ("any-group", [DEV]),
        ("dynamic-group runs", [RUN]),
        ("dynamic-group id ocid1.dynamicgroup.runs", [RUN]),
        ("dynamic-group devs", []),
        ("service datascience", []),
        ("any-user {}where request.principal.type = 'datasciencejobrun'", [RUN]),
        ("any-user {}where request.user.id != 'x'", [DEV, NOBODY]),
        ("any-user {}where request.groups.id != 'x'", [DEV]),
        ("any-user {}where request.principal.createdBy = 'ocid1.user.DEV'", [RUN]),
        ("any-user {}where request.principal.compartment.id = target.compartment.id", [RUN, HOST]),
    ],
)
def test_whom_a_statement_is_about(subject: str, requesters: list[Requester]) -> None:
    text = f"Allow {subject.format(f'{READ} ')}" if "{}" in subject else f"Allow {subject} {READ}"
    found = [one for one in (DEV, NOBODY, RUN, HOST) if allows(text, one)]
    assert found == requesters


ALL = {"default", "team", "sub", "leaf", "other"}


@pytest.mark.parametrize(
    ("location", "attached", "compartments"),
    [
        ("tenancy", "default", ALL),
        ("tenancy", "team", set()),
        ("compartment team", "default", {"team", "sub", "leaf"}),
        ("compartment TEAM", "default", {"team", "sub", "leaf"}),
        ("compartment team:sub", "default", {"sub", "leaf"}),
        ("compartment sub", "default", set()),
        ("compartment sub", "team", {"sub", "leaf"}),
        ("compartment team", "team", {"team", "sub", "leaf"}),
        ("compartment team:sub:leaf", "team", {"leaf"}),
        ("compartment default", "default", ALL),
        ("compartment default:other", "default", {"other"}),
        ("compartment other", "team", set()),
        ("compartment nowhere", "default", set()),
        ("compartment id ocid1.compartment.sub", "default", {"sub", "leaf"}),
        ("compartment id ocid1.compartment.OC1..team", "default", {"team", "sub", "leaf"}),
        ("compartment id ocid1.tenancy.x", "default", ALL),
        ("compartment id ocid1.compartment.sub", "other", set()),
        ("compartment id ocid1.compartment.none", "default", set()),
    ],
)
def test_where_a_statement_holds(location: str, attached: str, compartments: set[str]) -> None:
    text = f"Allow group devs to read objects in {location}"
    found = {name for name in ALL if allows(text, compartment=name, attached=attached)}
    assert found == compartments


def test_compartments_whose_names_differ_in_case_only_are_told_apart() -> None:
    two = (*COMPARTMENTS, Compartment("Team", "ocid1.compartment.team2", "default"))
    for written, wanted in (("team", {"team"}), ("Team", {"Team"}), ("TEAM", set())):
        text = f"Allow group devs to read objects in compartment {written}"
        found = Policies([Policy("p", "default", parse_policy(text, "p").statements)], two, GROUPS)
        both = {"team", "Team"}
        assert {n for n in both if found.allows(Access(DEV, P.OBJECT_READ, n))} == wanted


def test_a_compartment_that_is_not_known_has_what_the_tenancy_allows() -> None:
    assert allows(f"Allow group devs {READ}", compartment="new")
    assert not allows("Allow group devs to read objects in compartment team", compartment="new")
    where = "where target.compartment.id = 'x'"
    assert not allows(
        f"Allow group devs {READ} {where}",
        compartment="new",
        attributes={"target.compartment.id": "x"},
    )


def test_a_tree_with_a_cycle_or_a_gap_ends_at_the_root() -> None:
    tree = (
        Compartment("default", "t"),
        Compartment("a", "ia", "b"),
        Compartment("b", "ib", "a"),
        Compartment("c", "ic", "gone"),
    )
    text = f"Allow group devs {READ}"
    found = Policies([Policy("p", "default", parse_policy(text, "p").statements)], tree, GROUPS)
    assert all(found.allows(Access(DEV, P.OBJECT_READ, name)) for name in "abc")


def test_there_is_one_root() -> None:
    with pytest.raises(ValueError, match="one compartment has no parent, not 2"):
        Policies([], [Compartment("a", "ia"), Compartment("b", "ib")])


@pytest.mark.parametrize(
    ("what", "permission", "allowed"),
    [
        ("read objects", P.OBJECT_READ, True),
        ("read objects", P.OBJECT_INSPECT, True),
        ("read objects", P.OBJECT_CREATE, False),
        ("manage object-family", P.PAR_MANAGE, True),
        ("manage data-science-family", P.NODE_ENTER, False),
        ("manage all-resources", P.NODE_ENTER, True),
        ("{OBJECT_CREATE}", P.OBJECT_CREATE, True),
        ("{OBJECT_CREATE}", P.OBJECT_READ, False),
        ("manage instances", P.OBJECT_READ, False),
    ],
)
def test_what_a_statement_gives(what: str, permission: Permission, allowed: bool) -> None:
    assert allows(f"Allow group devs to {what} in tenancy", permission=permission) is allowed


def test_what_the_request_says_of_its_requester_or_compartment_does_not_count() -> None:
    for name in ("request.user.id", "target.compartment.name", "request.principal.type"):
        text = f"Allow any-user {READ} where {name} = 'forged'"
        assert not allows(text, attributes={name: "forged"})


def test_a_decision_names_the_statement() -> None:
    found = policies(f"Allow group ops {READ}\n# here\nAllow group devs {READ} # all").decide(
        Access(DEV, P.OBJECT_READ, "team")
    )
    assert found.allowed
    assert found.missing == ""
    assert found.statement is not None
    assert found.statement.place == "p#2"
    assert found.statement.text == f"Allow group devs {READ}"


TEAM_DEVS = "Allow group devs to inspect repos in compartment team"


@pytest.mark.parametrize(
    ("requester", "permission", "compartment", "attributes", "statement"),
    [
        (DEV, P.JOB_READ, "team", {}, "group Devs to read data-science-jobs in compartment team"),
        (DEV, P.JOB_READ, "leaf", {}, "group Devs to read data-science-jobs in LEAF"),
        (DEV, P.JOB_READ, "default", {}, "group Devs to read data-science-jobs in tenancy"),
        (
            *(DEV, P.OBJECT_CREATE, "team", {"target.bucket.name": "it's"}),
            'group Devs to manage objects in compartment team where target.bucket.name = "it\'s"',
        ),
        (
            *(DEV, P.OBJECT_DELETE, "team", {"target.bucket.name": "it's"}),
            "group Devs to manage objects in compartment team where "
            "all {target.bucket.name = \"it's\", request.permission = 'OBJECT_DELETE'}",
        ),
        (
            *(NOBODY, P.METRIC_READ, "team", {}),
            "any-user to read metrics in compartment team where request.user.id = 'ocid1.user.n'",
        ),
        (RUN, P.METRIC_READ, "team", {}, "dynamic-group Runs to read metrics in compartment team"),
        (
            *(HOST, P.METRIC_READ, "sub", {}),
            "any-user to read metrics in compartment team:sub where "
            "request.principal.id = 'ocid1.instance.h'",
        ),
    ],
)
def test_the_statement_that_is_missing(
    requester: Requester,
    permission: Permission,
    compartment: str,
    attributes: Mapping[str, str],
    statement: str,
) -> None:
    access = Access(requester, permission, compartment, attributes)
    found = policies(TEAM_DEVS).decide(access)
    wanted = f"Allow {statement.replace('LEAF', 'compartment team:sub:leaf')}"
    assert (found.allowed, found.missing) == (False, wanted)
    assert policies(found.missing).allows(access)


def test_the_group_whose_statements_are_nearest_is_the_one_that_lacks_a_statement() -> None:
    both = Requester("ocid1.user.b", "b", frozenset({"ocid1.group.devs", "ocid1.group.ops"}))
    text = f"Allow group devs {READ}\nAllow group ops to read repos in compartment team"
    missing = policies(text).missing(Access(both, P.METRIC_READ, "sub"))
    assert str(missing) == "Allow group ops to read metrics in compartment team:sub"


def test_choosing_resources_of_a_list() -> None:
    bucket, by = "target.bucket.name", "target.resource.createdBy"
    text = f"""
    Allow group devs {READ} where target.bucket.name = 'a'
    Allow group devs {READ} where all {{target.bucket.name = /b*/, {by} = request.user.id}}
    Allow group devs to manage objects in compartment other
    Allow group devs to read repos in tenancy where request.user.id = 'x'
    """
    found = policies(text)
    choose = found.chooser(DEV, P.OBJECT_READ, "team")
    assert choose is not None
    assert choose({bucket: "A"})
    assert not choose({})
    assert choose({bucket: "bb", by: DEV.id})
    assert not choose({bucket: "bb", by: "x"})
    assert found.chooser(DEV, P.OBJECT_READ, "other") is allow_all
    assert found.chooser(DEV, P.REPOSITORY_READ, "team") is None
    assert found.chooser(NOBODY, P.OBJECT_READ, "team") is None


def test_times_and_operations_and_regions() -> None:
    text = f"Allow group devs {READ} where request.utc-timestamp after '2026-01-01Z'"
    assert allows(text, now=1_800_000_000)
    assert not allows(text, now=1_700_000_000)
    assert not allows(text)
    assert allows(f"Allow group devs {READ} where request.operation = 'getobject'")
    region = f"Allow group devs {READ} where request.region = 'r1'"
    assert not allows(region)
    assert policies(region, region="R1").allows(Access(DEV, P.OBJECT_READ, "team"))


def test_tags_of_runs_and_resources() -> None:
    tagged = msgspec.structs.replace(HOST, tags=(("Costs.Team", "Blue"),))
    rule = parse_rule(
        "all {instance.compartment.id = 'ocid1.compartment.team', tag.costs.team.value = 'blue'}"
    )
    groups = (DynamicGroup("hosts", "ocid1.dynamicgroup.h", rule),)
    found = policies(f"Allow dynamic-group hosts {READ}", dynamic_groups=groups)
    assert found.allows(Access(tagged, P.OBJECT_READ, "team"))
    assert not found.allows(Access(HOST, P.OBJECT_READ, "team"))
    same = "target.resource.tag.costs.team = request.principal.tag.costs.team"
    text = f"Allow any-user {READ} where {same}"
    attributes = {"target.resource.tag.costs.team": "BLUE"}
    assert allows(text, tagged, attributes=attributes)
    assert not allows(text, HOST, attributes=attributes)


# -- an interpreter that is slow and obvious -------------------------------------------------------
#
# It reads the same statements, as mappings from which the text is made. It has nothing in common
# with the package but the names of permissions.

VERBS = ["inspect", "read", "use", "manage"]
TYPES = {
    "buckets": [
        *(["BUCKET_INSPECT"], ["BUCKET_READ"], ["BUCKET_UPDATE"]),
        ["BUCKET_CREATE", "BUCKET_DELETE", "PAR_MANAGE"],
    ],
    "objects": [
        *(["OBJECT_INSPECT"], ["OBJECT_READ"], ["OBJECT_OVERWRITE"]),
        ["OBJECT_CREATE", "OBJECT_DELETE"],
    ],
    "data-science-job-runs": [
        *([f"DATA_SCIENCE_JOB_RUN_{name}"] for name in ("INSPECT", "READ", "UPDATE")),
        [f"DATA_SCIENCE_JOB_RUN_{name}" for name in ("CREATE", "DELETE", "MOVE")],
    ],
}
RESOURCES = {one: [one] for one in TYPES} | {
    "object-family": ["buckets", "objects"],
    "all-resources": [*TYPES],
    "instances": [],
}
ASKED = [name for table in TYPES.values() for names in table for name in names]
VARIABLES = [
    *("target.bucket.name", "target.object.name", "target.resource.createdBy"),
    *("target.job-run.createdBy", "target.compartment.name", "target.compartment.id"),
    *("request.user.id", "request.user.name", "request.groups.id", "request.permission"),
    *("request.principal.type", "request.principal.id", "request.principal.compartment.id"),
    *("request.principal.createdBy", "request.operation", "target.resource.tag.n.k"),
]
OF_TYPE = {
    "target.bucket.name": ["buckets", "objects"],
    "target.object.name": ["objects"],
    "target.job-run.createdBy": ["data-science-job-runs"],
}
TEXTS = [
    *(
        "a",
        "B",
        "ab",
        "u1",
        "U2",
        "g1",
        "G2",
        "r1",
        "c1",
        "C2",
        "root",
        "user",
        "datasciencejobrun",
    ),
    *("OBJECT_READ", "object_create", "ListObjects"),
]
IDS = {"root": "id-root", "c1": "id-c1", "c2": "id-c2", "c3": "id-c3"}


def compare_strategy() -> st.SearchStrategy[dict[str, Anything]]:
    value = st.one_of(
        st.tuples(st.just("text"), st.sampled_from([*TEXTS, *IDS.values()])),
        st.tuples(
            st.sampled_from(["first", "last", "part"]),
            st.sampled_from(["a", "b", "o", "OBJECT", "_CREATE", "id-c"]),
        ),
        st.tuples(st.just("variable"), st.sampled_from(VARIABLES)),
    )
    return st.fixed_dictionaries(
        {
            "variable": st.sampled_from(VARIABLES),
            "operator": st.sampled_from(["=", "=", "=", "!=", "in", "not in"]),
            "values": st.lists(value, min_size=1, max_size=2),
        }
    )


CONDITIONS = st.recursive(
    compare_strategy(),
    lambda inner: st.fixed_dictionaries(
        {"all": st.booleans(), "parts": st.lists(inner, min_size=1, max_size=3)}
    ),
    max_leaves=4,
)
STATEMENTS = st.fixed_dictionaries(
    {
        "subject": st.sampled_from(
            [
                *(
                    "any-user",
                    "any-user",
                    "any-user",
                    "any-group",
                    "group g1",
                    "group G2, g3",
                    "group id ID-G1",
                ),
                *("dynamic-group d1", "dynamic-group D2", "dynamic-group id id-d1", "service x"),
            ]
        ),
        "verb": st.sampled_from([*VERBS, "manage", "manage"]),
        "resource": st.sampled_from([*RESOURCES, "all-resources", "all-resources"]),
        "permissions": st.one_of(
            st.just([]), st.just([]), st.lists(st.sampled_from(ASKED), max_size=3)
        ),
        "location": st.sampled_from(
            [
                *(
                    "tenancy",
                    "tenancy",
                    "tenancy",
                    "compartment c1",
                    "compartment C2",
                    "compartment c1:c2",
                ),
                *(
                    "compartment root:c1",
                    "compartment c3",
                    "compartment c1:c2:c3",
                    "compartment root",
                ),
                *("compartment id id-c2", "compartment id ID-C1", "compartment nowhere"),
            ]
        ),
        "condition": st.one_of(st.none(), CONDITIONS, CONDITIONS),
        "attached": st.sampled_from(["root", "root", "root", "c1", "c2"]),
    }
)
TREES = st.sampled_from(
    [
        {"root": "", "c1": "root", "c2": "c1", "c3": "c2"},
        {"root": "", "c1": "root", "c2": "root", "c3": "c1"},
        {"root": "", "c1": "c2", "c2": "root", "c3": "root"},
    ]
)
REQUESTERS = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just(USER),
            "id": st.sampled_from(["u1", "u2"]),
            "name": st.sampled_from(["a", "AB", ""]),
            "groups": st.lists(st.sampled_from(["g1", "g2", "g3"]), unique=True),
            "compartment": st.just(""),
            "created_by": st.just(""),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just(JOB_RUN),
            "id": st.just("r1"),
            "name": st.just(""),
            "groups": st.just([]),
            "compartment": st.sampled_from(["c1", "c2"]),
            "created_by": st.sampled_from(["u1", "u2", ""]),
        }
    ),
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(
        [one for one in VARIABLES if one.startswith("target.") and "job-run" not in one]
    ),
    st.sampled_from(TEXTS),
)
REQUESTS = st.fixed_dictionaries(
    {
        "requester": REQUESTERS,
        "permission": st.sampled_from(ASKED),
        "compartment": st.sampled_from(["root", "c1", "c2", "c3", "new"]),
        "attributes": ATTRIBUTES,
        "operation": st.sampled_from(["", "ListObjects"]),
    }
)


def text_of_condition(one: dict[str, Anything]) -> str:
    if "parts" in one:
        parts = ", ".join(map(text_of_condition, one["parts"]))
        return f"{'all' if one['all'] else 'any'} {{{parts}}}"
    forms = {"text": "'{}'", "first": "/{}*/", "last": "/*{}/", "part": "/*{}*/", "variable": "{}"}
    values = [forms[kind].format(value) for kind, value in one["values"]]
    right = f"({', '.join(values)})" if one["operator"].endswith("in") else values[0]
    return f"{one['variable']} {one['operator']} {right}"


def text_of(one: dict[str, Anything]) -> str:
    what = (
        f"{{{', '.join(one['permissions'])}}}"
        if one["permissions"]
        else f"{one['verb']} {one['resource']}"
    )
    where = f" where {text_of_condition(one['condition'])}" if one["condition"] else ""
    return f"Allow {one['subject']} to {what} in {one['location']}{where}"


class Slow:
    """Decides by looking at everything, each time."""

    def __init__(self, statements: list[dict[str, Anything]], tree: dict[str, str]) -> None:
        self.statements, self.tree = statements, tree

    def allows(self, request: dict[str, Anything]) -> bool:
        return any(self.allowed_by(one, request) for one in self.statements)

    def allowed_by(self, one: dict[str, Anything], request: dict[str, Anything]) -> bool:
        return (
            self.is_about(one["subject"], request["requester"])
            and self.gives(one, request["permission"])
            and self.is_in(one, request["compartment"])
            and (not one["condition"] or self.holds(one["condition"], request))
        )

    def is_about(self, subject: str, who: dict[str, Anything]) -> bool:
        if subject == "any-user":
            return True
        if subject == "any-group":
            return bool(who["groups"])
        if subject.startswith("group "):
            names = subject.lower().replace("group ", "").replace("id id-", "").split(", ")
            return who["type"] == USER and any(one in names for one in who["groups"])
        if subject.startswith("dynamic-group "):
            wanted = subject.lower()[-2:]
            matching = {"d1": who["compartment"] == "c1", "d2": who["id"] == "r1"}
            return who["type"] == JOB_RUN and matching[wanted]
        return False

    def gives(self, one: dict[str, Anything], permission: str) -> bool:
        if one["permissions"]:
            return permission in one["permissions"]
        for kind in RESOURCES[one["resource"]]:
            for level, names in enumerate(TYPES[kind]):
                if permission in names:
                    return level <= VERBS.index(one["verb"])
        return False

    def above(self, name: str) -> list[str]:
        found = []
        while name in self.tree:
            found.append(name)
            name = self.tree[name]
        return found or ["root"]

    def is_in(self, one: dict[str, Anything], compartment: str) -> bool:
        words = one["location"].lower().split()
        for name in self.tree:
            if one["attached"] not in self.above(name) or name not in self.above(compartment):
                continue
            upto = self.above(name)[: self.above(name).index(one["attached"])]
            path = ":".join(reversed(upto))
            full = ":".join([one["attached"], *reversed(upto)])
            if words == ["tenancy"]:
                hit = name == "root"
            elif words[1] == "id":
                hit = IDS[name] == words[2]
            else:
                hit = words[1] in (path, full)
            if hit:
                return True
        return False

    def value(self, variable: str, request: dict[str, Anything]) -> list[str]:
        who, kind = request["requester"], self.kind(request["permission"])
        if variable in OF_TYPE and kind not in OF_TYPE[variable]:
            return []
        user, run = who["type"] == USER, who["type"] == JOB_RUN
        known = {
            "target.compartment.name": [request["compartment"]],
            "target.compartment.id": [IDS.get(request["compartment"], "")],
            "request.user.id": [who["id"]] if user else [],
            "request.user.name": [who["name"]] if user else [],
            "request.groups.id": [f"id-{one}" for one in who["groups"]],
            "request.permission": [request["permission"]],
            "request.principal.type": [who["type"]],
            "request.principal.id": [who["id"]],
            "request.principal.compartment.id": [IDS[who["compartment"]]] if run else [],
            "request.principal.createdBy": [who["created_by"]],
            "request.operation": [request["operation"]],
        }
        if variable in known:
            return [one.lower() for one in known[variable] if one]
        name = variable.replace("target.job-run.", "target.resource.")
        found = request["attributes"].get(name)
        return [] if found is None else [found.lower()]

    def kind(self, permission: str) -> str:
        return next(one for one, table in TYPES.items() for names in table if permission in names)

    def holds(self, one: dict[str, Anything], request: dict[str, Anything]) -> bool:
        if "parts" in one:
            results = [self.holds(part, request) for part in one["parts"]]
            return all(results) if one["all"] else any(results)
        found = self.value(one["variable"], request)
        values = one["values"] if one["operator"].endswith("in") else one["values"][:1]
        if not found:
            return False
        hit = False
        for kind, text in values:
            if kind == "variable":
                right = self.value(text, request)
                if not right:
                    return False
                hit = hit or any(left in right for left in found)
                continue
            lower = text.lower()
            for left in found:
                hit = (
                    hit
                    or {
                        "text": left == lower,
                        "first": left[: len(lower)] == lower,
                        "last": left[-len(lower) :] == lower,
                        "part": lower in left,
                    }[kind]
                )
        return hit == (one["operator"] in ("=", "in"))


def build(statements: list[dict[str, Anything]], tree: dict[str, str]) -> Policies:
    several = []
    for number, one in enumerate(statements):
        parsed = parse_policy(text_of(one), f"p{number}")
        assert not parsed.errors, parsed.errors
        several.append(Policy(f"p{number}", one["attached"], parsed.statements))
    return Policies(
        several,
        [Compartment(name, IDS[name], parent) for name, parent in tree.items()],
        [Group(name, f"id-{name}") for name in ("g1", "g2", "g3")],
        [
            DynamicGroup("d1", "id-d1", parse_rule("resource.compartment.id = 'id-c1'")),
            DynamicGroup("d2", "ID-D2", parse_rule("all {resource.id = 'R1'}")),
        ],
    )


def access_of(request: dict[str, Anything]) -> Access:
    who = request["requester"]
    return Access(
        Requester(
            who["id"],
            who["name"],
            frozenset(f"id-{one}" for one in who["groups"]),
            who["type"],
            who["compartment"],
            who["created_by"],
        ),
        Permission(request["permission"]),
        request["compartment"],
        request["attributes"],
        request["operation"],
    )


@given(
    st.lists(STATEMENTS, min_size=1, max_size=6), TREES, st.lists(REQUESTS, min_size=1, max_size=6)
)
def test_decisions_are_those_of_a_slow_and_obvious_interpreter(
    statements: list[dict[str, Anything]],
    tree: dict[str, str],
    requests: list[dict[str, Anything]],
) -> None:
    found, slow = build(statements, tree), Slow(statements, tree)
    for request in requests:
        access = access_of(request)
        decision = found.decide(access)
        assert decision.allowed == slow.allows(request)
        choose = found.chooser(
            access.requester, access.permission, access.compartment, access.operation
        )
        assert (choose is not None and choose(access.attributes)) == decision.allowed
        if decision.allowed:
            assert decision.statement is not None
            number = int(decision.statement.policy.removeprefix("p"))
            assert slow.allowed_by(statements[number], request)
        elif access.compartment in tree:
            added = parse_policy(decision.missing, "missing").statements
            more = Policies(
                [*found.policies, Policy("missing", "root", added)],
                found.compartments.values(),
                found.groups,
                found.dynamic_groups,
            )
            assert more.allows(access)
