"""Read files of several YAML documents, with the line of every path.

Also finds templates that were not rendered and `<placeholders>` that were not filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from msgspec import Struct, field

from muster.errors import InvalidInput, Problem
from muster.spec.models import JobSpec
from muster.spec.problem_places import Lines, Origins
from muster.spec.reader import ADS_KINDS
from muster.spec.wording import short
from muster.spec.yaml import load

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEMPLATE = re.compile(r"\{\{|\{%")
#: Only Helm's own templates: in a program, braces may have another meaning.
_HELM = re.compile(r"\{\{-?\s*(\.(Values|Release|Chart|Files|Capabilities)\b|include\b|template\b)")
_PROGRAM = re.compile(r".*\.(command|args|env)(\[\d+\])?(\.value)?")
#: ADS's YAML: scalars are read as text, since they are passed to programs. Kubernetes' are typed.
_ADS = re.compile(
    rf"""^[ \t]*["']?kind["']?[ \t]*:[ \t]*["']?({"|".join(ADS_KINDS)})\b""", re.MULTILINE
)
_ITEM = re.compile(r"items\[(\d{1,9})\](?:\.(.*)|)", re.DOTALL)
_UNFILLED = re.compile(r"<[A-Za-z][^<>\n]*>")
#: Fields that name files, images or URLs, in which a part of the text may be a placeholder.
_PLACE = re.compile(
    r"\.(image|entryPoint|uri|url|scriptPathURI|notebookPathURI|source|pipRequirements)$"
)
_RENDER = "render it first: `helm template`, `kustomize build` or the tool that fills it in"


class Document(Struct, frozen=True):
    """One document of a file."""

    data: Any
    #: Path -> line.
    lines: Lines
    #: The file's name in messages.
    source: str

    @property
    def place(self) -> str:
        """The file and the line where the document starts."""
        return f"{self.source}:{self.lines.get('', 1)}"


class Manifest(Struct, frozen=True):
    """The job that was read from a document."""

    spec: JobSpec
    #: Where Muster deviates from the document, for the user.
    notes: tuple[str, ...]
    #: The file and line of the document.
    place: str
    #: What the spec does not keep of the document, because it has no effect on a run.
    lost: tuple[str, ...] = ()
    #: The file's name in messages.
    source: str = ""
    #: Path in the document -> line.
    lines: Lines = field(default_factory=dict)
    #: Path in the spec -> place in the document.
    origins: Origins = field(default_factory=dict)


def documents(text: str, source: str) -> list[Document]:
    """The documents of a file that are not empty. Raises InvalidInput."""
    try:
        # to libyaml, a template is broken YAML
        parts = [_document(part, source, above) for above, part in _parts(text, source)]
    except InvalidInput:
        for number, line in enumerate(text.splitlines(), 1):
            if _TEMPLATE.search(line):
                what = f"a template that was not rendered: {short(line.strip())}"
                raise InvalidInput(Problem("", what, _RENDER, f"{source}:{number}")) from None
        raise
    return [part for part in parts if part.data is not None]


def objects(document: Document) -> Iterator[Document]:
    """The objects of a document: the items of a `List`, as kubectl writes it, or the document."""
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
    """The text of each document, with the number of lines before it."""
    rows = text.splitlines(keepends=True)
    starts: list[int] = []
    try:
        starts += [
            event.start_mark.line
            for event in yaml.parse(text, Loader=_Loader)
            if isinstance(event, yaml.DocumentStartEvent) and event.start_mark is not None
        ]
    except yaml.YAMLError:
        load(text, source)  # raises a better message
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
    """Whether the text has a placeholder that was not filled in, such as `<bucket>`."""
    return _UNFILLED.search(text) is not None


def unfilled_placeholders(data: Any, path: str = "") -> Iterator[Problem]:
    """A problem for each template or placeholder that is left in a value."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key == "image" and "in-place-restart-agent" in str(data.get("name")):
                continue  # the agent is not run, so its image is not needed
            yield from unfilled_placeholders(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from unfilled_placeholders(value, f"{path}[{number}]")
    elif isinstance(data, str):
        yield from _unfilled_in_text(data, path)


def _unfilled_in_text(text: str, path: str) -> Iterator[Problem]:
    template = _HELM if _PROGRAM.fullmatch(path) else _TEMPLATE
    if template.search(text):
        yield Problem(path, f"a template that was not rendered: {short(text)}", _RENDER)
    elif _UNFILLED.fullmatch(text) or (_PLACE.search(path) and _UNFILLED.search(text)):
        yield Problem(path, f"{short(text)} was not filled in", "write what belongs there")
