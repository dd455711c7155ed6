"""Where the settings of a run are from: path -> job, override or default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from muster.spec.models import JobSpec, RunOverrides
from muster.spec.policies import Checkpoint, FailurePolicy, FailureRule, named_rules

Origin = Literal["job", "override", "default"]

_DEFAULTS = JobSpec()
#: Always told, whether somebody said them or not.
_ALWAYS = (
    "framework",
    "processes_per_node",
    "startup",
    "network",
    "grace_period",
    "max_runtime",
    "logging",
)
#: Told where they are given.
_SOURCES = ("artifact", "git", "entrypoint", "notebook", "requirements", "conda")
#: Told where they differ from what is usual: most runs need none of them.
_SELDOM = ("attempt_timeout", "ttl_after_finished", "keep_attempts", "suspend", "subdomain")


def job_origins(job: JobSpec, overrides: RunOverrides) -> Iterator[tuple[str, Origin]]:
    """Of what belongs to the whole run."""
    for name in _SOURCES:
        given = getattr(job, name)
        if isinstance(given, msgspec.Struct):
            yield from ((f"{name}.{path}", "job") for path in _given(given))
        elif given is not None:
            yield name, "job"
    for name in _ALWAYS:
        if getattr(overrides, name, None) is not None:
            yield name, "override"
        else:
            yield name, "default" if getattr(job, name) == getattr(_DEFAULTS, name) else "job"
    for path in _policies(job):
        yield path, "job"
    if overrides.max_restarts is not None:
        yield "failure.max_restarts", "override"
    if overrides.suspend is not None:
        yield "suspend", "override"


def _policies(job: JobSpec) -> Iterator[str]:
    yield from told(job, _DEFAULTS, _SELDOM)
    for name in ("success", "failure"):
        yield from _inside(name, getattr(job, name), getattr(_DEFAULTS, name))
    if job.checkpoint is not None:
        yield from (f"checkpoint.{name}" for name in Checkpoint.__struct_fields__)


def _inside(path: str, value: Any, usual: Any) -> Iterator[str]:
    """Paths of what differs in `value`, a struct, from what is usual."""
    for name in told(value, usual, value.__struct_fields__):
        inner, place = getattr(value, name), f"{path}.{name}"
        if isinstance(value, FailurePolicy) and name == "rules":
            for rule, called in named_rules(inner):
                bare = FailureRule(action=rule.action, name=rule.name)
                yield f"{place}[{called}].action"
                yield from _inside(f"{place}[{called}]", rule, bare)
        elif isinstance(inner, msgspec.Struct):
            yield from _inside(place, inner, getattr(usual, name))
        else:
            yield place


def _given(value: msgspec.Struct) -> list[str]:
    """Which of its fields say anything."""
    return [name for name in value.__struct_fields__ if getattr(value, name)]


def told(value: Any, usual: Any, names: Iterable[str]) -> list[str]:
    """Which of the fields differ from what is usual."""
    return [name for name in names if getattr(value, name) != getattr(usual, name)]
