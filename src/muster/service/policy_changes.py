"""What policies, groups and dynamic groups may be made and changed to: both APIs make the records
here that they store. Names, texts, statements and rules are checked; permissions are not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.iam.names import check_name, check_text
from muster.iam.policies.statements import MOST_STATEMENTS, Location
from muster.identity import DEFAULT_PROJECT
from muster.store.policy_records import DynamicGroupRecord, GroupRecord, PolicyRecord

R = TypeVar("R", PolicyRecord, GroupRecord, DynamicGroupRecord)


def new_policy(
    id_: str, name: str, compartment: str, description: str, statements: Sequence[str], by: str
) -> PolicyRecord:
    """A policy that a user creates. Raises InvalidInput."""
    name, now = check_name("policy", name), time.time()
    checked = check_policy(name, statements, compartment)
    description = check_text("description", description)
    return PolicyRecord(id_, name, compartment, description, checked, 1, now, by, now, by)


def new_group(id_: str, name: str, description: str, by: str) -> GroupRecord:
    """A group that a user creates. Raises InvalidInput."""
    name, now = check_name("group", name), time.time()
    description = check_text("description", description)
    return GroupRecord(id_, name, description, 1, now, by, now, by)


def new_dynamic_group(
    id_: str, name: str, description: str, rule: str, by: str
) -> DynamicGroupRecord:
    """A dynamic group that a user creates. Raises InvalidInput."""
    name, now = check_name("dynamic group", name), time.time()
    rule = check_rule(rule)
    description = check_text("description", description)
    return DynamicGroupRecord(id_, name, description, rule, 1, now, by, now, by)


def with_description(record: R, description: str | None) -> R:
    """The record with another description; None: as it is. Raises InvalidInput."""
    if description is None:
        return record
    return replace(record, description=check_text("description", description))


def with_statements(policy: PolicyRecord, statements: Sequence[str] | None) -> PolicyRecord:
    """The policy with other statements; None: as it is. Raises InvalidInput."""
    if statements is None:
        return policy
    checked = check_policy(policy.name, statements, policy.compartment)
    return replace(policy, statements=checked)


def with_rule(group: DynamicGroupRecord, rule: str | None) -> DynamicGroupRecord:
    """The dynamic group with another rule; None: as it is. Raises InvalidInput."""
    return group if rule is None else replace(group, rule=check_rule(rule))


def changed_by(record: R, user: str) -> R:
    """The record as changed by a user now."""
    return replace(record, updated_at=time.time(), updated_by=user)


def check_policy(name: str, statements: Sequence[str], compartment: str) -> tuple[str, ...]:
    """The statements of a policy that is attached to a compartment. Raises InvalidInput with
    everything that is wrong with them."""
    from muster.iam.policies.parsing import parse_statements

    if not statements:
        hint = "write one such as: Allow group NAME to read data-science-jobs in tenancy"
        raise InvalidInput(Problem("statements", "a policy has at least one statement", hint))
    if len(statements) > MOST_STATEMENTS:
        text = f"{len(statements):,} statements, {MOST_STATEMENTS} are allowed in one policy"
        raise InvalidInput(Problem("statements", text, "write several policies"))
    parsed = parse_statements(statements, name)
    if parsed.errors:
        raise InvalidInput(*(one.problem for one in parsed.errors))
    above = [at for at, one in enumerate(parsed.statements, 1) if one.location == Location()]
    if above and compartment != DEFAULT_PROJECT:  # OCI refuses it, too
        text = f"a policy of compartment {compartment} cannot speak about the tenancy"
        hint = f"write: in {Location((compartment,))}, or attach the policy to the tenancy"
        raise InvalidInput(*(Problem("", text, hint, f"{name}:{at}") for at in above))
    return tuple(statements)


def check_rule(rule: str) -> str:
    """The rule. Raises InvalidInput with everything that is wrong with it."""
    from muster.iam.policies.parsing import parse_rule

    parse_rule(rule)
    return rule
