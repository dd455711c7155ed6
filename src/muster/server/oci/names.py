"""The names by which clients of OCI find its services below a domain."""

from __future__ import annotations

import re

from muster.errors import InvalidInput, Problem
from muster.spec.ocids import OCI_SERVICES

_DOMAIN = re.compile(r"(?=.{1,200}\Z)([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*")


def check_domain(domain: str) -> str:
    """The domain in small letters. Raises InvalidInput for what is none; it needs a dot, by which
    OCI's SDKs know that it is not the name of a region."""
    if not _DOMAIN.fullmatch(domain.lower()):
        hint = "use a domain with a dot, such as jobs.example.org"
        raise InvalidInput(Problem("--oci-domain", f"{domain!r} is not a domain", hint))
    return domain.lower()


def certificate_names(domain: str) -> list[str]:
    """The names that a certificate has for all services. Raises InvalidInput."""
    checked = check_domain(domain)
    below = sorted({name.partition(".")[2] for name in OCI_SERVICES if "." in name})
    return [checked, f"*.{checked}", *(f"*.{name}.{checked}" for name in below)]
