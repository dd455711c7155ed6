"""OCIDs: what OCI's clients call resources by. Their second segment is the type of the resource,
which clients look at. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from muster.identity import DEFAULT_PROJECT, id_of

#: What OCI's SDKs put in front of a region whose name has a dot: a domain to them.
OCI_SERVICES = (
    *("datascience", "objectstorage", "identity", "logging", "ingestion.logging", "query"),
    *("telemetry", "telemetry-ingestion", "events", "iaas", "secrets.vaults", "vaults", "auth"),
)
#: The region of clients whose server has no domain. It never resolves, so that no request which
#: does not name the server goes to OCI.
NO_REGION = "muster.invalid"
#: OCI: type, realm, region, and maybe one more before the last one.
_OCID = re.compile(r"ocid1\.([a-z0-9]+)\.[^.]*\.[^.]*(?:\.[^.]*)?\.([A-Za-z0-9_-]+)")


def ocid(kind: str, identifier: str) -> str:
    """The OCID of a resource of Muster. kind: its type."""
    return f"ocid1.{kind}.muster.local..{identifier}"


def split_ocid(text: str) -> tuple[str, str] | None:
    """The type and the last part of an OCID; None if it is none."""
    found = _OCID.fullmatch(text)
    return None if found is None else (found[1], found[2])


#: The root compartment: Muster's default project. Its id is `id_of("tenancy")`, written out as most
#: commands import this and need no hash.
TENANCY = ocid("tenancy", "vc8q77ec9x")


def compartment_ocid(project: str) -> str:
    """The compartment that a project of Muster is: of the default one, the root."""
    if project == DEFAULT_PROJECT:
        return TENANCY
    return ocid("compartment", id_of("compartment", project))


def secret_ocid(project: str, name: str) -> str:
    """A secret of a project of Muster."""
    return ocid("vaultsecret", id_of("secret", project, name))


@lru_cache(4096)  # each decision about what somebody has created needs it
def user_ocid(name: str) -> str:
    """A user of Muster."""
    return ocid("user", id_of("user", name))
