"""Settings of a run as a person reads them, and what a run changes of its Job."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.drafting import Draft

_DURATIONS = (
    "max_runtime",
    "grace_period",
    "timeout",
    "attempt_timeout",
    "ready_timeout",
    "hang_timeout",
    "ttl_after_finished",
    "grace",
    "initial",
    "max",
    "reset_after",
)


def value_text(path: str, value: Any) -> str:
    """A value as it would be written in a spec."""
    name = path.rpartition(".")[2]
    if isinstance(value, (int, float)) and name in _DURATIONS:
        from muster.spec.quantities import format_duration

        return format_duration(value)
    if value is None:
        return "-"
    if name in ("command", "args", "node_args"):
        return shlex.join(value)
    if name == "resources":
        from muster.spec.quantities import format_size

        sizes = ("memory", "disk")
        value = {k: format_size(v) if k in sizes else v for k, v in value.items() if v}
    elif isinstance(value, dict):
        value = {key: inner for key, inner in value.items() if inner is not None}
    return value if isinstance(value, str) else json.dumps(value)


def changes(draft: Draft) -> Iterator[str]:
    """What the run has otherwise than its Job, one setting a line. Secrets are hidden."""
    from msgspec import to_builtins

    from muster.secrets import hidden
    from muster.spec.override_models import RunOverrides
    from muster.spec.resolve import merge, setting_value, spec_from_json

    if draft.overrides == RunOverrides():
        return
    written = spec_from_json(draft.job.spec)
    before = hidden(to_builtins(merge(written, RunOverrides())[0].spec))
    now, _ = merge(written, draft.overrides)
    after = hidden(to_builtins(now.spec))
    for path, origin in now.origins.items():
        if origin != "override":
            continue
        value, old = setting_value(after, path), _before(before, path)
        if value != old:
            was = "not set" if old is None else value_text(path, old)
            yield f"{path}: {value_text(path, value)} (the job: {was})"


def _before(spec: Any, path: str) -> Any:
    from muster.spec.resolve import setting_value

    try:
        return setting_value(spec, path)
    except LookupError:  # of a variable or an option, say, that the Job does not have
        return None
