"""What a caller may inspect of all that decides: only this is told in answers about policies, so
that what is not the caller's looks like what does not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.caller import Caller, Variables
from muster.iam.resources import variables_of_group, variables_of_user
from muster.identity import DEFAULT_PROJECT
from muster.permissions import Permission
from muster.spec.ocids import ocid

if TYPE_CHECKING:
    from muster.store.policy_records import PolicyState


def seen_by(state: PolicyState, caller: Caller) -> PolicyState:
    """The part of a state that a caller may inspect: compartments with those that they are below,
    groups, which are its own or it may see, dynamic groups, policies, and who is in the groups."""
    above = {one.name: one.parent or DEFAULT_PROJECT for one in state.projects}
    projects = {DEFAULT_PROJECT}
    for one in state.projects:
        name = one.name
        if caller.allows(Permission.COMPARTMENT_INSPECT, project=name):
            while name not in projects:
                projects.add(name)
                name = above.get(name, DEFAULT_PROJECT)
    own = set[str]()
    if not caller.acting:  # a run or a host of the user acts as itself
        own = {one.group for one in state.group_members if one.user == caller.user}

    def in_tenancy(permission: Permission, variables: Variables) -> bool:
        return caller.allows(permission, variables, project=DEFAULT_PROJECT)

    groups = {
        one.id
        for one in state.groups
        if one.id in own
        or in_tenancy(
            Permission.GROUP_INSPECT,
            variables_of_group(ocid("group", one.id), one.name),
        )
    }
    dynamic = in_tenancy(Permission.DYNAMIC_GROUP_INSPECT, {})
    reads = reader_of(caller)
    return replace(
        state,
        policies=tuple(one for one in state.policies if reads(one.compartment)),
        groups=tuple(one for one in state.groups if one.id in groups),
        group_members=tuple(one for one in state.group_members if one.group in groups),
        dynamic_groups=state.dynamic_groups if dynamic else (),
        projects=tuple(one for one in state.projects if one.name in projects),
        members=tuple(one for one in state.members if one.project in projects),
    )


def reader_of(caller: Caller) -> Callable[[str], bool]:
    """Whether a caller may read the policies of a compartment; "" is the tenancy."""

    def reads(compartment: str) -> bool:
        place = compartment or DEFAULT_PROJECT
        return caller.allows(Permission.POLICY_READ, project=place)

    return reads


def sees_user(state: PolicyState, caller: Caller, user: str) -> bool:
    """Whether a caller may know that there is a user: itself, one of a project whose members it may
    see, or any."""
    if user.lower() == caller.user.lower():
        return True
    on = variables_of_user(user)
    if caller.allows(Permission.USER_INSPECT, on, project=DEFAULT_PROJECT):
        return True
    places = {one.project for one in state.members if one.user.lower() == user.lower()}
    return any(caller.allows(Permission.MEMBER_INSPECT, project=place) for place in places)
