"""What an ID token leaves out.

An issuer that gives an access token may put only the subject into the ID token (OpenID Connect Core
1.0, section 5.4); what the scopes allow beyond it is at its UserInfo endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.errors import NotAuthenticated
from muster.iam.oidc.issuer import Issuer
from muster.iam.oidc.settings import OidcSettings


def with_user_info(
    claims: Mapping[str, Any], issuer: Issuer, settings: OidcSettings, access_token: str
) -> Mapping[str, Any]:
    """Verified claims of an ID token, and what else the issuer says of the person if the name, or
    groups that matter, are not among them. access_token: of the same login; "" if there is none.

    Raises NotAuthenticated if the access token is of somebody else, IssuerError.
    """
    needed = {settings.name_claim, *([settings.groups_claim] if settings.roles else [])}
    if not access_token or needed <= claims.keys():
        return claims
    found = issuer.user_info(access_token)
    if found and found.get("sub") != claims["sub"]:
        raise NotAuthenticated("the access token is of another person than the ID token")
    return {**found, **claims}
