"""What `muster run` was pointed at, as a spec: a spec file, code, or a bare command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.errors import InvalidInput, Problem
from muster.spec.models import JobSpec
from muster.spec.reader import read_spec, spec_from_mapping

_SPEC_SUFFIXES = (".yaml", ".yml", ".json")


def spec_for(
    target: str | Path | None, command: str | Sequence[str] | None, fields: Mapping[str, Any]
) -> JobSpec:
    """The Job that is meant.

    fields: what the Job is given besides (framework, name, ...), for targets that are no spec
    file. Raises InvalidInput.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if target is None:
        if not command:
            raise InvalidInput(
                Problem(
                    "",
                    "nothing to run",
                    "name a spec file, a script or a folder, or give a command after --",
                )
            )
        if isinstance(command, str):
            command = shlex.split(command)  # as in a spec file; no shell runs
        name = given.pop("name", None) or Path(command[0]).name
        return spec_from_mapping({"name": name, "command": list(command), **given})
    path = Path(target)
    if path.suffix in _SPEC_SUFFIXES and not path.is_dir():
        if given:
            flags = ", ".join("--" + name.replace("_", "-") for name in given)
            raise InvalidInput(
                Problem(flags, f"{path} describes the job already", "change it there")
            )
        return read_spec(path)
    given.setdefault("name", _name_of(path))
    return spec_from_mapping({"artifact": str(path.absolute()), **given})


def _name_of(path: Path) -> str:
    name = path.absolute().name
    for suffix in (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", path.suffix):
        if suffix and name.endswith(suffix) and name != suffix:
            name = name[: -len(suffix)]
            break
    cleaned = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip("._-")
    return cleaned or "job"
