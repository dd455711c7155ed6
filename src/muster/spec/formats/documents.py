"""A file of several YAML documents, each with the lines of its paths; and what was forgotten in
it: templates nobody rendered, `<placeholders>` nobody filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.spec.places import Lines
from muster.spec.wording import short
from muster.spec.yaml import load

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEMPLATE = re.compile(r"\{\{|\{%")
#: In programs, braces may be the program's own.
_HELM = re.compile(r"\{\{-?\s*(\.(Values|Release|Chart|Files|Capabilities)\b|include\b|template\b)")
_PROGRAM = re.compile(r".*\.(command|args|env)(\[\d+\])?(\.value)?")
#: Its values become text for a program wherever they stand; Kubernetes' are of strict types.
_ADS = re.compile(r"""^[ \t]*["']?kind["']?[ \t]*:[ \t]*["']?(distributed|job)\b""", re.MULTILINE)
_ITEM = re.compile(r"items\[(\d{1,9})\](?:\.(.*)|)", re.DOTALL)
_FORGOTTEN = re.compile(r"<[A-Za-z][^<>\n]*>")
#: Fields that name something which is looked for: there, a part of the text may be a placeholder.
_PLACE = re.compile(
    r"\.(image|entryPoint|uri|url|scriptPathURI|notebookPathURI|source|pipRequirements)$"
)
_RENDER = "render it first: `helm template`, `kustomize build` or whatever fills it in"


class Document(Struct, frozen=True):
    """One document: its data, and the line of every path."""

    data: Any
    lines: Lines
    source: str

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.source}:{self.lines.get('', 1)}"


def documents(text: str, source: str) -> list[Document]:
    """The documents of a file, less the empty ones. Raises InvalidInput."""
    try:
        # libyaml does not tell templates from broken YAML, but a template is what it is then
        parts = [_document(part, source, above) for above, part in _parts(text, source)]
    except InvalidInput:
        for number, line in enumerate(text.splitlines(), 1):
            if _TEMPLATE.search(line):
                what = f"a template that was not rendered: {short(line.strip())}"
                raise InvalidInput(Problem("", what, _RENDER, f"{source}:{number}")) from None
        raise
    return [part for part in parts if part.data is not None]


def objects(document: Document) -> Iterator[Document]:
    """What a document holds: itself, or the items of a `List`, as kubectl writes and reads them."""
    data = document.data
    kind = str(data.get("kind", "")) if isinstance(data, Mapping) else ""
    items = data.get("items") if kind.endswith("List") else None
    if not isinstance(items, list):
        yield document
        return
    lines: list[dict[str, int]] = [{} for _ in items]
    for path, line in document.lines.items():
        match = _ITEM.fullmatch(path)
        if match is not None and int(match[1]) < len(items):
            lines[int(match[1])][match[2] or ""] = line
    for item, own in zip(items, lines, strict=True):
        yield from objects(Document(item, own, document.source))


def _document(text: str, source: str, above: int) -> Document:
    data, lines = load(text, source, typed=not _ADS.search(text), above=above)
    return Document(data, lines, source)


def _parts(text: str, source: str) -> Iterator[tuple[int, str]]:
    """Each document, and the number of lines above it."""
    rows = text.splitlines(keepends=True)
    starts: list[int] = []
    try:
        starts += [
            event.start_mark.line
            for event in yaml.parse(text, Loader=_Loader)
            if isinstance(event, yaml.DocumentStartEvent) and event.start_mark is not None
        ]
    except yaml.YAMLError:
        load(text, source)  # says what is wrong in its own words
        raise
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        part = "".join(rows[start:end])
        if _holds_something(part):
            yield start, part


def _holds_something(part: str) -> bool:
    return any(
        (line.strip() and not line.lstrip().startswith(("#", "---", "...")))
        or line.startswith("--- ")
        for line in part.splitlines()
    )


def is_placeholder(text: str) -> bool:
    """Whether there is something in it that nobody has filled in, such as `<bucket>`."""
    return _FORGOTTEN.search(text) is not None


def forgotten(data: Any, path: str = "") -> Iterator[Problem]:
    """Templates and placeholders that are left in values."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key == "image" and "in-place-restart-agent" in str(data.get("name")):
                continue  # the agent is not run, so nobody needs its image
            yield from forgotten(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from forgotten(value, f"{path}[{number}]")
    elif isinstance(data, str):
        yield from _forgotten(data, path)


def _forgotten(text: str, path: str) -> Iterator[Problem]:
    template = _HELM if _PROGRAM.fullmatch(path) else _TEMPLATE
    if template.search(text):
        yield Problem(path, f"a template that was not rendered: {short(text)}", _RENDER)
    elif _FORGOTTEN.fullmatch(text) or (_PLACE.search(path) and _FORGOTTEN.search(text)):
        yield Problem(path, f"{short(text)} was not filled in", "write what belongs there")
