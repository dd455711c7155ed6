"""Lists of environment variables in ADS's YAML."""

from __future__ import annotations

import json
from collections.abc import Iterable

from muster.spec.formats.ads.model import EnvVar
from muster.spec.problem_places import Origin


def environment(*lists: Iterable[EnvVar]) -> dict[str, str]:
    """The variables of all lists; later lists take precedence. ADS writes lists and mappings as
    JSON."""
    made: dict[str, str] = {}
    for variable in (one for listed in lists for one in listed):
        value = variable.value
        if isinstance(value, list | dict):
            value = json.dumps(value)
        made[variable.name] = "" if value is None else str(value)
    return made


def variable_origins(path: str, listed: Iterable[EnvVar]) -> dict[str, Origin]:
    """Path of a variable in a spec -> its place in the list at `path`."""
    return {
        f"env.{variable.name}": Origin(f"{path}[{number}].value", variable.name)
        for number, variable in enumerate(listed)
    }
