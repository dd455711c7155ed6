"""Whether conditions hold, and finding one of many that does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.iam.policies.alternatives import Alternatives
from muster.iam.policies.conditions import Values, compiled, holds, prepared, specialised, times
from muster.iam.policies.parsing import parse_statement
from muster.iam.policies.statements import (
    All,
    Any,
    Comparison,
    Condition,
    Operator,
    Value,
    ValueKind,
)
from muster.iam.policies.vocabulary import TYPE_OF
from muster.permissions import Permission

NOW = datetime(2026, 4, 1, 17, 30, tzinfo=UTC).timestamp()  # a Wednesday
VALUES: Values = {
    "target.bucket.name": ("data",),
    "target.object.name": ("logs/2026/a.txt",),
    "target.resource.createdBy": ("ocid1.user.u",),
    "target.compartment.id": ("ocid1.compartment.a", "ocid1.tenancy.x"),
    "request.user.id": ("ocid1.user.u",),
    "request.groups.id": ("ocid1.group.a", "ocid1.group.b"),
    "request.operation": ("getobject",),
    **times(NOW),
}
T, CLOCK = "request.utc-timestamp", "request.utc-timestamp.time-of-day"

TABLE = [
    ("target.bucket.name = 'data'", True),
    ("target.bucket.name = 'DATA'", True),
    ("target.bucket.name = 'dat'", False),
    ("target.bucket.name != 'data'", False),
    ("target.bucket.name != 'x'", True),
    ("target.bucket.name = /da*/", True),
    ("target.bucket.name = /DA*/", True),
    ("target.bucket.name = /*ta/", True),
    ("target.bucket.name = /*at*/", True),
    ("target.bucket.name = /data/", True),
    ("target.bucket.name = /dat/", False),
    ("target.bucket.name = /*/", True),
    ("target.bucket.name != /da*/", False),
    ("target.object.name = /logs/2026/*/", True),
    ("target.bucket.name in ('x', /d*/)", True),
    ("target.bucket.name in ('x', 'y')", False),
    ("target.bucket.name not in ('x', 'y')", True),
    ("target.bucket.name not in ('x', 'data')", False),
    # variables that the request does not have
    ("request.user.name = 'u'", False),
    ("request.user.name != 'u'", False),
    ("request.user.name not in ('u')", False),
    ("target.bucket.name != request.user.name", False),
    ("target.bucket.name in ('data', request.user.name)", False),
    ("request.ad != 'x'", False),
    # variables of other types
    ("target.repo.name != 'x'", False),
    ("target.job.createdBy = request.user.id", False),
    # variables on the right
    ("target.resource.createdBy = request.user.id", True),
    ("request.user.id = target.resource.createdBy", True),
    ("request.user.id != target.resource.createdBy", False),
    ("target.bucket.name = request.user.id", False),
    ("target.resource.createdBy = 'request.user.id'", False),
    # variables with several values
    ("request.groups.id = 'ocid1.group.b'", True),
    ("request.groups.id != 'ocid1.group.b'", False),
    ("request.groups.id != 'ocid1.group.c'", True),
    ("target.compartment.id = 'ocid1.tenancy.X'", True),
    ("target.bucket.name != request.groups.id", True),
    ("target.bucket.name = request.groups.id", False),
    ("request.groups.id != target.bucket.name", True),
    ("target.resource.createdBy not in (request.groups.id, 'x')", True),
    ("target.resource.createdBy not in (request.groups.id, 'ocid1.user.u')", False),
    # the permission
    ("request.permission = 'object_read'", True),
    ("request.permission = /OBJECT_*/", True),
    ("request.permission != /*_DELETE/", True),
    ("request.permission in (OBJECT_CREATE, OBJECT_DELETE)", False),
    ("request.operation = 'GetObject'", True),
    # several
    ("all {target.bucket.name = 'data', request.operation = 'GetObject'}", True),
    ("all {target.bucket.name = 'data', request.operation = 'x'}", False),
    ("any {target.bucket.name = 'x', request.operation = 'GetObject'}", True),
    ("any {target.bucket.name = 'x', all {request.operation = 'x'}}", False),
    # times
    (f"{T} before '2026-04-02Z'", True),
    (f"{T} after '2026-04-02T00:00Z'", False),
    (f"{T} before '2026-04-01T19:31:00+02:00'", True),
    (f"{T} before '2026-04-01T19:30:00+02:00'", False),
    (f"{T} between '2026-04-01Z' and '2026-04-01T17:30:00Z'", True),
    (f"{T}.month-of-year = '04'", True),
    (f"{T}.day-of-month in ('1', '15')", True),
    (f"{T}.day-of-week = 'Wednesday'", True),
    (f"{T}.day-of-week not in ('Saturday', 'Sunday')", True),
    (f"{CLOCK} between '09:00:00Z' and '17:00:00Z'", False),
    (f"{CLOCK} between '17:00:00Z' and '01:00:00Z'", True),
    (f"{CLOCK} between '18:00' and '17:00'", False),
    (f"{CLOCK} between '17:00' and '24:00'", True),
    (f"{CLOCK} after '17:29:59'", True),
]


def condition_of(text: str) -> Condition:
    found = parse_statement(f"Allow any-user to manage objects in tenancy where {text}").condition
    assert found is not None
    return found


def prepared_for(condition: Condition) -> bool | Condition:
    return prepared(condition, Permission.OBJECT_READ, TYPE_OF[Permission.OBJECT_READ])


@pytest.mark.parametrize(("text", "wanted"), TABLE)
def test_conditions_hold_or_not(text: str, wanted: bool) -> None:
    assert holds(prepared_for(condition_of(text)), VALUES) is wanted


def is_of_request(name: str) -> bool:
    return name.startswith(("request.", "target.compartment."))


@pytest.mark.parametrize(("text", "wanted"), TABLE)
@pytest.mark.parametrize("everything", [True, False])
def test_a_condition_that_is_specialised_means_the_same(
    text: str, wanted: bool, everything: bool
) -> None:
    condition = prepared_for(condition_of(text))
    left = specialised(condition, VALUES, lambda name: everything or is_of_request(name))
    assert holds(left, VALUES) is wanted
    if everything:
        assert left is wanted


def test_without_a_time_conditions_about_it_do_not_hold() -> None:
    condition = prepared_for(condition_of(f"{T} after '2000-01-01Z'"))
    assert not holds(condition, {})


# -- one of many ---------------------------------------------------------------------------------

NAMES = st.sampled_from(["target.bucket.name", "target.object.name", "target.resource.createdBy"])
WORDS = st.text("ab", min_size=1, max_size=3)


def comparisons() -> st.SearchStrategy[Comparison]:
    patterns = st.builds(
        lambda form, word: Value(form.format(word), ValueKind.PATTERN),
        st.sampled_from(["{}*", "*{}", "*{}*", "{}"]),
        WORDS,
    )
    values = st.one_of(WORDS.map(Value), patterns)
    single = st.builds(
        lambda name, operator, value: Comparison(name, operator, (value,)),
        NAMES,
        st.sampled_from([Operator.EQUAL, Operator.EQUAL, Operator.DIFFERENT]),
        st.one_of(values, NAMES.map(lambda name: Value(name, ValueKind.VARIABLE))),
    )
    among = st.builds(
        lambda name, operator, several: Comparison(name, operator, tuple(several)),
        NAMES,
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(values, min_size=1, max_size=3),
    )
    return st.one_of(single, among)


def conditions() -> st.SearchStrategy[Condition]:
    return st.recursive(
        comparisons(),
        lambda inner: st.builds(
            lambda kind, several: kind(tuple(several)),
            st.sampled_from([All, Any]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        max_leaves=4,
    )


VALUE_SETS = st.dictionaries(NAMES, st.lists(WORDS, min_size=1, max_size=2).map(tuple))


@given(st.lists(conditions(), max_size=15), st.lists(VALUE_SETS, min_size=1, max_size=5))
def test_one_of_many_conditions_is_found_as_if_each_were_tried(
    several: list[Condition], inputs: list[Values]
) -> None:
    known = [prepared_for(one) for one in several]
    alternatives = Alternatives(zip(known, range(len(known)), strict=True))
    for values in inputs:
        holding = {at for at, one in enumerate(known) if compiled(one)(values)}
        found = alternatives.find(values)
        assert (found is None) if not holding else (found in holding)
        single = {name: found[0] for name, found in values.items()}
        wanted = any(compiled(one)({n: (v,) for n, v in single.items()}) for one in known)
        assert alternatives.holds({name: text.upper() for name, text in single.items()}) == wanted


def test_many_texts_that_are_looked_for_anywhere() -> None:
    texts = [f"part{number}." for number in range(100)]
    alternatives = Alternatives(
        (prepared_for(condition_of(f"target.object.name = /*{text}*/")), text) for text in texts
    )
    for value, wanted in (
        ("a-part7.b", "part7."),
        ("part", None),
        ("\udc80part99.", "part99."),  # bytes of a file's name that are no text
        ("é.part12.", "part12."),
    ):
        assert alternatives.find({"target.object.name": (value,)}) == wanted
