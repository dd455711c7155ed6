"""An issuer, and what a server knows of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster.caller import Role
from muster.iam.oidc.issuer import Issuer
from muster.iam.oidc.settings import GroupRole, OidcSettings
from support.oidc_issuer import RealIssuer, running_issuer


@pytest.fixture
def real() -> Iterator[RealIssuer]:
    """A real issuer."""
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture
def settings(real: RealIssuer) -> OidcSettings:
    roles = (GroupRole("vision", "vision", Role.SUBMITTER),)
    return OidcSettings(real.url, "muster", create_users=True, roles=roles)


@pytest.fixture
def issuer(real: RealIssuer) -> Issuer:
    """What a server or the command line has of it."""
    return Issuer(real.url)
