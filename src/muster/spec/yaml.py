"""Load YAML with line numbers and without its pitfalls.

Duplicate keys are errors. Keys are text, even `NO` or `1`. Text for programs (env, args, command,
tags) is kept as written: 010 is not 8 and 1.10 is not 1.1. Nesting and aliases are limited, so
that no file takes unlimited time or memory.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from muster.errors import InvalidInput, Problem
from muster.spec.wording import short

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML = "tag:yaml.org,2002:"
_TEXT_TAG = f"{_YAML}str"
_GUESSED_TAGS = {f"{_YAML}{kind}" for kind in ("bool", "int", "float", "timestamp", "value")}
#: Types that JSON does not have; their values are text as written.
_TEXTS = {f"{_YAML}{kind}" for kind in ("timestamp", "value")}
#: Tags that a scalar may have. `merge` is the key <<.
_SCALARS = {f"{_YAML}{kind}" for kind in ("bool", "int", "float", "null", "merge")}
_WHOLE = f"{_YAML}int"
_NUMBERS = {_WHOLE, f"{_YAML}float"}
_NOTHING = f"{_YAML}null"
_COLLECTIONS: dict[type[yaml.Node], str] = {
    yaml.MappingNode: f"{_YAML}map",
    yaml.SequenceNode: f"{_YAML}seq",
}
_VERBATIM = re.compile(
    r"(.*\.)?(slurm\.time|(env|tags|labels|annotations)\.[^\n]+|(args|command|exec)(\[\d+\])?"
    r"|array(\.rows)?\[\d+\]\.[^\n]+|array\.(?!sample(_seed)?$)[^\n]+)"
)
#: In YAML 1.1, 1:30 is the number 90; in Kubernetes and elsewhere it is text.
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")

#: A spec needs six levels. libyaml overflows the stack beyond 10,000, or from 0.2.6 on has a bound.
MAX_DEPTH = 50
_TOO_DEEP_FOR_LIBYAML = "exceeded maximum nesting depth"
#: Maximum characters of a number: no field needs more, and conversion takes time.
MAX_DIGITS = 40
#: Maximum number of values, with aliases expanded. A large spec has some thousands.
MAX_VALUES = 100_000
#: Maximum characters of the paths of all values.
MAX_PATHS = 32 * 2**20
_TOO_MANY = f"more than {MAX_VALUES:,} values"

#: Part of PyYAML's message -> hint.
_HINTS = {
    "mapping values are not allowed": 'put text that holds ": " in quotes',
    "could not find expected ':'": "is there a colon and a space after the name?",
    "a tab": "indent with spaces",
    "unexpected end of stream": "a quote that is opened here is never closed",
    "found another document": "one file holds one job; remove the --- between",
    "undefined alias": "a text that starts with * needs quotes",
    "cannot start any token": "text that starts with @, ` or % needs quotes",
    "unhashable key": "a name cannot be a list or a mapping",
}


_TAG_HINT = "leave it out; a text that starts with ! needs quotes"


def load(
    text: str, source: str, root: str = "", *, typed: bool = False, above: int = 0
) -> tuple[Any, dict[str, int]]:
    """The data of one document, and the line of every path in it (`node_groups[0].env.A`).

    root: path of the document itself. typed: read numbers as numbers everywhere, as Kubernetes
    does. above: lines of the file before the text. Raises InvalidInput.
    """
    loader = None
    try:
        _check_bounds(text, source, above)
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise InvalidInput(
                Problem("", "the file is empty", "`muster schema` prints the fields", source)
            )
        walk = _Walk(source, loader, typed=typed, above=above)
        walk.visit(node, root)
        if walk.problems:
            raise InvalidInput(*walk.problems)
        return loader.construct_document(node), walk.lines
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise InvalidInput(_syntax_problem(error, text, source, above)) from None
    finally:
        if loader is not None:
            loader.dispose()


def _check_bounds(text: str, source: str, above: int) -> None:
    depth = seen = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        seen += isinstance(event, yaml.NodeEvent)
        if seen > 2 * MAX_VALUES:  # at most half of them are keys
            raise InvalidInput(Problem("", _TOO_MANY, "", f"{source}:{above + _line(event)}"))
        if depth > MAX_DEPTH:
            raise InvalidInput(_too_deep(f"{source}:{above + _line(event)}"))


def _too_deep(place: str) -> Problem:
    message = f"nested more than {MAX_DEPTH} levels deep"
    return Problem("", message, "is a bracket not closed?", place)


class _Walk:
    """Records the line of every path and decides which plain values are text."""

    def __init__(self, source: str, loader: Any, *, typed: bool, above: int) -> None:
        self._loader = loader
        self._typed = typed
        self._above = above
        self.lines: dict[str, int] = {}
        self.problems: list[Problem] = []
        self._source = source
        self._open: set[int] = set()
        self._seen = self._length = 0

    def visit(self, node: yaml.Node, path: str) -> None:
        self._seen += 1
        if id(node) in self._open or self._seen > MAX_VALUES:
            endless = id(node) in self._open
            what = "an alias that contains itself" if endless else _TOO_MANY
            hint = "write it without & and *" if endless else "do aliases contain aliases?"
            raise InvalidInput(Problem(path, what, hint, self._place(node)))
        self._length += len(path)
        if self._length > MAX_PATHS:
            text = f"names in {short(path)} are too long"
            raise InvalidInput(Problem("", text, "shorten them", self._place(node)))
        if len(self._open) > MAX_DEPTH:  # through aliases
            raise InvalidInput(_too_deep(self._place(node)))
        self.lines.setdefault(path, self._line(node))
        self._open.add(id(node))
        self._check_tag(node, path)
        if isinstance(node, yaml.MappingNode):
            self._mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                self.visit(value, f"{path}[{number}]")
        elif self._as_text(node, path):
            _keep_as_written(node)
        self._open.remove(id(node))

    def _mapping(self, node: yaml.MappingNode, path: str) -> None:
        first: dict[str, int] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                self._check_tag(key, path)
                key.tag = _TEXT_TAG if key.tag == _NOTHING else key.tag
                _keep_as_written(key)
            name, line = str(key.value), self._line(key)
            inner = f"{path}.{name}" if path else name
            if name in first:
                text = f"given twice, first on line {first[name]}"
                self.problems.append(Problem(inner, text, "remove one", self._place(key)))
            first.setdefault(name, line)
            self.lines[inner] = line
            self.visit(value, inner)

    def _as_text(self, node: yaml.Node, path: str) -> bool:
        if node.tag in _TEXTS:
            return True
        known = (
            _SEXAGESIMAL.fullmatch(str(node.value)) if self._typed else _VERBATIM.fullmatch(path)
        )
        return known is not None

    def _check_tag(self, node: yaml.Node, path: str) -> None:
        """Check that an explicit tag agrees with the value."""
        if node.tag in (_TEXT_TAG, *_TEXTS) and isinstance(node, yaml.ScalarNode):
            return
        if isinstance(node, yaml.ScalarNode):
            # the type without the tag; !!int x is refused, !!str 1 is not
            plain = self._loader.resolve(yaml.ScalarNode, node.value, (True, False))
            number = node.tag in _NUMBERS
            if number and plain in _NUMBERS and len(node.value) > MAX_DIGITS:
                text = f"{short(node.value)} is too long for a number"
                self._problem(node, path, text, "put it in quotes, if it is text")
                return
            same = plain in (node.tag, _WHOLE if number else node.tag)
            known = node.tag in _SCALARS and same
        else:
            known = node.tag == _COLLECTIONS[type(node)]
        if not known:
            tag = node.tag.replace(_YAML, "!!")
            self._problem(node, path, f"the tag {tag} is not supported here", _TAG_HINT)

    def _problem(self, node: yaml.Node, path: str, text: str, hint: str) -> None:
        self.problems.append(Problem(path, text, hint, self._place(node)))

    def _place(self, node: yaml.Node) -> str:
        return f"{self._source}:{self._line(node)}"

    def _line(self, node: yaml.Node) -> int:
        return self._above + _line(node)


def _line(node: yaml.Node | yaml.Event) -> int:
    return node.start_mark.line + 1 if node.start_mark is not None else 1


def _keep_as_written(node: yaml.Node) -> None:
    if node.tag in _GUESSED_TAGS:
        node.tag = _TEXT_TAG


def _syntax_problem(error: Exception, text: str, source: str, above: int) -> Problem:
    kind = "JSON" if source.endswith(".json") else "YAML"
    if isinstance(error, yaml.reader.ReaderError):
        what = f"contains the character {short(chr(error.character))}, which {kind} does not allow"
        return Problem("", what, "remove it", source)
    what = getattr(error, "problem", None) or str(error)
    mark = getattr(error, "problem_mark", None)
    if what == _TOO_DEEP_FOR_LIBYAML:
        line = mark.line + 1 if mark is not None else 1
        return _too_deep(f"{source}:{above + line}")
    if "end of stream" in what:
        # the place where a quote or bracket was opened is more useful than the file's end
        mark = getattr(error, "context_mark", None) or mark
    place = source
    if mark is not None:
        lines = text.splitlines()
        number = max(min(mark.line, len(lines) - 1), 0)
        place = f"{source}:{above + number + 1}"
        if "".join(lines[number : number + 1])[mark.column : mark.column + 1] == "\t":
            what = "a tab where spaces are needed"
    usual = "commas, brackets" if kind == "JSON" else "indentation, colons"
    hints = (hint for sign, hint in _HINTS.items() if sign in what)
    hint = next(hints, f"check {usual} and quotes")
    return Problem("", f"not valid {kind}: {what}", hint, place)
