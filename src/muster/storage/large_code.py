"""The warning before a large folder is stored as code."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from muster.errors import LargeCode
from muster.spec.quantities import format_size

#: Code has less; a larger folder probably contains data, checkpoints or an environment.
LARGE = 100 << 20  # bytes
_PARTS = 3


def warn_if_large(folder: Path, files: Iterable[tuple[str, int]]) -> None:
    """Warn (LargeCode) before a folder is stored that has more than 100 MiB. files: the path and
    the bytes of each file."""
    if text := warning_for(str(folder), list(files)):
        warnings.warn(text, LargeCode, stacklevel=2)


def warning_for(folder: str, files: list[tuple[str, int]]) -> str:
    """The warning; "" for a folder that is not large."""
    total = sum(size for _, size in files)
    if total <= LARGE:
        return ""
    parts = Counter[str]()
    for name, size in files:
        top, below, _ = name.partition("/")
        parts[top + below] += size
    largest = ", ".join(f"{name} {format_size(size)}" for name, size in parts.most_common(_PARTS))
    return (
        f"storing {format_size(total)} of code from {folder}: {largest}; name what is not code in "
        f"{folder}/.musterignore, or mount it"
    )
