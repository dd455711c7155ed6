"""Values as Kubernetes expands them, where some differ from node to node.

Kubernetes: `$(NAME)` is the value of a variable defined before, `$$` a dollar sign; what is not
defined stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from muster.spec.placeholders import PLACEHOLDER
from muster.spec.wording import Refused, short

_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")


class Value(Struct, frozen=True):
    """A text; if per_node, with placeholders (`spec.placeholders`), else as it is."""

    text: str
    per_node: bool = False

    def fixed(self, facts: Mapping[str, str]) -> str | None:
        """The text, if it is the same on all nodes. facts: placeholders that are."""
        if not self.per_node:
            return self.text
        made = PLACEHOLDER.sub(lambda match: facts.get(match[1], match[0]), self.text)
        return None if PLACEHOLDER.search(made) else made


def expand(text: str, lookup: Callable[[str], Value | None]) -> Value:
    """`text` with its references filled in. Raises Refused where that would mix up the two kinds
    of placeholders.
    """
    pieces: list[Value] = []
    end = 0
    for match in _REFERENCE.finditer(text):
        pieces.append(Value(text[end : match.start()]))
        found = Value("$") if match[1] else lookup(match[2])
        pieces.append(Value(match[0]) if found is None else found)
        end = match.end()
    pieces.append(Value(text[end:]))
    if not any(piece.per_node for piece in pieces):
        return Value("".join(piece.text for piece in pieces))
    made = "".join(piece.text for piece in pieces)
    meant = sum(len(PLACEHOLDER.findall(p.text)) for p in pieces if p.per_node)
    if len(PLACEHOLDER.findall(made)) > meant:
        raise Refused(
            f"{short(text)} differs from pod to pod, and holds a ${{...}} Muster would fill in",
            "write the variable in capitals, or put the two into variables of their own",
        )
    return Value(made, per_node=True)


def references(text: str) -> list[str]:
    """The variables a text refers to."""
    return [match[2] for match in _REFERENCE.finditer(text) if match[1] is None]
