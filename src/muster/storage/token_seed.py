"""What tokens of a MUSTER_HOME are signed with."""

from __future__ import annotations

from muster.signed_tokens import SignedTokens
from muster.storage.home import Home
from muster.storage.sealing import keyed_digest


def signed_tokens(home: Home) -> SignedTokens:
    """Those that all servers and supervisors of a MUSTER_HOME know. Raises InvalidInput as
    `sealing.seal`."""
    return SignedTokens(bytes.fromhex(keyed_digest(home, "session tokens")))
