"""OCIDs of Muster and of OCI."""

from __future__ import annotations

import pytest

from muster.identity import DEFAULT_PROJECT, id_of
from muster.spec.ocids import TENANCY, compartment_ocid, ocid, split_ocid, user_ocid


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ocid1.tenancy.oc1..aaaab3", ("tenancy", "aaaab3")),
        ("ocid1.subnet.oc1.iad.aaaab3", ("subnet", "aaaab3")),
        ("ocid1.loggroup.oc1.us-ashburn-1.future.aaaab3", ("loggroup", "aaaab3")),
        (ocid("datasciencejob", "0123456789"), ("datasciencejob", "0123456789")),
        ("ocid1.subnet.oc1", None),
        ("ocid2.subnet.oc1.iad.aaaab3", None),
        ("ocid1.subnet.oc1.iad.", None),
        ("ocid1.subnet.oc1.iad.a/b", None),
        ("", None),
    ],
)
def test_an_ocid_is_split(text: str, parts: tuple[str, str] | None) -> None:
    assert split_ocid(text) == parts


def test_the_default_project_is_the_root_compartment() -> None:
    assert compartment_ocid(DEFAULT_PROJECT) == TENANCY == ocid("tenancy", id_of("tenancy"))


def test_ocids_of_projects_and_users_differ() -> None:
    made = {TENANCY, compartment_ocid("a"), compartment_ocid("b"), user_ocid("a"), user_ocid("b")}
    assert len(made) == 5
    assert all(split_ocid(one) for one in made)
