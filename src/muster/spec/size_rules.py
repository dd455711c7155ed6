"""How much of everything there may be: what the kernel takes, and what nobody means. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.errors import Problem
from muster.spec.models import JobSpec, NodeGroup

#: Groups of one job: more is a mistake of whatever wrote the file.
MAX_GROUPS = 1_000
#: Bytes of one word of a command line (Linux: MAX_ARG_STRLEN, less the NUL at its end).
MAX_WORD = 131_071
#: Bytes of a command line. Linux: 2 MiB with the environment, and with a pointer for every word.
MAX_WORDS = 1_500_000
_POINTER = 8


def too_many_groups(spec: JobSpec) -> list[Problem]:
    """With so many, nothing else is worth looking for."""
    count = len(spec.node_groups)
    if count <= MAX_GROUPS:
        return []
    hint = "groups that are alike can be one, with replicas"
    return [Problem("node_groups", f"{count:,} groups, {MAX_GROUPS:,} are allowed", hint)]


def too_long_commands(spec: JobSpec) -> Iterator[Problem]:
    """Command lines that no kernel starts."""
    yield from _level("", spec, ("command", "args"))
    for number, group in enumerate(spec.node_groups):
        yield from _level(f"node_groups[{number}].", group, ("command", "args", "node_args"))


def _level(prefix: str, level: JobSpec | NodeGroup, names: Sequence[str]) -> Iterator[Problem]:
    total = 0
    for name in names:
        words: Sequence[str] = getattr(level, name) or ()
        sizes = [len(word.encode()) for word in words]
        total += sum(sizes) + (1 + _POINTER) * len(sizes)
        for number, size in enumerate(sizes):
            if size > MAX_WORD:
                text = f"{size:,} bytes in one word, {MAX_WORD:,} are allowed"
                yield Problem(f"{prefix}{name}[{number}]", text, "put it into a file")
    if total > MAX_WORDS:
        text = f"{total:,} bytes in the words of a command, {MAX_WORDS:,} are allowed"
        yield Problem(f"{prefix}args", text, "put them into a file")
