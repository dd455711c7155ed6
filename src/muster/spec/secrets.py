"""Values nobody should read over somebody's shoulder: told by the name they go by.

They are kept as they were given, in the store that only its owner can read, since the run needs
them; whatever is shown or printed goes through here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from muster.spec.urls import without_credentials

HIDDEN = "***"
_NAMES = re.compile(
    r"(TOKEN|SECRET|PASSWO?R?D|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE)", re.IGNORECASE
)


def hide(name: str, value: str) -> str:
    """The value of an environment variable, or HIDDEN if its name says that it is a secret."""
    return HIDDEN if value and _NAMES.search(name) else value


def hidden(data: Any) -> Any:
    """Plain data with the secrets in every `env` and `node_env` hidden, however deep, and those in
    the addresses that `requirements` and `conda` hold."""
    if isinstance(data, Mapping):
        return {key: _hidden_in(key, value) for key, value in data.items()}
    return [hidden(item) for item in data] if isinstance(data, (list, tuple)) else data


def _hidden_in(key: str, value: Any) -> Any:
    if key in ("env", "node_env") and isinstance(value, Mapping):
        return {name: hide(name, text) for name, text in value.items()}
    if key == "conda" and isinstance(value, str):
        return without_credentials(value)
    if key == "requirements" and isinstance(value, (list, tuple)):
        return [without_credentials(str(line)) for line in value]
    return hidden(value)
