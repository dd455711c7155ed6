"""Resource search, with the SDK."""

from __future__ import annotations

import pytest
from oci.data_science import DataScienceClient
from oci.data_science.models import CreateProjectDetails
from oci.exceptions import ServiceError
from oci.resource_search import ResourceSearchClient, models

from support.oci_teams import SOUND, VISION, OciTeams


@pytest.fixture(scope="module")
def projects(oci: OciTeams) -> dict[str, str]:
    """Name -> OCID of projects."""
    made = {}
    for user, compartment, name in (
        ("anouk", VISION, "kites"),
        ("anouk", VISION, "boats"),
        ("oscar", SOUND, "bells"),
    ):
        details = CreateProjectDetails(
            compartment_id=compartment, display_name=name, freeform_tags={"wind": name}
        )
        made[name] = oci.client(DataScienceClient, user).create_project(details).data.id
    return made


def search(oci: OciTeams, query: str, user: str = "anouk") -> list[str]:
    details = models.StructuredSearchDetails(query=query)
    found = oci.client(ResourceSearchClient, user).search_resources(details).data.items
    return [one.display_name for one in found]


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("", ["kites", "boats"]),
        ("where identifier = '{kites}'", ["kites"]),
        ("return allAdditionalFields where (identifier = '{boats}')", ["boats"]),
        ("where compartmentId = '{vision}' && displayName != 'kites'", ["boats"]),
        ("where displayName contains 'IT' || displayName = 'BOATS'", ["kites", "boats"]),
        ("where freeformTags.key = 'wind' && freeformTags.value = 'kites'", ["kites"]),
        ("where lifecycleState = 'DELETED'", []),
        ("where identifier = '{bells}'", []),
    ],
)
def test_a_query_finds(
    oci: OciTeams, projects: dict[str, str], where: str, names: list[str]
) -> None:
    text = where.format(**projects, vision=VISION)
    found = search(oci, f"query datascienceproject resources {text} sorted by displayName desc")
    assert found == names


def test_others_find_their_own(oci: OciTeams, projects: dict[str, str]) -> None:
    assert search(oci, "query all resources", "oscar") == ["bells"]
    assert search(oci, "query all resources", "nora") == []


def test_a_text_finds(oci: OciTeams, projects: dict[str, str]) -> None:
    details = models.FreeTextSearchDetails(text="kites")
    client = oci.client(ResourceSearchClient)
    (found,) = client.search_resources(details).data.items
    assert (found.resource_type, found.identifier) == ("DataScienceProject", projects["kites"])
    assert "DataScienceJobRun" in {one.name for one in client.list_resource_types().data}


@pytest.mark.parametrize(
    "query",
    [
        "query",
        "query instance resources",
        "query all resources where",
        "query all resources where a =",
        f"query all resources where {'(' * 101}a = 'b'{')' * 101}",
    ],
)
def test_a_query_that_cannot_be_read_is_refused(oci: OciTeams, query: str) -> None:
    with pytest.raises(ServiceError) as refused:
        search(oci, query)
    assert (refused.value.status, refused.value.code) == (400, "InvalidParameter")


def test_pages_are_in_the_order_of_the_query(oci: OciTeams, projects: dict[str, str]) -> None:
    client = oci.client(ResourceSearchClient)
    for order, names in (("asc", ["boats", "kites"]), ("desc", ["kites", "boats"])):
        text = f"query datascienceproject resources sorted by displayName {order}"
        details = models.StructuredSearchDetails(query=text)
        first = client.search_resources(details, limit=1)
        second = client.search_resources(details, limit=1, page=first.next_page)
        assert [page.data.items[0].display_name for page in (first, second)] == names
        assert not second.has_next_page
