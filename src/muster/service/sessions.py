"""Session tokens of a MUSTER_HOME (`iam.session_tokens`)."""

from __future__ import annotations

from muster.iam.session_tokens import SessionTokens
from muster.storage.home import Home
from muster.storage.token_seed import signed_tokens


def session_tokens(home: Home) -> SessionTokens:
    """Those that all servers of a MUSTER_HOME know. Raises InvalidInput as `sealing.seal`."""
    return SessionTokens(signed_tokens(home))
