"""Policies, groups, dynamic groups, compartments and users are managed with the SDK."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from oci.exceptions import ServiceError
from oci.identity import IdentityClient, models

from muster.identity import id_of
from muster.spec.ocids import TENANCY, compartment_ocid, ocid, user_ocid
from muster.store import default_policy
from muster.store.account_records import AuditFilter
from support.oci_teams import SOUND, VISION, OciTeams

NOT_FOUND = (404, "NotAuthorizedOrNotFound")
ALLOW = "Allow group vision-viewer to read buckets in compartment vision"
RULE = "all {resource.type = 'datasciencejobrun', resource.compartment.id = 'x'}"
_NUMBERS = count()


@pytest.fixture
def root(oci: OciTeams) -> IdentityClient:
    return oci.client(IdentityClient, "root")


@pytest.fixture
def anouk(oci: OciTeams) -> IdentityClient:
    """She administers `vision`."""
    return oci.client(IdentityClient, "anouk")


def refused(call: Any, *args: Any, **options: Any) -> ServiceError:
    """How a call is refused."""
    with pytest.raises(ServiceError) as error:
        call(*args, **options)
    return error.value


def code(error: ServiceError) -> tuple[int, str]:
    return error.status, error.code


def named(prefix: str = "one", compartment: str = TENANCY) -> dict[str, Any]:
    name = f"{prefix}-{next(_NUMBERS)}"
    return {"compartment_id": compartment, "name": name, "description": f"About {name}"}


def policy(compartment: str = VISION, *statements: str, **more: Any) -> Any:
    given = {**named("policy", compartment), "statements": list(statements or (ALLOW,)), **more}
    return models.CreatePolicyDetails(**given)


def actions(oci: OciTeams, object: str) -> list[str]:
    """What the audit log says that was done to something, the first first."""
    found = oci.teams.backend.store.audit.listing(AuditFilter(object=object))
    return [one.action for one in found if one.allowed][::-1]


# --- policies


def test_a_policy_is_created_changed_and_deleted(oci: OciTeams, anouk: IdentityClient) -> None:
    given = policy()
    answer = anouk.create_policy(given)
    made = answer.data
    assert (made.name, made.compartment_id, made.statements, made.description) == (
        *(given.name, VISION, [ALLOW]),
        given.description,
    )
    assert (made.lifecycle_state, made.version_date) == ("ACTIVE", None)
    assert anouk.get_policy(made.id).data == made
    assert made.id in [one.id for one in anouk.list_policies(VISION).data]
    assert [one.id for one in anouk.list_policies(VISION, name=given.name).data] == [made.id]
    assert anouk.list_policies(VISION, name=given.name, lifecycle_state="DELETED").data == []
    change = models.UpdatePolicyDetails(statements=[ALLOW, ALLOW], version_date="")
    changed = anouk.update_policy(made.id, change, if_match=answer.headers["etag"])
    assert (changed.data.statements, changed.data.description) == ([ALLOW] * 2, made.description)
    assert changed.headers["etag"] != answer.headers["etag"]
    for call, more in ((anouk.update_policy, (change,)), (anouk.delete_policy, ())):
        stale = refused(call, made.id, *more, if_match=answer.headers["etag"])
        assert code(stale) == (412, "NoEtagMatch")
    assert anouk.delete_policy(made.id, if_match=changed.headers["etag"]).status == 204
    assert code(refused(anouk.get_policy, made.id)) == NOT_FOUND
    assert actions(oci, given.name) == ["policies.create", "policies.change", "policies.delete"]


def test_each_wrong_statement_is_named_with_its_place(anouk: IdentityClient) -> None:
    wrong = ("Allow group to read buckets in tenancy", ALLOW, "Allow any-user to user repos in x")
    given = policy(VISION, *wrong)
    error = refused(anouk.create_policy, given)
    assert code(error) == (400, "InvalidParameter")
    places = [line.split(": ")[0] for line in error.message.splitlines()]
    assert any(place.startswith(f"{given.name}:1:") for place in places), error.message
    assert any(place.startswith(f"{given.name}:3:") for place in places), error.message
    assert not any(place.startswith(f"{given.name}:2:") for place in places), error.message
    assert anouk.list_policies(VISION, name=given.name).data == []
    made = anouk.create_policy(policy()).data
    change = models.UpdatePolicyDetails(statements=[wrong[0]])
    assert code(refused(anouk.update_policy, made.id, change)) == (400, "InvalidParameter")
    assert anouk.get_policy(made.id).data == made


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"statements": []}, "at least one statement"),
        ({"statements": ["Allow any-user to read repos in tenancy"] * 501}, "500 are allowed"),
        ({"name": "a b"}, "'a b' is not a valid name of a policy"),
        ({"name": "a" * 101}, "is not a valid name of a policy"),
        ({"description": "a\x1bb"}, "characters that cannot be printed"),
        ({"description": None}, "description"),
        ({"description": "a" * 401}, "description has 401 characters, 400 are allowed"),
        ({"version_date": "2024-01-01"}, "versionDate cannot be set here, since verbs give"),
        ({"freeform_tags": {"a": "b"}}, "freeformTags cannot be set here"),
    ],
)
def test_what_is_wrong_with_a_policy_is_told(
    anouk: IdentityClient, more: dict[str, Any], why: str
) -> None:
    error = refused(anouk.create_policy, policy(**more))
    assert error.status == 400
    assert why in error.message


def test_descriptions_have_up_to_400_characters(anouk: IdentityClient) -> None:
    for text in ("", "a" * 400):  # OCI: it may be empty
        made = anouk.create_policy(policy(description=text)).data
        assert anouk.get_policy(made.id).data.description == text
    change = models.UpdatePolicyDetails(description="a" * 401)
    assert "400 are allowed" in refused(anouk.update_policy, made.id, change).message
    assert anouk.get_policy(made.id).data == made


def test_a_version_date_is_refused(anouk: IdentityClient) -> None:
    made = anouk.create_policy(policy(version_date="")).data
    change = models.UpdatePolicyDetails(statements=[ALLOW], version_date="2024-01-01")
    error = refused(anouk.update_policy, made.id, change)
    assert code(error) == (400, "InvalidParameter")
    assert "versionDate cannot be set here" in error.message
    assert anouk.get_policy(made.id).data == made


def test_a_repeated_request_creates_one_policy(anouk: IdentityClient) -> None:
    given = policy()
    made = anouk.create_policy(given, opc_retry_token="token-1").data
    assert anouk.create_policy(given, opc_retry_token="token-1").data == made
    error = refused(anouk.create_policy, policy(), opc_retry_token="token-1")
    assert code(error) == (409, "InvalidatedRetryToken")
    error = refused(anouk.create_policy, given)
    assert code(error) == (409, "PolicyAlreadyExists")
    assert "choose another name" in error.message


def test_a_policy_is_attached_only_where_the_caller_may(oci: OciTeams) -> None:
    for user, compartments in {
        "root": (TENANCY, VISION, SOUND),
        "anouk": (VISION,),
        "oscar": (SOUND,),
        "sam": (),
        "nora": (),
    }.items():
        client = oci.client(IdentityClient, user)
        for compartment in (TENANCY, VISION, SOUND):
            if compartment in compartments:
                made = client.create_policy(policy(compartment)).data
                assert made.compartment_id == compartment
            else:
                error = refused(client.create_policy, policy(compartment))
                assert code(error) == NOT_FOUND, (user, compartment)
    made = oci.client(IdentityClient, "anouk").create_policy(policy()).data
    oscar, sam = oci.client(IdentityClient, "oscar"), oci.client(IdentityClient, "sam")
    change = models.UpdatePolicyDetails(description="mine")
    for client, seen in ((oscar, False), (sam, True)):
        assert code(refused(client.update_policy, made.id, change)) == NOT_FOUND
        assert code(refused(client.delete_policy, made.id)) == NOT_FOUND
        if seen:
            assert client.get_policy(made.id).data == made
        else:
            assert code(refused(client.get_policy, made.id)) == NOT_FOUND
            assert code(refused(client.list_policies, VISION)) == NOT_FOUND


def test_what_runs_may_do_can_be_read_and_changed(root: IdentityClient) -> None:
    (made,) = root.list_policies(TENANCY, name="job-runs").data
    assert made.id == ocid("policy", default_policy.ID)
    assert made.statements == list(default_policy.STATEMENTS)
    change = models.UpdatePolicyDetails(description="Ours")
    assert root.update_policy(made.id, change).data.description == "Ours"


def test_what_statements_name_is_not_deleted(root: IdentityClient) -> None:
    group = models.CreateGroupDetails(compartment_id=TENANCY, name="named-g", description="")
    runs = models.CreateDynamicGroupDetails(
        compartment_id=TENANCY,
        name="named-d",
        description="",
        matching_rule="resource.type = 'datasciencejobrun'",
    )
    place = models.CreateCompartmentDetails(compartment_id=TENANCY, name="named-c", description="")
    made = (
        (root.create_group(group).data.id, root.delete_group),
        (root.create_dynamic_group(runs).data.id, root.delete_dynamic_group),
        (root.create_compartment(place).data.id, root.delete_compartment),
    )
    statements = (
        "Allow group named-g to read repos in compartment named-c",
        "Allow dynamic-group named-d to read repos in tenancy",
    )
    naming = root.create_policy(policy(TENANCY, *statements)).data
    for identifier, delete in made:
        error = refused(delete, identifier)
        assert code(error) == (409, "Conflict")
        assert f"still named in {naming.name}#" in error.message
    root.delete_policy(naming.id)
    for identifier, delete in made:
        delete(identifier)


def test_a_policy_decides_at_once(oci: OciTeams, anouk: IdentityClient) -> None:
    """Nora is in no project, and sees nothing of `vision`."""
    nora = oci.client(IdentityClient, "nora")
    root = oci.client(IdentityClient, "root")
    assert code(refused(nora.list_policies, VISION)) == NOT_FOUND
    group = root.create_group(models.CreateGroupDetails(**named("readers"))).data
    text = f"Allow group {group.name} to read policies in compartment vision"
    made = anouk.create_policy(policy(VISION, text)).data
    assert code(refused(nora.list_policies, VISION)) == NOT_FOUND
    add = models.AddUserToGroupDetails(user_id=user_ocid("nora"), group_id=group.id)
    member = root.add_user_to_group(add).data
    assert made in nora.list_policies(VISION).data
    root.remove_user_from_group(member.id)
    assert code(refused(nora.list_policies, VISION)) == NOT_FOUND
    root.add_user_to_group(add)
    assert made in nora.list_policies(VISION).data
    anouk.delete_policy(made.id)
    assert code(refused(nora.list_policies, VISION)) == NOT_FOUND


# --- groups


def test_a_group_is_created_changed_and_deleted(oci: OciTeams, root: IdentityClient) -> None:
    given = models.CreateGroupDetails(**named("group"))
    answer = root.create_group(given)
    made = answer.data
    assert (made.name, made.description, made.compartment_id) == (
        *(given.name, given.description),
        TENANCY,
    )
    assert root.get_group(made.id).data == made
    assert root.list_groups(TENANCY, name=given.name).data == [made]
    change = models.UpdateGroupDetails(description="Others")
    changed = root.update_group(made.id, change, if_match=answer.headers["etag"])
    assert changed.data.description == "Others"
    stale = refused(root.delete_group, made.id, if_match=answer.headers["etag"])
    assert code(stale) == (412, "NoEtagMatch")
    add = models.AddUserToGroupDetails(user_id=user_ocid("sam"), group_id=made.id)
    member = root.add_user_to_group(add).data
    assert (member.user_id, member.group_id) == (user_ocid("sam"), made.id)
    assert root.add_user_to_group(add).data == member
    assert root.get_user_group_membership(member.id).data == member
    listed = root.list_user_group_memberships
    assert listed(TENANCY, group_id=made.id).data == [member]
    assert member in listed(TENANCY, user_id=user_ocid("sam")).data
    error = refused(root.delete_group, made.id)
    assert code(error) == (409, "Conflict")
    assert "has users" in error.message
    assert root.remove_user_from_group(member.id).status == 204
    assert code(refused(root.remove_user_from_group, member.id)) == NOT_FOUND
    assert root.delete_group(made.id).status == 204
    assert code(refused(root.get_group, made.id)) == NOT_FOUND
    assert actions(oci, f"{given.name} (sam)") == ["groups.add-user"] * 2 + ["groups.remove-user"]


def test_users_see_their_own_groups(oci: OciTeams, root: IdentityClient) -> None:
    made = root.create_group(models.CreateGroupDetails(**named("secret"))).data
    sam, oscar = oci.client(IdentityClient, "sam"), oci.client(IdentityClient, "oscar")
    assert code(refused(sam.get_group, made.id)) == NOT_FOUND
    add = models.AddUserToGroupDetails(user_id=user_ocid("sam"), group_id=made.id)
    member = root.add_user_to_group(add).data
    assert sam.get_group(made.id).data == made
    assert made in sam.list_groups(TENANCY).data
    assert member in sam.list_user_group_memberships(TENANCY, group_id=made.id).data
    assert made not in oscar.list_groups(TENANCY).data
    for call in (oscar.get_user_group_membership, sam.remove_user_from_group):
        assert code(refused(call, member.id)) == NOT_FOUND
    for client in (sam, oscar):
        assert code(refused(client.add_user_to_group, add)) == NOT_FOUND
        assert code(refused(client.delete_group, made.id)) == NOT_FOUND
        given = models.CreateGroupDetails(**named("mine"))
        assert code(refused(client.create_group, given)) == NOT_FOUND


def test_groups_without_a_record_are_shown_and_not_changed(root: IdentityClient) -> None:
    (administrators,) = root.list_groups(TENANCY, name="Administrators").data
    members = root.list_user_group_memberships(TENANCY, group_id=administrators.id).data
    assert [one.user_id for one in members] == [user_ocid("root")]
    viewers = ocid("group", id_of("group", "vision", "viewer"))
    change = models.UpdateGroupDetails(description="x")
    for group, command in (
        (administrators.id, "muster users change"),
        (viewers, "muster projects members"),
    ):
        add = models.AddUserToGroupDetails(user_id=user_ocid("sam"), group_id=group)
        for call, args in (
            (root.update_group, (group, change)),
            (root.delete_group, (group,)),
            (root.add_user_to_group, (add,)),
        ):
            error = refused(call, *args)
            assert code(error) == (409, "Conflict")
            assert command in error.message
    for name, status in (("administrators", 400), ("Vision-Viewer", 400)):
        given = models.CreateGroupDetails(**{**named(), "name": name})
        assert refused(root.create_group, given).status == status


def test_names_of_groups_are_unique(root: IdentityClient) -> None:
    given = models.CreateGroupDetails(**named("unique"))
    made = root.create_group(given, opc_retry_token="group-1").data
    assert root.create_group(given, opc_retry_token="group-1").data == made
    same = {**named(), "name": given.name.upper()}
    error = refused(root.create_group, models.CreateGroupDetails(**same))
    assert code(error) == (409, "GroupAlreadyExists")
    dynamic = models.CreateDynamicGroupDetails(**same, matching_rule=RULE)
    assert code(refused(root.create_dynamic_group, dynamic)) == (409, "DynamicGroupAlreadyExists")


# --- dynamic groups


def test_a_dynamic_group_is_created_changed_and_deleted(
    oci: OciTeams, root: IdentityClient
) -> None:
    given = models.CreateDynamicGroupDetails(**named("runs"), matching_rule=RULE)
    answer = root.create_dynamic_group(given, opc_retry_token="dynamic-1")
    made = answer.data
    assert (made.name, made.matching_rule, made.compartment_id) == (given.name, RULE, TENANCY)
    assert root.create_dynamic_group(given, opc_retry_token="dynamic-1").data == made
    assert root.get_dynamic_group(made.id).data == made
    assert made in root.list_dynamic_groups(TENANCY).data
    wrong = models.UpdateDynamicGroupDetails(matching_rule="resource.typ = 'datasciencejobrun'")
    error = refused(root.update_dynamic_group, made.id, wrong)
    assert code(error) == (400, "InvalidParameter")
    assert "resource.type" in error.message
    change = models.UpdateDynamicGroupDetails(matching_rule="resource.type = 'datasciencejobrun'")
    changed = root.update_dynamic_group(made.id, change, if_match=answer.headers["etag"])
    assert changed.data.matching_rule == change.matching_rule
    anouk = oci.client(IdentityClient, "anouk")
    assert code(refused(anouk.list_dynamic_groups, TENANCY)) == NOT_FOUND
    assert code(refused(anouk.get_dynamic_group, made.id)) == NOT_FOUND
    stale = refused(root.delete_dynamic_group, made.id, if_match=answer.headers["etag"])
    assert code(stale) == (412, "NoEtagMatch")
    assert root.delete_dynamic_group(made.id).status == 204
    assert code(refused(root.delete_dynamic_group, made.id)) == NOT_FOUND


# --- compartments


def names_in(client: IdentityClient, compartment: str, **options: Any) -> set[str]:
    found: Callable[..., Any] = client.list_compartments
    return {one.name for one in found(compartment, **options).data}


def test_compartments_are_a_tree(oci: OciTeams, root: IdentityClient) -> None:
    outer = models.CreateCompartmentDetails(**named("outer"))
    answer = root.create_compartment(outer, opc_retry_token="compartment-1")
    made = answer.data
    assert (made.name, made.compartment_id, made.description) == (
        *(outer.name, TENANCY),
        outer.description,
    )
    assert root.create_compartment(outer, opc_retry_token="compartment-1").data == made
    assert code(refused(root.create_compartment, outer)) == (409, "CompartmentAlreadyExists")
    inner = models.CreateCompartmentDetails(**named("inner", made.id))
    below = root.create_compartment(inner).data
    assert (below.compartment_id, below.id) == (made.id, compartment_ocid(inner.name))
    assert names_in(root, made.id) == {inner.name}
    assert outer.name in names_in(root, TENANCY) and inner.name not in names_in(root, TENANCY)
    assert {outer.name, inner.name} <= names_in(root, TENANCY, compartment_id_in_subtree=True)
    error = refused(root.delete_compartment, made.id)
    assert code(error) == (409, "Conflict")
    assert inner.name in error.message

    move = models.MoveCompartmentDetails(target_compartment_id=below.id)
    error = refused(root.move_compartment, made.id, move)
    assert (error.status, "which is below it" in error.message) == (400, True)
    move = models.MoveCompartmentDetails(target_compartment_id=VISION)
    work = root.move_compartment(below.id, move).headers["opc-work-request-id"]
    assert root.get_work_request(work).data.status == "SUCCEEDED"
    assert root.get_compartment(below.id).data.compartment_id == VISION
    assert names_in(root, VISION) == {inner.name}
    anouk = oci.client(IdentityClient, "anouk")
    move = models.MoveCompartmentDetails(target_compartment_id=TENANCY)
    for client_call, args in (
        (anouk.move_compartment, (below.id, move)),
        (anouk.move_compartment, (VISION, move)),
        (anouk.delete_compartment, (VISION,)),
        (anouk.create_compartment, (models.CreateCompartmentDetails(**named("x", VISION)),)),
    ):
        assert code(refused(client_call, *args)) == NOT_FOUND

    change = models.UpdateCompartmentDetails(description="Other", name=outer.name)
    changed = root.update_compartment(made.id, change, if_match=answer.headers["etag"])
    assert changed.data.description == "Other"
    stale = refused(root.update_compartment, made.id, change, if_match=answer.headers["etag"])
    assert code(stale) == (412, "NoEtagMatch")
    rename = models.UpdateCompartmentDetails(name="another")
    assert refused(root.update_compartment, made.id, rename).status == 400
    for one in (below.id, made.id):
        work = root.delete_compartment(one).headers["opc-work-request-id"]
        assert root.get_work_request(work).data.resources[0].action_type == "DELETED"
        assert code(refused(root.get_compartment, one)) == NOT_FOUND
    assert refused(root.delete_compartment, TENANCY).status == 409


def test_a_policy_speaks_of_the_compartments_below(oci: OciTeams, root: IdentityClient) -> None:
    given = models.CreateCompartmentDetails(**named("below", VISION))
    below = root.create_compartment(given).data
    vera = oci.client(IdentityClient, "vera")
    assert code(refused(vera.list_policies, below.id)) == NOT_FOUND  # roles do not reach below
    text = "Allow group vision-viewer to read policies in compartment vision"
    made = oci.client(IdentityClient, "anouk").create_policy(policy(VISION, text)).data
    assert vera.list_policies(below.id).data == []
    move = models.MoveCompartmentDetails(target_compartment_id=TENANCY)
    root.move_compartment(below.id, move)
    assert code(refused(vera.list_policies, below.id)) == NOT_FOUND
    root.delete_policy(made.id)
    root.delete_compartment(below.id)


# --- users


def test_users_are_created_changed_and_disabled(oci: OciTeams, root: IdentityClient) -> None:
    given = models.CreateUserDetails(**named("user"), email="user@example.com")
    answer = root.create_user(given, opc_retry_token="user-1")
    made = answer.data
    assert (made.name, made.description, made.id) == (
        *(given.name, given.description),
        user_ocid(given.name),
    )
    assert root.create_user(given, opc_retry_token="user-1").data == made
    assert code(refused(root.create_user, given)) == (409, "UserAlreadyExists")
    change = models.UpdateUserDetails(description="Other")
    changed = root.update_user(made.id, change, if_match=answer.headers["etag"])
    assert changed.data.description == "Other"
    block = models.UpdateStateDetails(blocked=True)
    stale = refused(root.update_user_state, made.id, block, if_match=answer.headers["etag"])
    assert code(stale) == (412, "NoEtagMatch")
    assert root.update_user_state(made.id, block).data.lifecycle_state == "INACTIVE"
    block = models.UpdateStateDetails(blocked=False)
    assert root.update_user_state(made.id, block).data.lifecycle_state == "ACTIVE"
    error = refused(root.delete_user, made.id)
    assert code(error) == (409, "Conflict")
    assert "Users are never deleted" in error.message
    anouk = oci.client(IdentityClient, "anouk")
    for call, args in (
        (anouk.create_user, (models.CreateUserDetails(**named("user")),)),
        (anouk.update_user, (made.id, change)),
        (anouk.update_user_state, (user_ocid("anouk"), block)),
        (anouk.delete_user, (user_ocid("anouk"),)),
    ):
        assert code(refused(call, *args)) == NOT_FOUND


# --- lists


def test_lists_are_sorted_and_in_pages(root: IdentityClient) -> None:
    from oci.pagination import list_call_get_all_results

    made = [root.create_group(models.CreateGroupDetails(**named("page"))).data for _ in range(3)]

    def names(**options: Any) -> list[str]:
        found = list_call_get_all_results(root.list_groups, TENANCY, limit=2, **options).data
        return [one.name for one in found if one.name.startswith("page-")]

    wanted = [one.name for one in made]
    assert names(sort_by="NAME") == sorted(wanted)
    assert names(sort_by="NAME", sort_order="DESC") == sorted(wanted)[::-1]
    assert sorted(names(sort_by="TIMECREATED")) == sorted(wanted)
    for one in made:
        root.delete_group(one.id)
