"""Statements, policies and rules as text."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.iam.policies.findings import Severity
from muster.iam.policies.parsing import (
    ParsedPolicy,
    parse_policy,
    parse_rule,
    parse_statement,
    parse_statements,
    rule_findings,
)
from muster.iam.policies.statements import (
    All,
    Any,
    Comparison,
    Location,
    Operator,
    Statement,
    Subject,
    SubjectKind,
    Value,
    ValueKind,
)
from muster.iam.policies.vocabulary import Verb

DEVS = Subject(SubjectKind.GROUP, ("devs",))


def compared(variable: str, operator: str, *values: str | Value) -> Comparison:
    return Comparison(
        variable,
        Operator(operator),
        tuple(Value(one) if isinstance(one, str) else one for one in values),
    )


def pattern(text: str) -> Value:
    return Value(text, ValueKind.PATTERN)


def variable(text: str) -> Value:
    return Value(text, ValueKind.VARIABLE)


BUCKET, OBJECT = "target.bucket.name", "target.object.name"
USER_ID, CREATED_BY = "request.user.id", "target.resource.createdBy"
DAY, CLOCK = "request.utc-timestamp.day-of-week", "request.utc-timestamp.time-of-day"

SUBJECTS = {
    "group devs": DEVS,
    "GROUP devs, 'Default'/'my group', Default/ops": Subject(
        SubjectKind.GROUP, ("devs", "my group", "ops")
    ),
    "group id ocid1.group.oc1..a, id ocid1.group.oc1..b": Subject(
        SubjectKind.GROUP, (), ("ocid1.group.oc1..a", "ocid1.group.oc1..b")
    ),
    "group id x, group id y": Subject(SubjectKind.GROUP, (), ("x", "y")),
    "group 'a/b', Default/c/d, id e/f": Subject(SubjectKind.GROUP, ("a/b", "c/d"), ("e/f",)),
    "group 'to', use": Subject(SubjectKind.GROUP, ("to", "use")),
    "dynamic-group runs": Subject(SubjectKind.DYNAMIC_GROUP, ("runs",)),
    "Dynamic-Group id x": Subject(SubjectKind.DYNAMIC_GROUP, (), ("x",)),
    "any-user": Subject(SubjectKind.ANY_USER),
    "Any-Group": Subject(SubjectKind.ANY_GROUP),
    "service datascience": Subject(SubjectKind.SERVICE, ("datascience",)),
}
LOCATIONS = {
    "tenancy": Location(),
    "TENANCY": Location(),
    "compartment team": Location(("team",)),
    "compartment a:b:c": Location(("a", "b", "c")),
    "Compartment ID ocid1.compartment.oc1..x": Location(id="ocid1.compartment.oc1..x"),
    "compartment 'id'": Location(("id",)),
}
CONDITIONS = {
    f"{BUCKET} = 'data'": compared(BUCKET, "=", "data"),
    f"{BUCKET}=data": compared(BUCKET, "=", "data"),
    f'{BUCKET} = "it\'s"': compared(BUCKET, "=", "it's"),
    "Target.Bucket.Name != 'x y'": compared(BUCKET, "!=", "x y"),
    f"{BUCKET} = /data*/": compared(BUCKET, "=", pattern("data*")),
    f"{OBJECT} = /logs/2026/*/": compared(OBJECT, "=", pattern("logs/2026/*")),
    f"{OBJECT} = /*a b*/": compared(OBJECT, "=", pattern("*a b*")),
    f"{BUCKET} in ('a', /b*/, c)": compared(BUCKET, "in", "a", pattern("b*"), "c"),
    f"{BUCKET} not in ('a')": compared(BUCKET, "not in", "a"),
    f"{CREATED_BY} = {USER_ID}": compared(CREATED_BY, "=", variable(USER_ID)),
    f"{CREATED_BY} = '{USER_ID}'": compared(CREATED_BY, "=", USER_ID),
    "request.utc-timestamp before '2026-01-01T00:00Z'": compared(
        "request.utc-timestamp", "before", "2026-01-01T00:00Z"
    ),
    f"{CLOCK} between '17:00:00Z' and '01:00'": compared(CLOCK, "between", "17:00:00Z", "01:00"),
    f"{DAY} in ('Monday', 'tuesday')": compared(DAY, "in", "Monday", "tuesday"),
    f"ALL {{{BUCKET} = 'a'}}": All((compared(BUCKET, "=", "a"),)),
    f"any {{{BUCKET} = 'a', all {{{OBJECT} = 'b', {OBJECT} != 'c'}}}}": Any(
        (
            compared(BUCKET, "=", "a"),
            All((compared(OBJECT, "=", "b"), compared(OBJECT, "!=", "c"))),
        )
    ),
    "target.resource.tag.Costs.Team = 'x'": compared("target.resource.tag.costs.team", "=", "x"),
}


def assert_reads(text: str, wanted: Statement) -> None:
    found = parse_statement(text)
    assert found == msgspec.structs.replace(wanted, text=text.strip())
    again = parse_statement(str(found))
    assert msgspec.structs.replace(again, text=found.text) == found
    assert str(again) == str(found)


@pytest.mark.parametrize("text", SUBJECTS)
def test_subjects(text: str) -> None:
    wanted = Statement(SUBJECTS[text], Location(), Verb.READ, "repos")
    assert_reads(f"allow {text} to read repos in tenancy", wanted)


@pytest.mark.parametrize("text", LOCATIONS)
def test_locations(text: str) -> None:
    wanted = Statement(DEVS, LOCATIONS[text], Verb.MANAGE, "all-resources")
    assert_reads(f"ALLOW group devs TO Manage All-Resources IN {text}", wanted)


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions(text: str) -> None:
    wanted = Statement(DEVS, Location(), Verb.USE, "objects", (), CONDITIONS[text])
    assert_reads(f"  Allow group devs to use objects in tenancy Where {text} ", wanted)


def test_permissions_in_place_of_a_verb() -> None:
    names = ("OBJECT_READ", "BUCKET_READ")
    text = "Allow group devs to {object_read, BUCKET_READ} in tenancy"
    assert_reads(text, Statement(DEVS, Location(), permissions=names))
    assert {str(one) for one in parse_statement(text).gives} == set(names)


def test_a_file_has_a_statement_a_line_and_comments() -> None:
    policy = parse_policy(
        "# the team\r\n\r\nAllow group a to read repos in tenancy # all of them\r\n"
        "   Allow group b to use repos in tenancy where target.repo.name = '#1'\n",
        "team.policy",
    )
    assert policy.findings == ()
    assert [one.text for one in policy.statements] == [
        "Allow group a to read repos in tenancy",
        "Allow group b to use repos in tenancy where target.repo.name = '#1'",
    ]


def corrections(policy: ParsedPolicy) -> set[str]:
    return {one.suggestion for one in policy.findings if one.is_correction and one.suggestion}


G, D, C = "GROUP_NAME", "DYNAMIC_GROUP_NAME", "COMPARTMENT_NAME"
#: Of documents about OCI, where the names were lost: the columns of findings, and the correction.
OF_DOCUMENTS = [
    (
        "Allow group to manage repos in compartment",
        [13, 43],
        f"Allow group {G} to manage repos in compartment {C}",
    ),
    (
        "Allow group to read repos in compartment",
        [13, 41],
        f"Allow group {G} to read repos in compartment {C}",
    ),
    (
        "Allow group to read repos in compartment where all { target.repo.name= }",
        [13, 42, 72],
        f"Allow group {G} to read repos in compartment {C} where all "
        "{ target.repo.name= 'VALUE' }",
    ),
    (
        "Allow group to use virtual-network-family in compartment",
        [13, 57],
        f"Allow group {G} to use virtual-network-family in compartment {C}",
    ),
    (
        "Allow group to use read metrics in compartment",
        [13, 16, 47],
        f"Allow group {G} to read metrics in compartment {C}",
    ),
    (
        "Allow dynamic-group to use data-science-family in compartment",
        [21, 62],
        f"Allow dynamic-group {D} to use data-science-family in compartment {C}",
    ),
    (
        "Allow group to manage objects in compartment your_compartment_name where all "
        "{target.bucket.name=}",
        [13, 98],
        f"Allow group {G} to manage objects in compartment your_compartment_name where all "
        "{target.bucket.name= 'VALUE'}",
    ),
    (
        "Allow dynamic-group to manage buckets in compartment your_compartment_name where all "
        "{target.bucket.name=}",
        [21, 106],
        f"Allow dynamic-group {D} to manage buckets in compartment your_compartment_name where "
        "all {target.bucket.name= 'VALUE'}",
    ),
    ("Allow to in where", [7, 10], ""),
]


@pytest.mark.parametrize(("text", "columns", "corrected"), OF_DOCUMENTS)
def test_statements_of_documents_that_lost_their_names(
    text: str, columns: list[int], corrected: str
) -> None:
    policy = parse_policy(text, "p")
    assert [one.column for one in policy.errors] == columns
    assert policy.statements == ()
    assert corrections(policy) == ({corrected} if corrected else set())


IN = "in tenancy"
#: Text, the part that a finding is about, words of its sentence, and the correction.
BROKEN = [
    ("Allow group a to user repos in tenancy", "user", "not a verb", "use repos"),
    ("Allow group a to raed repos in tenancy", "raed", "not a verb", "to read repos"),
    ("Allow group a to view repos in tenancy", "view", "not a verb", "inspect repos"),
    ("Allow group a to read repo in tenancy", "repo ", "not a type", "read repos"),
    ("Allow group a to use job-runs in tenancy", "job-runs", "not a type", "data-science-job-runs"),
    ("Allow group a to use zzz in tenancy", "zzz", "not a type", ""),
    ("Allow group a to read repos in compartment", "", "name of the compartment", C),
    ("Allow group a to read repos in compartment id", "", "OCID after `id`", "id OCID"),
    ("Allow group a to read repos in compartment a:", "a:", "path", ""),
    ("Allow group a to read repos in compartment all", "all", "a word of the language", "'all'"),
    (
        "Allow group a, to read repos in tenancy",
        "to",
        "name after `group`",
        "group a, GROUP_NAME to",
    ),
    (
        "Allow group <your group> to read repos in tenancy",
        "<your group>",
        "a placeholder",
        "YOUR_GROUP",
    ),
    ("Allow group a to read repos in tenancy where", "", "a condition is missing", ""),
    ("Allow group a read repos in tenancy", "read", "`to` is missing", "a to read"),
    ("Allow group a to read repos tenancy", "tenancy", "`in` is missing", "repos in tenancy"),
    ("Allow group a to repos in tenancy", "repos", "verb before `repos`", "inspect repos"),
    ("Allow group a to read in tenancy", "in", "type of resource after `read`", ""),
    ("Allow group a to read repos in tenncy", "tenncy", "did you mean `tenancy`", "in tenancy"),
    ("Allow group a to read repos in tenancy.", "tenancy.", "did you mean `tenancy`", "in tenancy"),
    ("Alow group a to read repos in tenancy", "Alow", "did you mean `allow`", "allow group"),
    ("group a to read repos in tenancy", "group", "`allow` is missing", "allow group a"),
    ("Allow grup a to read repos in tenancy", "grup", "", ""),
    ("Allow a to read repos in tenancy", "a", "", ""),
    ("Allow group a to read repos in tenancy; ", ";", "not expected", "in tenancy"),
    ("Allow group a to {OBJECT_RAED} in tenancy", "OBJECT_RAED", "not a permission", "OBJECT_READ"),
    ("Allow group a to {} in tenancy", "}", "a permission", ""),
    (
        "Allow group a to manage objects in tenancy where request.permission = 'OBJECT_CRAETE'",
        "'OBJECT_CRAETE'",
        "not a permission",
        "'OBJECT_CREATE'",
    ),
    ("Allow group 'Corp'/'a' to read repos in tenancy", "'Corp'", "no domain 'Corp'", ""),
    ("Allow group id '' to read repos in tenancy", "''", "the OCID is empty", ""),
    ("Allow group a to read repos in compartment id ' '", "' '", "the OCID is empty", ""),
    ("Allow group a to read repos in compartment ''", "''", "path", ""),
    ("Allow group '' to read repos in tenancy", "''", "the name is empty", ""),
    ("Deny group a to read repos in tenancy", "Deny", "Deny is not supported", ""),
    ("Define tenancy x as ocid1.tenancy.oc1..x", "Define", "Define is not supported", ""),
    ("Endorse group a to read repos in tenancy x", "Endorse", "Endorse is not supported", ""),
    ("Admit group a of tenancy x to read repos in tenancy", "Admit", "Admit is not supported", ""),
    (
        "Allow resource bucket b to read repos in tenancy",
        "resource",
        "not supported as a subject",
        "",
    ),
    ("Allow group a to read repos, objects in tenancy", ",", "one type of resource", ""),
    ("Allow group a to read repos in compartment b, c", ",", "one compartment", ""),
    ("Allow group a and group b to read repos in tenancy", "and", "by commas", "a, group b"),
    ("Allow group a to use all resources in tenancy", "all resources", "", "use all-resources"),
    ("Allow user bob to read repos in tenancy", "user", "not about single users", ""),
    ("Allow any-user or group a to read repos in tenancy", "or ", "`to` is", ""),
    ("Grant any-user to read repos in tenancy", "Grant", "did you mean `allow`", "allow any"),
    ("Allow any-user to read repos on tenancy", "on", "did you mean `in`", "repos in tenancy"),
]
#: The same, after `where`.
BROKEN_CONDITIONS = [
    ("target.repos.name = 'x'", "target.repos", "no variable", "target.repo.name"),
    ("target.x = 'x'", "target.x", "no variable", ""),
    ("target.repo.name = ''", "''", "is empty", "'VALUE'"),
    ("target.repo.name = request.usr.id", "request.usr", "no variable", "request.user.id"),
    ("all {target.repo.name = 'x'", "", "`}` is missing", "'x'}"),
    ("{target.repo.name = 'x'}", "{", "`all` or `any`", "all {"),
    ("target.repo.name = 'x' and target.repo.name = 'y'", "and", "combined", "all {"),
    (
        "any {target.repo.name = 'x' target.repo.name = 'y'}",
        "target.repo.name = 'y'",
        "`,` is missing",
        "'x', t",
    ),
    ("target.repo.name 'x'", "'x'", "`=` is missing", "= 'x'"),
    ("target.repo.name in ('x'", "", "`)` is missing", "('x')"),
    ("target.repo.name = 'x", "'x", "not closed", "'x'"),
    ("target.repo.name = x*", "x*", "between slashes", "/x*/"),
    ("target.repo.name = /a*b/", "/a*b/", "first, last or both", ""),
    ("target.repo.name = \u2018x\u2019", "\u2018x\u2019", "quotes are", "'x'"),
    ("all {}", "}", "a condition", ""),
    ("request.utc-timestamp before 'soon'", "'soon'", "a time is like", ""),
    ("target.repo.name before 'x'", "before", "compares times", ""),
    (f"{DAY} = 'someday'", "'someday'", "a day of the week", ""),
    ("target.repo.name == 'x'", "==", "one `=` compares", "name = 'x'"),
    ("target.repo.name = a or target.repo.name = b", "or ", "combined", "where any {target.rep"),
    ("target.repo.name = a && target.repo.name = b", "&&", "combined", "where all {target.rep"),
    ("target.repo.name = a and all {target.repo.name = b}", "and", "combined", ""),
]


REPOS = "Allow group a to read repos in tenancy"


@pytest.mark.parametrize(
    ("text", "part", "words", "corrected"),
    [*BROKEN, *((f"{REPOS} where {one[0]}", *one[1:]) for one in BROKEN_CONDITIONS)],
)
def test_what_is_wrong_is_shown_with_its_place_and_a_correction(
    text: str, part: str, words: str, corrected: str
) -> None:
    policy = parse_policy(f"# first\n{text}", "team.policy")
    assert policy.statements == ()
    found = policy.errors[0]
    assert words in found.sentence
    at = text.index(part) if part else len(text)
    assert (found.line, found.column) == (2, at + 1)
    assert found.place == f"team.policy:2:{found.column}"
    assert corrected in found.suggestion
    if found.is_correction and found.suggestion:
        assert parse_policy(found.suggestion, "").errors == ()
    where, line, carets, *_ = str(found).split("\n")
    assert where == f"{found.place}: error: {found.sentence}"
    assert line == f"    {text}"
    assert carets.index("^") == 4 + found.column - 1
    with pytest.raises(InvalidInput) as refused:
        parse_statement(text)
    assert found.sentence in str(refused.value)


def test_everything_that_is_wrong_is_found_at_once() -> None:
    policy = parse_policy(
        "Allow group a to user repo in tenancy where target.rep.name = 'x'\n"
        "Allow group a to read repos in tenancy\n"
        "Allow group to read repos in compartment\n",
        "p",
    )
    assert [(one.line, one.column) for one in policy.findings] == [
        *((1, 18), (1, 23), (1, 45)),
        *((3, 13), (3, 41)),
    ]
    assert policy.statements == ()
    assert corrections(policy) == {
        "Allow group a to use repos in tenancy where target.repo.name = 'x'",
        f"Allow group {G} to read repos in compartment {C}",
    }


WARNED = [
    ("Allow group a to manage instances in tenancy", "instances", "has no effect"),
    ("Allow group a to {OBJECT_RESTORE} in tenancy", "OBJECT_RESTORE", "no effect"),
    ("Allow group a to {CLUSTER_JOIN_ALL} in tenancy", "CLUSTER_JOIN_ALL", "no effect"),
    ("Allow group a to read repos in tenancy where request.ad = 'x'", "request.ad", "is false"),
    ("Allow group a to read repos in tenancy where target.repo.name = 'x*'", "'x*'", "for itself"),
    (
        "Allow group a to use keys in tenancy where target.key.id = 'ocid1.key.x'",
        *("keys", "has no effect"),
    ),
    (
        "Allow any-user to read repos in tenancy where request.principal.type = 'instances'",
        *("'instances'", "nothing has request.principal.type 'instances'"),
    ),
    (
        "Allow group a to read repos in tenancy where request.user.id = 'ben'",
        *("'ben'", "request.user.id is an OCID"),
    ),
]


@pytest.mark.parametrize(
    ("condition", "sentence", "suggestion"),
    [
        ("request.operation = 'ListJob'", "nothing has", "request.operation = 'ListJobs'"),
        ("request.operation in ('listjobs', 'x')", "'x'", "reference/oci"),
        ("request.operation != 'GetBuckett'", "'GetBuckett'", "!= 'GetBucket'"),
        ("request.operation = /Lost*/", "matches /Lost*/", "reference/oci"),
        ("request.permission = /REPO_*/", "matches /REPO_*/", "the page Policies"),
        ("request.principal.type = /vm*/", "matches /vm*/", "user, datasciencejobrun or instance"),
    ],
)
def test_values_that_no_request_has(condition: str, sentence: str, suggestion: str) -> None:
    text = f"Allow group a to manage all-resources in tenancy where {condition}"
    policy = parse_policy(text, "p")
    (found,) = policy.findings
    assert found.severity is Severity.WARNING
    assert sentence in found.sentence
    assert suggestion in found.suggestion
    assert len(policy.statements) == 1


@pytest.mark.parametrize(
    "condition",
    [
        "request.operation = 'getobject'",
        "request.operation = /list*/",
        "request.permission = /*_read/",
    ],
)
def test_values_that_requests_have(condition: str) -> None:
    text = f"Allow group a to manage all-resources in tenancy where {condition}"
    assert parse_policy(text, "p").findings == ()


@pytest.mark.parametrize(
    ("rule", "words", "suggestion"),
    [
        (
            "resource.type = 'datasciencejob'",
            "nothing has resource.type",
            "resource.type = 'datasciencejobrun'",
        ),
        ("resource.type = 'instances'", "nothing has resource.type", "resource.type = 'instance'"),
        ("resource.compartment.id = 'vision'", "'vision' is none", ""),
    ],
)
def test_rules_that_match_nothing(rule: str, words: str, suggestion: str) -> None:
    (found,) = rule_findings(rule)
    assert found.severity is Severity.WARNING
    assert words in found.sentence
    assert found.suggestion == suggestion
    assert parse_rule(rule).text == rule


@pytest.mark.parametrize(("text", "part", "words"), WARNED)
def test_what_has_no_effect_is_a_warning(text: str, part: str, words: str) -> None:
    policy = parse_policy(text, "p")
    (found,) = policy.findings
    assert found.severity is Severity.WARNING
    assert words in found.sentence
    assert text[found.column - 1 :].startswith(part)
    assert len(policy.statements) == 1


def test_statements_of_a_list_have_their_numbers() -> None:
    policy = parse_statements(["Allow group a to read repos in tenancy", "nothing", ""], "p")
    assert [one.line for one in policy.errors] == [2, 3]
    assert "empty" in policy.errors[1].sentence
    spread = "Allow group a\n to read repos\n in tenancy"
    assert len(parse_statements([spread], "p").statements) == 1


def test_long_and_deep_texts_are_refused() -> None:
    start = "Allow group a to read repos in tenancy where "
    deep = "all {" * 1000 + "target.repo.name = 'x'" + "}" * 1000
    assert "nested more than 20 times" in parse_policy(start + deep, "").errors[0].sentence
    fine = "all {" * 20 + "target.repo.name = 'x'" + "}" * 20
    assert parse_policy(start + fine, "").errors == ()
    long = f"Allow group {'a' * 20_000} to read repos in tenancy"
    assert "10,000 are allowed" in parse_policy(long, "").errors[0].sentence
    assert "500,000 are allowed" in parse_policy("#" * 600_000, "").errors[0].sentence


def test_after_a_hundred_lines_with_errors_no_more_are_read() -> None:
    policy = parse_policy("nothing\n" * 1000, "p")
    assert len({one.line for one in policy.findings}) == 100
    assert "100 lines have errors" in policy.findings[-1].sentence


@pytest.mark.parametrize("more", ["only", "except b", "unless target.repo.name = 'x'", "'x'"])
def test_a_correction_leaves_out_no_word(more: str) -> None:
    policy = parse_policy(f"{REPOS} {more}", "p")
    assert policy.errors
    assert corrections(policy) == set()


def test_corrections_are_put_where_they_belong() -> None:
    text = "Allow group <g> to user repos in tenncy where all {target.repo.name = x*"
    assert corrections(parse_policy(text, "p")) == {
        "Allow group G to use repos in tenancy where all {target.repo.name = /x*/}"
    }
    text = "Allow group a and <b> to read repos in tenancy where target.repo.name = x* or y = z"
    policy = parse_policy(text.replace("y = z", "request.user.name = z"), "p")
    assert corrections(policy) == {
        "Allow group a, B to read repos in tenancy where "
        "any {target.repo.name = /x*/, request.user.name = z}"
    }


RULES = {
    "resource.type='datasciencejobrun'": compared("resource.type", "=", "datasciencejobrun"),
    "All {resource.type = 'datasciencejobrun', resource.compartment.id = 'x'}": All(
        (
            compared("resource.type", "=", "datasciencejobrun"),
            compared("resource.compartment.id", "=", "x"),
        )
    ),
    "any {instance.id != 'a', tag.Costs.Team.value}": Any(
        (compared("instance.id", "!=", "a"), compared("tag.costs.team.value", "exists"))
    ),
    "all {resource.type='a'}\nall {resource.type='b'}\n# more\n": Any(
        (
            All((compared("resource.type", "=", "a"),)),
            All((compared("resource.type", "=", "b"),)),
        )
    ),
}


@pytest.mark.parametrize("text", RULES)
def test_rules(text: str) -> None:
    rule = parse_rule(text)
    assert rule.condition == RULES[text]
    assert parse_rule(str(rule)).condition == rule.condition


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the rule is empty"),
        ("resource.typ = 'x'", "no variable 'resource.typ'"),
        ("resource.type", "compared with nothing"),
        ("resource.type = /x*/", "not compared with a pattern"),
        ("resource.type in ('x')", "not expected here"),
        ("all {resource.type = 'x'", "`}` is missing"),
        ("request.user.id = 'x'", "no variable"),
    ],
)
def test_rules_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_rule(text)
    assert words in str(refused.value)


# -- any text ------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *("Allow", "allow", "group", "dynamic-group", "any-user", "any-group", "service", "id"),
        *("devs", "'a b'", '"x"', "'Default'/", "to", "read", "use", "manage", "repos", "objects"),
        *("in", "tenancy", "compartment", "a:b", "where", "all", "any", "{", "}", "(", ")", ","),
        *("=", "!=", "not", "in", "before", "between", "and", BUCKET, "target.repo.name", "'x'"),
        *("/x*/", "/", "*", "x*", "<x>", "'", "\u2018x\u2019", "#", " #c", "request.user.id"),
        *("Deny", "resource", "\n", "\t", "\u0130", ";", "12:00", CLOCK, "or", "==", "if"),
    ]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=25).map(" ".join))
VALID = st.builds(
    "Allow {} to {} in {}{}".format,
    st.sampled_from([*SUBJECTS]),
    st.sampled_from(["read repos", "manage all-resources", "{OBJECT_READ, PAR_MANAGE}"]),
    st.sampled_from([*LOCATIONS]),
    st.sampled_from(["", *(f" where {one}" for one in CONDITIONS)]),
)


def assert_reads_or_reports(text: str) -> None:
    policy = parse_policy(text, "p")
    assert not (policy.statements and policy.errors)
    for one in policy.statements:
        again = parse_statement(str(one))
        assert msgspec.structs.replace(again, text=one.text) == one
    for found in policy.findings:
        assert 1 <= found.column <= len(found.text) + 1
        assert found.length >= 1
        assert "^" in str(found)
        assert str(found.problem)
        if found.suggestion and found.is_correction:
            assert parse_policy(found.suggestion, "p").errors == ()
    try:
        rule = parse_rule(text)
    except InvalidInput as refused:
        assert refused.problems
    else:
        assert parse_rule(str(rule)).condition == rule.condition


@given(TEXTS)
@example("'\U00018cd6")  # not assigned, so that it cannot be printed
@example("\u2018\U00018cd6\u2019")
@example("Allow group a to read repos in compartment 'x\x01'")
def test_any_text_is_read_or_reported(text: str) -> None:
    assert_reads_or_reports(text)


@given(VALID, st.data())
def test_a_damaged_statement_is_read_or_reported(text: str, data: st.DataObject) -> None:
    """Cut out a part, double one, or put something in."""
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    middle = data.draw(st.one_of(st.just(""), PIECES, st.just(text[start:end] * 2)))
    assert_reads_or_reports(text[:start] + middle + text[end:])


@pytest.mark.parametrize(
    ("written", "column", "meant"),
    [
        ("Allow group 'a\u200bb' to read repos in tenancy", 15, "'ab'"),
        ("Allow group a\u202eb to read repos in tenancy", 14, "ab"),
        ("Allow group ab to read repos in tenancy where target.repo.name = /\x01x*/", 67, "/x*/"),
    ],
)
def test_a_character_that_cannot_be_printed_is_refused(
    written: str, column: int, meant: str
) -> None:
    (found,) = parse_policy(written, "p").errors
    assert (found.column, found.length) == (column, 1)
    assert found.sentence.endswith("cannot be printed")
    assert found.is_correction
    assert meant in found.suggestion
    assert found.suggestion.isprintable()


def test_spaces_and_comments_may_be_any() -> None:
    text = "Allow\u00a0group a\tto read repos in tenancy # \u200b"
    assert parse_policy(text, "p").findings == ()


@given(VALID)
def test_a_valid_statement_is_read(text: str) -> None:
    assert parse_policy(text, "p").findings == ()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Allow all users to read repos in tenancy", "Allow any-user to read repos in tenancy"),
        (
            "Allow group a to manage * in tenancy",
            "Allow group a to manage all-resources in tenancy",
        ),
        (
            "Allow group a to read repos in project vision",
            "Allow group a to read repos in compartment vision",
        ),
    ],
)
def test_words_of_other_languages_are_corrected(written: str, meant: str) -> None:
    (found,) = parse_policy(written, "p").findings
    assert found.suggestion == meant


@pytest.mark.parametrize("text", ['["Allow group a"]', '{\n  "statements": [\n  ]\n}'])
def test_json_is_one_error(text: str) -> None:
    for policy in (parse_policy(text, "p"), parse_statements([text], "p")):
        (found,) = policy.errors
        assert found.sentence == "this is JSON"
        assert "one statement a line" in found.suggestion


def test_a_policy_has_at_most_500_statements() -> None:
    statement = "Allow group a to read repos in tenancy\n"
    assert len(parse_policy(statement * 500, "p").statements) == 500
    (found,) = parse_policy(statement * 501, "p").errors
    assert (found.line, found.suggestion) == (501, "write several policies")
