"""The `${...}` that owners may write into what differs from node to node.

Dollar signs right before a `{` count in pairs: two of them are one, so `$${rank}` is the text
`${rank}`, and `$$${rank}` a dollar sign before the rank. Everywhere else they are what they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

#: All dollar signs before a `{`, and what may be a name. `${HOME}` and the like are no
#: placeholders: they are left to whoever reads the text.
_DOLLARS = re.compile(r"(?<!\$)(\$++)(?=\{)(\{[a-z0-9_.-]+\})?")
#: Dollar signs that would not stay what they are.
_MISTAKEN = re.compile(r"(?<!\$)(?:\$\$++(?=\{)|\$(?=\{[a-z0-9_.-]+\}))")

#: What a host name may hold: known before there is a node, and the same in every attempt.
IN_HOSTNAME = ("rank", "group", "replica", "index", "run.name", "run.replica")
#: What a variable of `node_env`, or a word of `node_args`, may hold.
IN_ENV = (*IN_HOSTNAME, "attempt", "run.restarts", "run.id", "address", "hostname")

DEFAULT_HOSTNAME = "node-${rank}"


def fill(template: str, value: Callable[[str], object]) -> str:
    """`template` with each placeholder replaced by the value of its name."""
    return "".join([text if name is None else str(value(name)) for text, name in _parts(template)])


@lru_cache(maxsize=64)
def _parts(template: str) -> tuple[tuple[str, str | None], ...]:
    """One template is filled in for every node."""
    return tuple(pieces(template))


def pieces(template: str) -> Iterator[tuple[str, str | None]]:
    """A template in parts: (a text as it will be, None), or (a placeholder, its name)."""
    text, end = "", 0
    for match in _DOLLARS.finditer(template):
        pairs, single = divmod(len(match[1]), 2)
        text += template[end : match.start()] + "$" * pairs
        end = match.end(1) - single
        if not (single and match[2]):
            continue
        end = match.end()
        if text:
            yield text, None
        yield f"${match[2]}", match[2][1:-1]
        text = ""
    if text or end < len(template):
        yield text + template[end:], None


def placeholders(template: str) -> list[str]:
    """The names of its placeholders, each once."""
    return list(dict.fromkeys(name for _, name in pieces(template) if name is not None))


def literal(text: str) -> str:
    """The template for a text that may look like one."""
    return _MISTAKEN.sub(lambda match: match[0] * 2, text)


def joined(parts: Iterable[tuple[str, str | None]]) -> str:
    """The template of such parts; what `pieces` takes apart."""
    made = text = ""
    for part, name in parts:
        if name is None:
            text += part
            continue
        dollars = len(text) - len(text.rstrip("$"))
        made += literal(text) + "$" * dollars + part
        text = ""
    return made + literal(text)


def unknown_placeholders(text: str, known: tuple[str, ...]) -> Iterator[str]:
    """Names in `text` that are not among those known."""
    return (name for name in placeholders(text) if name not in known)


def expand_hostname(template: str, facts: Mapping[str, object]) -> str:
    """The host name of a node. facts: a value for each of `IN_HOSTNAME`; the group's name may be
    one that no host can have."""
    return fill(template, {**facts, "group": as_label(str(facts["group"]))}.__getitem__)


def as_label(name: str) -> str:
    """The name of a run or a group as a part of a host name (RFC 1123: lower-case letters, digits
    and -)."""
    return re.sub(r"[^a-z0-9-]", "-", name.lower())
