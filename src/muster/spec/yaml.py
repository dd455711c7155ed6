"""YAML with line numbers, and without its traps: a key given twice is an error."""

from __future__ import annotations

from typing import Any

import yaml

from muster.errors import InvalidInput, Problem

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(text: str, source: str) -> tuple[Any, dict[str, int]]:
    """The data of one document, and the line of every path in it (`node_groups[0].env.A`).

    Raises InvalidInput.
    """
    loader = _Loader(text)
    lines: dict[str, int] = {}
    try:
        node = loader.get_single_node()
        if node is None:
            raise InvalidInput(Problem("", "the file is empty", "see docs/spec.md", source))
        _walk(node, "", lines, source)
        return loader.construct_document(node), lines
    except yaml.YAMLError as error:
        raise InvalidInput(_broken(error, source)) from None
    finally:
        loader.dispose()


def _walk(node: yaml.Node, path: str, lines: dict[str, int], source: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            line = key.start_mark.line + 1
            if inner in lines:
                text = f"given twice (first on line {lines[inner]})"
                raise InvalidInput(Problem(inner, text, "remove one", f"{source}:{line}"))
            lines[inner] = line
            _walk(value, inner, lines, source)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            _walk(value, f"{path}[{number}]", lines, source)


def _broken(error: yaml.YAMLError, source: str) -> Problem:
    mark = getattr(error, "problem_mark", None)
    place = f"{source}:{mark.line + 1}" if mark is not None else source
    what = getattr(error, "problem", None) or "it cannot be read"
    return Problem("", f"not valid YAML: {what}", "check indentation, colons and quotes", place)
