"""Hide secrets in what is shown, raised, logged or written for others.

Secrets are recognized by the name of their variable, field or option, or by their form. The store
keeps them encrypted (`storage.sealing`), since the run needs them. `redacted` is for text, `hidden`
for data. Every package may import this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import Any

HIDDEN = "***"
#: Characters of the shortest secret that is hidden in the output of programs.
SHORTEST = 4
#: Types of values that contain no secret: most values of a spec are of these.
HARMLESS = frozenset((type(None), bool, int, float))
#: What an encrypted string starts with.
SEALED_MARK = "muster-sealed:1:"
#: Followed by what is shown of the string. Group 1: the token.
SEALED = SEALED_MARK + "([A-Za-z0-9_=-]+):"
# expressions are compiled when they are used: most commands do not use them
_WORD = (
    "(?:TOKEN(?!IZE|S(?![A-Z]))|SECRET|PASSWO?R?D|PASSPHRASE|CREDENTIAL"
    "|(?:API|ACCESS|ACCOUNT|ENCRYPTION|SIGNING)[-_]?KEY|PRIVATE"
    "|(?<![A-Z])(?:PASS|PAT|JWT)(?![A-Z]))"
)
#: One of these is in each match of `_WORD`.
_STEMS = ("TOKEN", "SECRET", "PASS", "CREDENTIAL", "KEY", "PRIVATE", "PAT", "JWT")
#: Names of a secret's location or type are not secret.
_ABOUT = (
    r"[-_](?:FILE|PATH|ENV|DIR|NAME|TYPE|ID)\Z"
    # Kubernetes: secretName, secretKeyRef
    r"|(?-i:(?<=[a-z])(?:File|Path|Env|Dir|Name|Type|Id|Ref))\Z"
    # Kubernetes: names of Secrets; a variable in capital letters may have the login itself
    r"|(?-i:image[-_]pull[-_]secrets?|imagePullSecrets?)\Z"
)
#: Placeholders that are replaced later.
_GAP = r"\$\{[^{}]+\}|\$\([^()]+\)"
#: Not `$NAME`, which refers to a value, nor the `...` of an example.
_VALUE = r"(?![$]|\*\*\*|\.\.\.|<)(?:'[^'\n]*'|\"(?:\\.|[^\"\\\n])*+\"|[^\s'\"&;,)]+)"
#: NAME= in a text, also of `--name=` and in the query of a signed URL; not the requirement
#: `NAME==1.0`. Possessive: the time is linear in the length of a word.
_GIVEN = r"(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]++)=(?!=)"
_SIGNATURES = ("sig", "signature", "x-amz-sig", "x-amz-signature")
#: An option whose value is the next word.
_OPTION = r"(?<!\S)(--?[A-Za-z0-9_.-]++)\s++(?!-)"
#: In JSON and YAML: `"token": "X"`.
_QUOTED = r"([A-Za-z0-9_.-]++)(?:\"|')\s{0,9}:\s{0,9}"
#: `X-Api-Key: X`
_FIELD = r"(?<![A-Za-z0-9_.-])([A-Za-z0-9]+(?:-[A-Za-z0-9]+)++):[ \t]{0,9}"
_KEY = r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)"
#: A token of Muster's server (`iam.tokens`), or the beginning of one. Its id is not secret.
_TOKEN = r"(muster_[0-9a-hjkmnp-tv-z]{10}_)[0-9A-Za-z]{20,}"
_HEADER = r"(?i)(authorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic|token)\s+)[^\s'\"]+"
#: Values of a parameter: in quotes, or up to the next comma; a range; a distribution.
_ITEM = r'"(?:[^"]|"")*+"|[^\s,"][^,]*+'
_RANGE = r"[-+0-9.eE]+\.\.[-+0-9.eE]+"
_CHOICE = r"choice\(([^()]*)\)"
_DRAWN = r"(?:uniform|loguniform|int)\([^()]*\)"
# the user part of a web address may be a token; that of an ssh address is a name
_WEB = r"(?i)(?<![A-Za-z0-9])((?:git\+)?(?:https?|ftps?)://)[^/\s@]*(?:@[^/\s@]*)*@"
# the length of the scheme is limited, so that the time is linear in the length of a word
_OTHER = r"([A-Za-z][A-Za-z0-9+.-]{0,30}://[^/\s@:]*):[^/\s]*@"


def redacted(text: str, known: Sequence[str] = ()) -> str:
    """The text with secrets hidden: passwords in addresses, values in NAME=VALUE, JSON and headers,
    private keys, tokens of Muster, and the known values."""
    text = _without_tokens(text)
    text = re.sub(_TOKEN, rf"\1{HIDDEN}", text) if "muster_" in text else text
    text = without_known(text, known)
    text = without_credentials(text) if "@" in text else text
    text = _without_values(text, _GIVEN) if "=" in text else text
    if ":" in text:
        text = _without_values(_without_values(text, _QUOTED), _FIELD)
    if "PRIVATE KEY-----" in text:
        text = re.sub(_KEY, rf"\1{HIDDEN}\2", text, flags=re.DOTALL)
    return re.sub(_HEADER, rf"\1{HIDDEN}", text) if "uthorization" in text.lower() else text


def without_known(text: str, known: Iterable[str]) -> str:
    """The text with these values hidden."""
    for secret in known:
        text = text.replace(secret, HIDDEN) if secret else text
    return text


def secret_lines(values: Iterable[str]) -> list[str]:
    """What to hide of secret values in the output of programs: their lines, longer ones first.
    Shorter lines than `SHORTEST` characters would hide parts of other words."""
    lines = {line.strip() for value in values for line in value.splitlines()}
    return sorted(
        (line for line in lines if len(line) >= SHORTEST), key=lambda line: (-len(line), line)
    )


def without_lines(data: bytes, lines: Sequence[bytes]) -> bytes:
    """Output of a program with the lines of secrets hidden (`secret_lines`)."""
    for line in lines:
        if line in data:
            data = data.replace(line, HIDDEN.encode())
    return data


def has_secret(text: str) -> bool:
    """Whether a text contains a secret."""
    return redacted(text) != text


def without_credentials(address: str) -> str:
    """The text without user and password in web addresses, and without the password in others.

    Nothing replaces them, so that the addresses stay valid.
    """
    return re.sub(_OTHER, r"\1@", re.sub(_WEB, r"\1", address))


def hide(name: str, value: str) -> str:
    """The value, or HIDDEN if its name is that of a secret."""
    secret = names_secret(name) and not re.fullmatch(_GAP, value)
    return HIDDEN if value and secret else redacted(value)


def hidden_words(words: Sequence[str]) -> list[str]:
    """The words of a command, with the values of secret options hidden: `--token X`, `--token=X`.

    Also within a word that is a command line itself.
    """
    made: list[str] = []
    before = ""
    for word in map(_without_tokens, words):  # what is shown of it tells an option
        option = word.startswith("--") or re.fullmatch("-[A-Za-z]?", word)
        named = before.startswith("-") and not option and names_secret(before)
        made.append(hide(before, word) if named else redacted(_without_values(word, _OPTION)))
        before = word
    return made


def hidden(data: Any) -> Any:
    """Plain data with secrets hidden at any depth; the same object where there is none.

    Values of mappings and of Kubernetes' `{name, value}` are recognized by their names; commands
    are handled as by `hidden_words`, other text as by `redacted`.
    """
    if isinstance(data, str):
        return redacted(data)
    if isinstance(data, (dict, Mapping)):  # the usual case first, since the other takes longer
        changed = {
            key: shown
            for key, value in data.items()
            if value
            and type(value) not in HARMLESS
            and (shown := _hide_in(str(key), value)) is not value
            and shown != value
        }
        name, value = data.get("name"), data.get("value")
        texts = isinstance(name, str) and isinstance(value, str)
        if texts and (shown := hide(str(name), str(value))) != value:
            changed["value"] = shown
        return {**data, **changed} if changed else data
    if isinstance(data, (list, tuple)):
        if data and all(isinstance(item, str) for item in data):
            shown = hidden_words(data)
        else:
            shown = [hidden(item) for item in data]
        return data if all(map(is_, shown, data)) else shown
    return data


def print_traceback(error: BaseException | None = None) -> None:
    """Print the traceback of an exception, or the current one, on stderr, secrets hidden."""
    import sys
    import traceback

    lines = traceback.format_exc() if error is None else "".join(traceback.format_exception(error))
    sys.stderr.write(redacted(lines))
    sys.stderr.flush()


def _without_tokens(text: str) -> str:
    """The text with what is shown of encrypted strings in their place."""
    return re.sub(SEALED, "", text) if SEALED_MARK in text else text


def _hide_in(key: str, value: Any) -> Any:
    if key in ("env", "node_env") and isinstance(value, Mapping):
        return {name: _hide_by_name(str(name), text) for name, text in value.items()}
    if key == "secrets" and _has_only_texts(value):
        return {name: HIDDEN if text else text for name, text in value.items()}
    if key in ("grid", "parameters") and _has_only_texts(value):
        return {name: _hide_values(str(name), text) for name, text in value.items()}
    if key == "rows" and isinstance(value, str):
        return _hide_in_rows(value)
    return _hide_by_name(key, value)


def _has_only_texts(value: Any) -> bool:
    """Whether it can be the secrets of a spec, not their schema."""
    return isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())


def _hide_values(name: str, text: str) -> str:
    """The values of a parameter of an array as text (`spec.arrays.parse_values`), as many as
    before. Ranges and distributions of numbers remain."""
    if not names_secret(name):
        return redacted(text)
    if choice := re.fullmatch(_CHOICE, text.strip()):
        return f"choice({_hide_values(name, choice[1])})"
    if re.fullmatch(_DRAWN, text.strip()):
        return text
    return ",".join(
        item if re.fullmatch(_RANGE, item) else HIDDEN
        for item in map(str.strip, re.findall(_ITEM, _without_tokens(text)))
    )


def _hide_in_rows(text: str) -> str:
    """The parameter sets of an array as text (`spec.parameter_rows`), which can be read as before:
    each line is a JSON array of texts, the first one has their names."""
    text = _without_tokens(text)
    head, _, rest = text.partition("\n")
    if not any(names_secret(word) for word in head.split('"')) and redacted(text) == text:
        return text
    import json

    try:
        names, *rows = map(json.loads, [head, *rest.split("\n")])
        shown = [list(map(hide, names, row)) for row in rows]
    except (ValueError, TypeError, AttributeError):  # not in this form
        return HIDDEN
    return "\n".join(
        json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in (names, *shown)
    )


def _hide_by_name(name: str, value: Any) -> Any:
    return hide(name, value) if isinstance(value, str) else hidden(value)


@lru_cache(maxsize=1000)  # the fields of a spec are few, and looked up for each run that starts
def names_secret(name: str) -> bool:
    """Whether the value of a variable or field with this name is a secret."""
    upper = name.upper().replace("PATH", "")  # PAT is a stem
    if not any(stem in upper for stem in _STEMS):  # most have none: nothing to compile
        return False
    found = re.search(_WORD, name, re.IGNORECASE)
    return found is not None and not re.search(_ABOUT, name, re.IGNORECASE)


def _without_values(text: str, names: str) -> str:
    """names: an expression for a name (group 1) and the text between it and its value."""
    return "".join(_pieces(text, names))


def _pieces(text: str, names: str) -> Iterator[str]:
    done = 0
    for name in re.finditer(names, text):
        in_query = text[name.start() - 1 : name.start()] in ("?", "&")
        signed = in_query and name[1].lower() in _SIGNATURES
        if name.start() < done or not (signed or names_secret(name[1])):
            continue
        value = re.compile(_VALUE).match(text, name.end())
        if value is not None:
            yield text[done : name.end()]
            yield HIDDEN
            done = value.end()
    yield text[done:]
