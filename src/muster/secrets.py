"""Values nobody should read over somebody's shoulder: known by the name they go by, or by where
they stand.

They are kept as they were given, in the store that only its owner can read, since the run needs
them; whatever is shown, raised, logged or written for others goes through here: `redacted` for
text, `hidden` for data. This module may be imported from every room.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HIDDEN = "***"
# expressions are compiled when they are needed: most commands print nothing of the kind
_WORD = (
    "(?:TOKEN(?!IZE|S(?![A-Z]))|SECRET|PASSWO?R?D|PASSPHRASE|CREDENTIAL"
    "|(?:API|ACCESS|ACCOUNT|ENCRYPTION|SIGNING)[-_]?KEY|PRIVATE"
    "|(?<![A-Z])(?:PASS|PAT|JWT)(?![A-Z]))"
)
#: A name that says where the secret is, or about it, is none itself.
_ABOUT = r"[-_](?:FILE|PATH|ENV|DIR|NAME|TYPE|ID)\Z"
#: What is filled in later.
_GAP = r"\$\{[^{}]+\}|\$\([^()]+\)"
#: Not `$NAME`, which only says where the value is, nor the `...` of an example.
_VALUE = r"(?![$]|\*\*\*|\.\.\.|<)(?:'[^'\n]*'|\"(?:\\.|[^\"\\\n])*+\"|[^\s'\"&;,)]+)"
#: NAME= in a text, `--name=` and what a signed address ends in among them; not `NAME==1.0`, which
#: is a requirement. Each word is read once, however long it is.
_GIVEN = r"(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]++)=(?!=)"
_SIGNATURES = ("sig", "signature", "x-amz-sig", "x-amz-signature")
#: An option whose value is the next word.
_OPTION = r"(?<!\S)(--?[A-Za-z0-9_.-]++)\s++(?!-)"
#: In JSON, and in YAML that is written like it: `"token": "X"`.
_QUOTED = r"([A-Za-z0-9_.-]++)(?:\"|')\s{0,9}:\s{0,9}"
#: `X-Api-Key: X`
_FIELD = r"(?<![A-Za-z0-9_.-])([A-Za-z0-9]+(?:-[A-Za-z0-9]+)++):[ \t]{0,9}"
_KEY = r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)"
_HEADER = r"(?i)(authorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic|token)\s+)[^\s'\"]+"
# the user part of a web address may be a token all by itself; that of ssh is a name
_WEB = r"(?i)(?<![A-Za-z0-9])((?:git\+)?(?:https?|ftps?)://)[^/\s@]*(?:@[^/\s@]*)*@"
# so many characters of the scheme are enough to know it by, and of a long word none is read again
_OTHER = r"([A-Za-z][A-Za-z0-9+.-]{0,30}://[^/\s@:]*):[^/\s]*@"


def redacted(text: str, known: Sequence[str] = ()) -> str:
    """A text without what it says of secrets: passwords in addresses, NAME=VALUE, JSON, headers,
    private keys, and those that are known by their value."""
    for secret in known:
        text = text.replace(secret, HIDDEN) if secret else text
    text = without_credentials(text) if "@" in text else text
    text = _without_values(text, _GIVEN) if "=" in text else text
    if ":" in text:
        text = _without_values(_without_values(text, _QUOTED), _FIELD)
    if "PRIVATE KEY-----" in text:
        text = re.sub(_KEY, rf"\1{HIDDEN}\2", text, flags=re.DOTALL)
    return re.sub(_HEADER, rf"\1{HIDDEN}", text) if "uthorization" in text.lower() else text


def has_secret(text: str) -> bool:
    """Whether there is anything in it that should not be shown."""
    return redacted(text) != text


def without_credentials(address: str) -> str:
    """A text with the user and password of every web address in it left out, and the password of
    any other address. The address can still be used: nothing is put in their place."""
    return re.sub(_OTHER, r"\1@", re.sub(_WEB, r"\1", address))


def hide(name: str, value: str) -> str:
    """The value that goes by this name; HIDDEN if that says that it is a secret."""
    secret = names_secret(name) and not re.fullmatch(_GAP, value)
    return HIDDEN if value and secret else redacted(value)


def hidden_words(words: Sequence[str]) -> list[str]:
    """The words of a command, with the values of secret options hidden: `--token X`, `--token=X`,
    also inside of a word that is a command itself."""
    made: list[str] = []
    before = ""
    for word in words:
        option = word.startswith("--") or re.fullmatch("-[A-Za-z]?", word)
        named = before.startswith("-") and not option and names_secret(before)
        made.append(hide(before, word) if named else redacted(_without_values(word, _OPTION)))
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


def print_traceback() -> None:
    """Print the traceback of the exception that is being handled on stderr, without secrets."""
    import sys
    import traceback

    sys.stderr.write(redacted(traceback.format_exc()))
    sys.stderr.flush()


def _hidden_in(key: str, value: Any) -> Any:
    if key in ("env", "node_env") and isinstance(value, Mapping):
        return {name: _named(str(name), text) for name, text in value.items()}
    return _named(key, value)


def _named(name: str, value: Any) -> Any:
    return hide(name, value) if isinstance(value, str) else hidden(value)


def names_secret(name: str) -> bool:
    """Whether what goes by this name is a secret, rather than where one is."""
    found = re.search(_WORD, name, re.IGNORECASE)
    return found is not None and not re.search(_ABOUT, name, re.IGNORECASE)


def _without_values(text: str, names: str) -> str:
    """names: an expression for a name (group 1) with what stands between it and its value."""
    return "".join(_pieces(text, names))


def _pieces(text: str, names: str) -> Iterator[str]:
    done = 0
    for name in re.finditer(names, text):
        asked = text[name.start() - 1 : name.start()] in ("?", "&")
        signed = asked and name[1].lower() in _SIGNATURES
        if name.start() < done or not (signed or names_secret(name[1])):
            continue
        value = re.compile(_VALUE).match(text, name.end())
        if value is not None:
            yield text[done : name.end()]
            yield HIDDEN
            done = value.end()
    yield text[done:]
