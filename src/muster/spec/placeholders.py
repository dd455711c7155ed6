"""Placeholders (`${...}`) in settings that differ from node to node.

Before a `{`, two dollar signs stand for one: `$${rank}` is the text `${rank}`, and `$$${rank}` is
a dollar sign followed by the rank. Elsewhere, dollar signs are plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

#: All dollar signs before a `{`, and a possible name. `${HOME}` and the like are not placeholders;
#: they are left to the program.
_DOLLARS = re.compile(
    r"(?<!\$)(\$++)(?=\{)(\{(?:[a-z0-9_.-]+|(?:param|secret)\.[\w.-]+)\})?", re.ASCII
)
#: Dollar signs that are not read as plain text.
_MISTAKEN = re.compile(
    r"(?<!\$)(?:\$\$++(?=\{)|\$(?=\{(?:[a-z0-9_.-]+|(?:param|secret)\.[\w.-]+)\}))", re.ASCII
)
#: All dollar signs before the placeholder of a parameter, and the parameter's name.
_PARAMETER = re.compile(r"(?<!\$)(\$++)\{param\.([\w.-]+)\}", re.ASCII)
#: The same, also without a name.
_ANY_PARAMETER = re.compile(_PARAMETER.pattern.replace("+)\\}", "*)\\}"), re.ASCII)

#: Placeholders of host names: known before a node starts, and the same in each attempt.
IN_HOSTNAME = ("rank", "group", "replica", "index", "run.name", "run.replica")
#: Placeholders of `node_env` and `node_args`.
IN_ENV = (*IN_HOSTNAME, "attempt", "run.restarts", "run.id", "address", "hostname")

#: Start of the placeholders of an array's parameters: `${param.NAME}`.
OF_PARAMETER = "param."
#: Start of the placeholders of the job's secrets: `${secret.NAME}`.
OF_SECRET = "secret."

DEFAULT_HOSTNAME = "node-${rank}"


def fill(template: str, value: Callable[[str], object]) -> str:
    """`template` with each placeholder replaced by the value of its name."""
    if "${" not in template:
        return template
    return "".join([text if name is None else str(value(name)) for text, name in _parts(template)])


@lru_cache(maxsize=64)
def _parts(template: str) -> tuple[tuple[str, str | None], ...]:
    """The parts of a template, cached: the same template is filled for every node."""
    return tuple(pieces(template))


def pieces(template: str) -> Iterator[tuple[str, str | None]]:
    """The parts of a template: (text, None) or (placeholder, its name)."""
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
    """The names of the placeholders in a template, each once."""
    return list(dict.fromkeys(name for _, name in pieces(template) if name is not None))


def parameters_in(text: str) -> list[str]:
    """The names of the parameters whose placeholders are in a text."""
    if "{param." not in text:
        return []
    return [match[2] for match in _ANY_PARAMETER.finditer(text) if len(match[1]) % 2]


def fill_parameters(text: str, value: Callable[[str], str]) -> str:
    """`text` with the placeholders of parameters replaced; everything else stays, also other
    placeholders. Before one of them, two dollar signs stand for one."""

    def filled(match: re.Match[str]) -> str:
        pairs, single = divmod(len(match[1]), 2)
        rest = value(match[2]) if single else match[0][len(match[1]) :]
        return "$" * pairs + rest

    return _PARAMETER.sub(filled, text) if "{param." in text else text


def literal(text: str) -> str:
    """The template that stands for exactly this text."""
    return _MISTAKEN.sub(lambda match: match[0] * 2, text)


def joined(parts: Iterable[tuple[str, str | None]]) -> str:
    """The template of these parts: the inverse of `pieces`."""
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
    """Names of placeholders in `text` that are not known."""
    return (name for name in placeholders(text) if name not in known)


def expand_hostname(template: str, facts: Mapping[str, object]) -> str:
    """The host name of a node. facts: a value for each of `IN_HOSTNAME`; the group's name is
    converted to a label."""
    return fill(template, {**facts, "group": as_label(str(facts["group"]))}.__getitem__)


def as_label(name: str) -> str:
    """The name of a run or group as a label of a host name (RFC 1123: lower-case letters, digits
    and -)."""
    return re.sub(r"[^a-z0-9-]", "-", name.lower())
