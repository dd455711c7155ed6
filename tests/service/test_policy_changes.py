"""What policies and groups may be made and changed to."""

from __future__ import annotations

import time

import pytest

from muster.errors import InvalidInput
from muster.service.policy_changes import (
    changed_by,
    new_dynamic_group,
    new_group,
    new_policy,
    with_description,
    with_rule,
    with_statements,
)

RULE = "resource.type = 'datasciencejobrun'"
READ = "Allow group team to read buckets in compartment vision"
POLICY = new_policy("p", "team", "vision", "what", [READ], "ana")
GROUP = new_dynamic_group("g", "runs", "what", RULE, "ana")


def test_what_is_not_given_stays_as_it_is() -> None:
    assert with_description(with_statements(POLICY, None), None) is POLICY
    assert with_description(with_rule(GROUP, None), None) is GROUP


def test_a_change_is_of_now_and_has_who_has_made_it() -> None:
    before = time.time()
    made = changed_by(with_description(GROUP, "new"), "ben")
    assert (made.description, made.rule, made.version) == ("new", RULE, 1)
    assert made.updated_by == "ben" and made.created_by == "ana" and made.updated_at >= before


@pytest.mark.parametrize("name", ["", "a b", "x" * 101])
def test_all_names_are_checked(name: str) -> None:
    with pytest.raises(InvalidInput, match="is not a valid name of a policy"):
        new_policy("p", name, "vision", "", [READ], "ana")
    with pytest.raises(InvalidInput, match="is not a valid name of a group"):
        new_group("g", name, "", "ana")
    with pytest.raises(InvalidInput, match="is not a valid name of a dynamic group"):
        new_dynamic_group("g", name, "", RULE, "ana")


def test_all_texts_statements_and_rules_are_checked() -> None:
    for change in (
        lambda: new_group("g", "team", "\x1b", "ana"),
        lambda: with_description(POLICY, "x" * 501),
        lambda: with_statements(POLICY, []),
        lambda: with_statements(POLICY, [READ.replace("compartment vision", "tenancy")]),
        lambda: with_rule(GROUP, "resource.type ="),
    ):
        with pytest.raises(InvalidInput):
            change()
