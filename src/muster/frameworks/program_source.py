"""Calls and imports in the source of a Python program, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast


def calls(source: str) -> list[tuple[str, int, frozenset[str]]]:
    """Calls in the source: last name of the function, line, names of keyword arguments. Empty if
    the source is not Python."""
    import ast

    return [
        (name, node.lineno, frozenset(word.arg for word in node.keywords if word.arg))
        for node in ast.walk(_tree(source))
        if isinstance(node, ast.Call) and (name := _name(node.func))
    ]


def imports(source: str, module: str) -> bool:
    """Whether the source imports the module or something from it."""
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
        return ast.Module([], [])  # reported when the program runs


def _name(function: ast.expr) -> str:
    import ast

    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
