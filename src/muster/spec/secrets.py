"""Values nobody should read over somebody's shoulder: known by the name they go by, or by where
they stand.

They are kept as they were given, in the store that only its owner can read, since the run needs
them; whatever is shown or printed goes through here: `redacted` for text, `hidden` for data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from muster.spec.urls import without_credentials

HIDDEN = "***"
_WORD = (
    "(?:TOKEN(?!IZE|S(?![A-Z]))|SECRET|PASSWO?R?D|PASSPHRASE|CREDENTIAL"
    "|(?:API|ACCESS)[-_]?KEY|PRIVATE)"
)
#: A name that says where the secret is, or about it, is none itself.
_ABOUT = r"(?<![-_]FILE)(?<![-_]PATH)(?<![-_]ENV)(?<![-_]DIR)(?<![-_]NAME)(?<![-_]TYPE)(?<![-_]ID)"
_NAME = rf"(?<![A-Za-z0-9])-{{0,2}}[A-Z0-9_.-]*{_WORD}[A-Z0-9_.-]*{_ABOUT}"
#: What is filled in later.
_GAP = r"\$\{[^{}]+\}|\$\([^()]+\)"
#: Not `$NAME`, which only says where the value is, nor the `...` of an example.
_VALUE = r"(?![$]|\.\.\.|<)(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\"&;,)]+)"
#: NAME=VALUE in a text, --name=VALUE and what a signed address ends in among them.
# compiled when they are needed: most commands print nothing of the kind
_GIVEN = rf"(?i)({_NAME}|[?&](?:X-AMZ-)?SIG(?:NATURE)?)=({_VALUE})"
_HEADER = r"(?i)(authorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic|token)\s+)[^\s'\"]+"
#: An option whose value is the next word.
_OPTION = rf"(?i)--?[A-Z0-9_.-]*{_WORD}[A-Z0-9_.-]*{_ABOUT}"
_OPTION_IN_TEXT = rf"(?i)((?<!\S){_OPTION[4:]}\s+)(?!-)({_VALUE})"


def redacted(text: str) -> str:
    """A text without what it says of secrets: passwords in addresses, NAME=VALUE, headers."""
    text = without_credentials(text) if "@" in text else text
    text = re.sub(_GIVEN, rf"\1={HIDDEN}", text) if "=" in text else text
    return re.sub(_HEADER, rf"\1{HIDDEN}", text) if "uthorization" in text.lower() else text


def hide(name: str, value: str) -> str:
    """The value that goes by this name; HIDDEN if that says that it is a secret."""
    secret = re.search(_WORD, name, re.IGNORECASE) and not re.fullmatch(_GAP, value)
    return HIDDEN if value and secret else redacted(value)


def hidden_words(words: Sequence[str]) -> list[str]:
    """The words of a command, with the values of secret options hidden: `--token X`, `--token=X`,
    also inside of a word that is a command itself."""
    made: list[str] = []
    before = ""
    for word in words:
        named = re.fullmatch(_OPTION, before)
        inner = re.sub(_OPTION_IN_TEXT, rf"\1{HIDDEN}", word)
        made.append(hide(before, word) if named and not word.startswith("-") else redacted(inner))
        before = word
    return made


def hidden(data: Any) -> Any:
    """Plain data with the secrets in it hidden, however deep: the values of mappings and of
    Kubernetes' `{name, value}` by their names, words of commands, and what `redacted` finds."""
    if isinstance(data, Mapping):
        if isinstance(name := data.get("name"), str) and isinstance(data.get("value"), str):
            return {**data, "value": hide(name, data["value"])}
        return {key: _hidden_in(str(key), value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        if data and all(isinstance(item, str) for item in data):
            return hidden_words(data)
        return [hidden(item) for item in data]
    return redacted(data) if isinstance(data, str) else data


def _hidden_in(key: str, value: Any) -> Any:
    if key in ("env", "node_env") and isinstance(value, Mapping):
        return {name: _named(str(name), text) for name, text in value.items()}
    about = not re.search(rf"{_ABOUT}$", key, re.IGNORECASE)
    return hidden(value) if about else _named(key, value)


def _named(name: str, value: Any) -> Any:
    return hide(name, value) if isinstance(value, str) else hidden(value)
