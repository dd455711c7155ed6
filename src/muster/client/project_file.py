"""The file `muster.toml` of a project: what its jobs use unless they say otherwise.

    engine = "cluster"    # the name of an engine that was added: `muster engines list`

The nearest one counts, in the current directory or above it. So a job file that says nothing of an
engine runs where its user has one, under the name that the project's people agree upon.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from muster.errors import InvalidInput, Problem

NAME = "muster.toml"
_KEYS = ("engine",)


class Project(Struct, frozen=True):
    """What the file says."""

    file: Path
    #: The name of an engine; None: the file does not say.
    engine: str | None = None


def find_project(folder: Path) -> Project | None:
    """The project of a folder; None if there is no file. Raises InvalidInput with every problem."""
    file = next(
        (one for above in (folder, *folder.parents) if (one := above / NAME).exists()), None
    )
    if file is None:
        return None
    from muster.spec.toml_file import read_toml, unknown_setting  # few folders have the file

    found = read_toml(file)
    if found is None:  # it was removed meanwhile
        return None
    problems = [unknown_setting(key, key, _KEYS) for key in found.data if key not in _KEYS]
    engine = found.data.get("engine")
    if engine is not None and not (isinstance(engine, str) and engine):
        problems.append(Problem("engine", "must be the name of an engine", 'as in engine = "lab"'))
    if problems:
        raise InvalidInput(*map(found.placed, problems))
    return Project(found.file, engine)
