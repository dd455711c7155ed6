"""What the source of a program says it will do, as far as one can see. Nothing is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast


def calls(source: str) -> list[tuple[str, int, frozenset[str]]]:
    """What is called: its last name, the line, and the names of its arguments. Nothing of what is
    not Python."""
    import ast

    return [
        (name, node.lineno, frozenset(word.arg for word in node.keywords if word.arg))
        for node in ast.walk(_tree(source))
        if isinstance(node, ast.Call) and (name := _name(node.func))
    ]


def imports(source: str, module: str) -> bool:
    """Whether it imports that module, or something of it, anywhere."""
    import ast

    for node in ast.walk(_tree(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        if any(name.partition(".")[0] == module for name in names):
            return True
    return False


def _tree(source: str) -> ast.Module:
    import ast

    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])  # whoever runs it will say so


def _name(function: ast.expr) -> str:
    import ast

    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
