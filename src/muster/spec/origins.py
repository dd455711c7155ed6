"""Origins of a run's settings: path -> job, override or default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from muster.spec.models import JobSpec
from muster.spec.override_models import (
    ALWAYS_SHOWN,
    CODE,
    RUN_WIDE,
    RUN_WIDE_RECORDS,
    RunOverrides,
)
from muster.spec.policies import FailurePolicy, FailureRule, named_rules

Origin = Literal["job", "override", "default"]

_DEFAULTS = JobSpec()
#: Records whose fields are listed one by one.
_RECORDS = [name for name in RUN_WIDE_RECORDS if name not in ALWAYS_SHOWN]
#: Listed if they differ from the default: most runs set none of them.
_IF_CHANGED = [name for name in RUN_WIDE if name not in (*ALWAYS_SHOWN, *_RECORDS)]


def job_origins(job: JobSpec, overrides: RunOverrides) -> Iterator[tuple[str, Origin]]:
    """Origins of the settings of the whole run."""
    yield from _code(job, overrides)
    for name in ALWAYS_SHOWN:
        value = getattr(overrides, name, None)
        if value is not None and value != getattr(job, name):  # an equal value is the Job's
            yield name, "override"
        else:
            yield name, "default" if getattr(job, name) == getattr(_DEFAULTS, name) else "job"
    options = {**job.framework_options, **overrides.framework_options}
    for name, value in options.items():
        of_job = job.framework_options.get(name, msgspec.UNSET)
        yield f"framework_options.{name}", _either(value != of_job)
    by_job = changed(job, _DEFAULTS, _IF_CHANGED)
    for name in _IF_CHANGED:
        if (overridden := getattr(overrides, name) is not None) or name in by_job:
            yield name, _either(overridden)
    for name in _RECORDS:
        usual = getattr(_DEFAULTS, name)
        yield from _record(name, usual, getattr(job, name), getattr(overrides, name))
    if overrides.max_restarts is not None:
        yield "failure.max_restarts", "override"


def _code(job: JobSpec, overrides: RunOverrides) -> Iterator[tuple[str, Origin]]:
    for name in CODE:
        given = getattr(job, name)
        if name == "entrypoint" and overrides.command is not None:
            continue  # the command replaces it
        if isinstance(given, msgspec.Struct):
            yield from ((f"{name}.{path}", "job") for path in _given_fields(given))
        elif given is not None:
            yield name, "job"


def _either(overridden: bool) -> Origin:
    return "override" if overridden else "job"


def _record(name: str, usual: Any, of_job: Any, of_run: Any) -> Iterator[tuple[str, Origin]]:
    """Origins inside a record. The run's record replaces the Job's; equal values are the Job's."""
    before = dict(_inside(name, of_job, usual))
    now = before if of_run is None else dict(_inside(name, of_run, usual))
    for path, value in now.items():
        yield path, _either(path not in before or before[path] != value)
    for path in before.keys() - now.keys():
        if "[" not in path:  # the run sets it back to its default
            yield path, "override"


def _inside(path: str, value: Any, usual: Any) -> Iterator[tuple[str, Any]]:
    """Path and value of each field of a record that differs from the default, or of all fields if
    the default is None."""
    if value is None:
        return
    if usual is None:
        yield from ((f"{path}.{name}", getattr(value, name)) for name in value.__struct_fields__)
        return
    for name in changed(value, usual, value.__struct_fields__):
        inner, place = getattr(value, name), f"{path}.{name}"
        if isinstance(value, FailurePolicy) and name == "rules":
            for rule, rule_name in named_rules(inner):
                bare = FailureRule(action=rule.action, name=rule.name)
                yield f"{place}[{rule_name}].action", rule.action
                yield from _inside(f"{place}[{rule_name}]", rule, bare)
        elif isinstance(inner, msgspec.Struct):
            yield from _inside(place, inner, getattr(usual, name))
        else:
            yield place, inner


def _given_fields(value: msgspec.Struct) -> list[str]:
    """The fields that are set."""
    return [name for name in value.__struct_fields__ if getattr(value, name)]


def changed(value: Any, usual: Any, names: Iterable[str]) -> list[str]:
    """The fields that differ from the default."""
    return [name for name in names if getattr(value, name) != getattr(usual, name)]
