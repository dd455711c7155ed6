"""The profile of an engine `slurm` (`engines.profiles`): defaults for jobs, and where files are.

It may be absent: then the defaults of the cluster apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from muster.engines.slurm.options import NAMES, option_problems, unknown_names
from muster.errors import InvalidInput, Problem
from muster.spec.wording import say


class SlurmProfile(Struct, frozen=True):
    """The settings of an engine `slurm`."""

    #: See `options`.
    options: Mapping[str, Any] = {}
    #: A folder on a file system that all nodes share. None: one below MUSTER_HOME.
    folder: str | None = None
    #: Where nodes have their own files, on each of them. None: below `folder`.
    scratch: str | None = None
    #: The Python of nodes, a path there. None: the one that runs `python` jobs here.
    python: str | None = None
    #: The address of this machine that nodes reach. None: found by the route to them.
    listen: str | None = None


_PATHS = {"folder": ("/",), "scratch": ("/",), "python": ("/",)}
_KEYS = (*_PATHS, "listen")


def read_settings(table: Mapping[str, Any]) -> SlurmProfile:
    """The profile with these settings, as TOML has them. Raises InvalidInput with every problem;
    their paths are keys."""
    if problems := list(_problems(table)):
        raise InvalidInput(*problems)
    options = {name: table[name] for name in NAMES if name in table}
    return SlurmProfile(options, **{key: table[key] for key in _KEYS if key in table})


def _problems(table: Mapping[str, Any]) -> Iterator[Problem]:
    yield from unknown_names(table, _KEYS)
    yield from option_problems(table)
    for key in _PATHS:
        path = table.get(key, "/")
        if not isinstance(path, str) or not path.startswith("/") or not path.isprintable():
            yield Problem(key, f"must be a path from /, not {say(path)}")
        elif '"' in path:
            yield Problem(key, "must have no quotes")
    listen = table.get("listen", "x")
    if not isinstance(listen, str) or not listen or not listen.isprintable():
        yield Problem("listen", f"must be an address of this machine, not {say(listen)}")
