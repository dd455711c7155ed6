"""OCIDs of Muster's resources and of OCI's."""

from __future__ import annotations

import pytest

from muster.spec.ocids import TENANCY, ocid, split_ocid

UNIQUE = "amaaaaaav66vvnia3xk7"
FOUND = {
    ocid("datasciencejob", "abc123"): ("datasciencejob", "abc123"),
    TENANCY: ("tenancy", TENANCY.rpartition(".")[2]),
    f"ocid1.datascienceproject.oc1.iad.{UNIQUE}": ("datascienceproject", UNIQUE),
    f"ocid1.compartment.oc1..{UNIQUE}": ("compartment", UNIQUE),
    f"ocid1.loggroup.oc1.us-ashburn-1.reserved.{UNIQUE}": ("loggroup", UNIQUE),
}


@pytest.mark.parametrize("text", FOUND)
def test_the_type_and_the_last_part(text: str) -> None:
    assert split_ocid(text) == FOUND[text]


@pytest.mark.parametrize(
    "text",
    ["", "ocid1", "ocid1.job", f"ocid1.job.oc1.{UNIQUE}", "ocid1.job.oc1.iad.", "a.b.c.d.e"],
)
def test_what_is_no_ocid(text: str) -> None:
    assert split_ocid(text) is None
