"""OCIDs: what OCI's clients call resources by. Their second segment is the type of the resource,
which clients look at. Pure."""

from __future__ import annotations

import re

from muster.identity import id_of

#: What OCI's SDKs put in front of a region whose name has a dot: a domain to them.
OCI_SERVICES = (
    *("datascience", "objectstorage", "identity", "logging", "ingestion.logging", "query"),
    *("telemetry", "telemetry-ingestion", "events", "iaas", "secrets.vaults", "vaults", "auth"),
)
#: OCI: type, realm, region, and maybe one more before the last one.
_OCID = re.compile(r"ocid1\.([a-z0-9]+)\.[^.]*\.[^.]*(?:\.[^.]*)?\.([A-Za-z0-9_-]+)")


def ocid(kind: str, identifier: str) -> str:
    """The OCID of a resource of Muster. kind: its type."""
    return f"ocid1.{kind}.muster.local..{identifier}"


def split_ocid(text: str) -> tuple[str, str] | None:
    """The type and the last part of an OCID; None if it is none."""
    found = _OCID.fullmatch(text)
    return None if found is None else (found[1], found[2])


#: The root compartment: Muster's default project.
TENANCY = ocid("tenancy", id_of("tenancy"))


def compartment_ocid(project: str) -> str:
    """The compartment that a project of Muster is."""
    return ocid("compartment", id_of("compartment", project))


def user_ocid(name: str) -> str:
    """A user of Muster."""
    return ocid("user", id_of("user", name))
