"""The `${...}` that owners may write into what differs from node to node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

#: `${HOME}` and the like are no placeholders: they are left to whoever reads the text.
PLACEHOLDER = re.compile(r"\$\{([a-z0-9_.-]+)\}")

#: What a host name may hold: known before there is a node, and the same in every attempt.
IN_HOSTNAME = ("rank", "group", "replica", "index", "run.name")
#: What a variable of `node_env` may hold.
IN_ENV = (*IN_HOSTNAME, "attempt", "run.id", "address", "hostname")

DEFAULT_HOSTNAME = "node-${rank}"


def unknown_placeholders(text: str, known: tuple[str, ...]) -> Iterator[str]:
    """Names in `text` that are not among those known."""
    for name in dict.fromkeys(PLACEHOLDER.findall(text)):
        if name not in known:
            yield name


def expand_hostname(template: str, facts: Mapping[str, object]) -> str:
    """The host name of a node. facts: a value for each of `IN_HOSTNAME`."""
    return PLACEHOLDER.sub(lambda match: str(facts[match[1]]), template)


def as_label(name: str) -> str:
    """A run's name as a part of a host name (RFC 1123: lower-case letters, digits and -)."""
    return re.sub(r"[^a-z0-9-]", "-", name.lower())
