"""Settings of a run as text, and the settings that differ from its job's."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.spec.models import JobSpec
    from muster.spec.override_models import RunOverrides


def value_text(path: str, value: Any) -> str:
    """A value as one would write it in a spec."""
    from muster.spec.override_models import DURATIONS

    name = path.rpartition(".")[2]
    if isinstance(value, (int, float)) and name in DURATIONS:
        from muster.spec.quantities import format_duration

        return format_duration(value)
    if value is None:
        return "-"
    if name in ("command", "args", "node_args"):
        return shlex.join(value)
    if name == "array":
        from msgspec import convert

        from muster.spec.arrays import array_text
        from muster.spec.models import Array

        return array_text(convert(value, Array))
    if name == "resources":
        from muster.spec.quantities import format_size

        sizes = ("memory", "disk")
        value = {k: format_size(v) if k in sizes else v for k, v in value.items() if v}
    return value if isinstance(value, str) else json.dumps(_without_unset(value))


def _without_unset(value: Any) -> Any:
    """A value without fields that are not set."""
    if isinstance(value, dict):
        found = {key: _without_unset(inner) for key, inner in value.items()}
        return {key: inner for key, inner in found.items() if inner not in (None, {}, [], ())}
    return [_without_unset(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def changes(job: JobSpec, overrides: RunOverrides) -> Iterator[str]:
    """Lines naming each setting that the run overrides. Secrets are hidden."""
    from msgspec import to_builtins

    from muster.secrets import hidden
    from muster.spec.override_models import RunOverrides
    from muster.spec.resolve import merge, setting_value

    if overrides == RunOverrides():
        return
    unchanged, _ = merge(job, RunOverrides())
    before = hidden(to_builtins(unchanged.spec))
    now, _ = merge(job, overrides)
    after = hidden(to_builtins(now.spec))
    for path, origin in now.origins.items():
        if origin != "override":
            continue
        value, old = setting_value(after, path), _before(before, path)
        if value != old:
            was = "not set" if old is None else value_text(path, old)
            is_of_job = old is None or unchanged.origins.get(path) == "job"
            where = "in the job" if is_of_job else "default"
            yield f"{path}: {value_text(path, value)} ({where}: {was})"


def _before(spec: Any, path: str) -> Any:
    from muster.spec.resolve import setting_value

    try:
        return setting_value(spec, path)
    except LookupError:  # such as a variable that only the run has
        return None
