"""Users, keys, groups, compartments and regions, with the SDK."""

from __future__ import annotations

from typing import Any

import pytest
from oci.exceptions import ServiceError
from oci.identity import IdentityClient, models
from oci.pagination import list_call_get_all_results

from muster.spec.ocids import TENANCY, user_ocid
from support.keys import public_pem
from support.oci_teams import SOUND, VISION, OciTeams, config_of


def refused(call: Any, *args: Any, **options: Any) -> tuple[int, str]:
    """How a call is refused."""
    with pytest.raises(ServiceError) as error:
        call(*args, **options)
    return error.value.status, error.value.code


NOT_FOUND = (404, "NotAuthorizedOrNotFound")


def test_users_see_themselves_and_the_members_of_their_projects(oci: OciTeams) -> None:
    client = oci.client(IdentityClient, "anouk")
    found = client.get_user(config_of("anouk")["user"]).data
    assert (found.name, found.lifecycle_state) == ("anouk", "ACTIVE")
    assert found.capabilities.can_use_api_keys
    names = {user.name for user in client.list_users(TENANCY).data}
    assert names == {"anouk", "sam", "vera"}
    assert refused(client.get_user, user_ocid("oscar")) == NOT_FOUND
    assert {user.name for user in oci.client(IdentityClient, "nora").list_users(TENANCY).data} == {
        "nora"
    }
    every = oci.client(IdentityClient, "root").list_users(TENANCY, name="oscar").data
    assert [user.name for user in every] == ["oscar"]


def test_a_user_is_found_by_its_ocid_in_oci(oci: OciTeams) -> None:
    theirs = "ocid1.user.oc1..aaaatheirs"
    config = config_of("sam") | {"user": theirs, "tenancy": "ocid1.tenancy.oc1..aaaatheirs"}
    client = IdentityClient(config, service_endpoint=oci.url)
    assert client.get_user(theirs).data.name == "sam"
    assert refused(client.get_user, "ocid1.user.oc1..aaaaothers") == NOT_FOUND


def test_keys_are_added_listed_and_deleted(oci: OciTeams) -> None:
    client, user = oci.client(IdentityClient, "sam"), user_ocid("sam")
    given = models.CreateApiKeyDetails(key=public_pem(100))
    made = client.upload_api_key(user, given).data
    assert made.key_id == f"{TENANCY}/{user}/{made.fingerprint}"
    assert refused(client.upload_api_key, user, given) == (409, "ApiKeyAlreadyExists")
    keys = [key.fingerprint for key in client.list_api_keys(user).data]
    assert keys == [config_of("sam")["fingerprint"], made.fingerprint]
    wrong = models.CreateApiKeyDetails(key="no key")
    assert refused(client.upload_api_key, user, wrong) == (400, "InvalidParameter")
    other = oci.client(IdentityClient, "anouk")
    for act in (other.list_api_keys, other.delete_api_key):
        args = (user,) if act == other.list_api_keys else (user, made.fingerprint)
        assert refused(act, *args) == NOT_FOUND
    assert refused(other.upload_api_key, user, given) == NOT_FOUND
    # by the user's own path, but a key of another one
    mine = user_ocid("anouk")
    assert refused(other.delete_api_key, mine, made.fingerprint) == NOT_FOUND
    assert client.delete_api_key(user, made.fingerprint).status == 204
    assert refused(client.delete_api_key, user, made.fingerprint) == NOT_FOUND


def test_compartments_are_the_projects_that_the_caller_may_see(oci: OciTeams) -> None:
    def names(user: str, **options: Any) -> list[str]:
        client = oci.client(IdentityClient, user)
        found = list_call_get_all_results(client.list_compartments, TENANCY, **options).data
        return sorted(one.name for one in found)

    options = {"compartment_id_in_subtree": True, "access_level": "ACCESSIBLE"}
    assert names("anouk", **options) == ["vision"]
    assert names("oscar") == ["sound"]
    assert names("nora") == []
    assert names("root", **options) == ["sound", "vision"]
    assert names("root", limit=1) == ["sound", "vision"]
    assert names("root", name="vision") == ["vision"]
    assert names("root", lifecycle_state="DELETED") == []
    client = oci.client(IdentityClient, "anouk")
    found = client.get_compartment(VISION).data
    assert (found.id, found.compartment_id, found.name) == (VISION, TENANCY, "vision")
    root = client.get_compartment(TENANCY).data
    assert (root.compartment_id, root.is_accessible) == (None, False)
    assert refused(client.get_compartment, SOUND) == NOT_FOUND
    assert refused(client.list_compartments, SOUND) == NOT_FOUND
    assert client.list_compartments(VISION).data == []


def test_groups_have_the_members_with_a_role(oci: OciTeams) -> None:
    client = oci.client(IdentityClient, "vera")
    groups = {group.name: group for group in client.list_groups(TENANCY).data}
    assert set(groups) == {"vision-admin", "vision-submitter", "vision-viewer"}
    group = groups["vision-submitter"]
    assert client.get_group(group.id).data.name == group.name
    members = client.list_user_group_memberships(TENANCY, group_id=group.id).data
    assert [member.user_id for member in members] == [user_ocid("sam")]
    mine = client.list_user_group_memberships(TENANCY, user_id=user_ocid("vera")).data
    assert [one.group_id for one in mine] == [groups["vision-viewer"].id]
    assert refused(client.list_user_group_memberships, TENANCY) == (400, "InvalidParameter")
    other = oci.client(IdentityClient, "oscar")
    assert refused(other.get_group, group.id) == NOT_FOUND


def test_there_is_one_region(oci: OciTeams) -> None:
    client = oci.client(IdentityClient, "nora")
    tenancy = client.get_tenancy(TENANCY).data
    (subscription,) = client.list_region_subscriptions(TENANCY).data
    (region,) = client.list_regions().data
    assert subscription.region_name == region.name == "muster"
    assert subscription.region_key == tenancy.home_region_key
    assert subscription.is_home_region
    (domain,) = client.list_availability_domains(TENANCY).data
    faults = client.list_fault_domains(TENANCY, domain.name).data
    assert [one.availability_domain for one in faults] == [domain.name] * 3
    assert refused(client.list_fault_domains, TENANCY, "AD-2") == NOT_FOUND
    assert refused(client.list_availability_domains, VISION) == NOT_FOUND
    assert refused(client.get_tenancy, VISION) == NOT_FOUND
