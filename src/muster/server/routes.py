"""Find the route of a request by its verb and path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar
from urllib.parse import unquote

from muster.errors import MusterError, NotFound, Problem

T = TypeVar("T")


class WrongVerb(MusterError):  # noqa: N818
    """The path exists, but not for this verb."""

    def __init__(self, verb: str, allowed: Iterable[str]) -> None:
        self.allowed = tuple(sorted(allowed))
        super().__init__(f"{verb} is not possible here (use {' or '.join(self.allowed)})")


class _Node(Generic[T]):
    def __init__(self) -> None:
        self.words: dict[str, _Node[T]] = {}
        self.parameter: tuple[str, _Node[T]] | None = None
        #: Takes all words that are left.
        self.rest: _Node[T] | None = None
        #: Verb -> template, target, names of the parameters.
        self.targets: dict[str, tuple[str, T, tuple[str, ...]]] = {}


class Routes(Generic[T]):
    """Targets by verb and path template, such as `/runs/{run_id}/events`. A word takes precedence
    over a parameter at the same place. `{name...}` at the end takes the rest of the path, with its
    slashes."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        #: Each route: verb, template, target.
        self.all: list[tuple[str, str, T]] = []

    def add(self, verb: str, template: str, target: T) -> None:
        """Add a route. Raises ValueError if there is one with this verb and path."""
        node, names = self._root, []
        for word in template.strip("/").split("/"):
            if not word.startswith("{"):
                node = node.words.setdefault(word, _Node())
                continue
            names.append(word[1:-1].removesuffix("..."))
            if word.endswith("...}"):
                node.rest = node.rest or _Node()
                node = node.rest
                continue
            if node.parameter is None:
                node.parameter = (word[1:-1], _Node())
            node = node.parameter[1]
        if verb in node.targets:
            raise ValueError(f"two routes for {verb} {template}")
        node.targets[verb] = (template, target, tuple(names))
        self.all.append((verb, template, target))

    def find(self, verb: str, path: str) -> tuple[str, T, Mapping[str, str]]:
        """The template and the target of a request, and the parameters in its path. path: as in the
        URL, still encoded: a value may contain an encoded slash. Raises NotFound, WrongVerb."""
        words = path.lstrip("/").split("/")
        node = _walk(self._root, words, 0)
        if node is None or not node[0].targets:
            hint = "GET /v1/openapi.json lists all paths"
            raise NotFound(Problem("", f"there is no path {path[:500]}", hint))
        found, values = node
        if verb not in found.targets:
            raise WrongVerb(verb, found.targets)
        template, target, names = found.targets[verb]
        return template, target, dict(zip(names, values, strict=True))


def _walk(node: _Node[T], words: list[str], at: int) -> tuple[_Node[T], tuple[str, ...]] | None:
    ends = at == len(words) or words[at:] == [""]  # a slash at the end is as good as none
    if ends and node.targets:
        return node, ()
    if at == len(words):
        return None
    known = node.words.get(words[at])
    if known is not None and (found := _walk(known, words, at + 1)) is not None:
        return found
    if node.parameter is not None and words[at]:
        below = _walk(node.parameter[1], words, at + 1)
        if below is not None:
            return below[0], (unquote(words[at]), *below[1])
    return None if node.rest is None else (node.rest, (unquote("/".join(words[at:])),))
