"""Where the settings of a run are from: path -> job, override or default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from muster.spec.models import JobSpec
from muster.spec.override_models import RunOverrides
from muster.spec.policies import FailurePolicy, FailureRule, named_rules

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
_SELDOM = (
    *("attempt_timeout", "ttl_after_finished", "keep_attempts", "suspend"),
    *("subdomain", "namespace", "clean_env"),
)


def job_origins(job: JobSpec, overrides: RunOverrides) -> Iterator[tuple[str, Origin]]:
    """Of what belongs to the whole run."""
    yield from _sources(job, overrides)
    for name in _ALWAYS:
        said = getattr(overrides, name, None)
        if said is not None and said != getattr(job, name):  # what both say is the Job's
            yield name, "override"
        else:
            yield name, "default" if getattr(job, name) == getattr(_DEFAULTS, name) else "job"
    options = {**job.framework_options, **overrides.framework_options}
    for name, value in options.items():
        of_job = job.framework_options.get(name, msgspec.UNSET)
        yield f"framework_options.{name}", _either(value != of_job)
    seldom = told(job, _DEFAULTS, _SELDOM)
    for name in _SELDOM:
        if (said := getattr(overrides, name) is not None) or name in seldom:
            yield name, _either(said)
    for name, usual in _POLICIES.items():
        yield from _policy(name, usual, getattr(job, name), getattr(overrides, name))
    if overrides.max_restarts is not None:
        yield "failure.max_restarts", "override"


def _sources(job: JobSpec, overrides: RunOverrides) -> Iterator[tuple[str, Origin]]:
    for name in _SOURCES:
        given = getattr(job, name)
        if name == "entrypoint" and overrides.command is not None:
            continue  # the command takes its place
        if isinstance(given, msgspec.Struct):
            yield from ((f"{name}.{path}", "job") for path in _given(given))
        elif given is not None:
            yield name, "job"


def _either(overridden: bool) -> Origin:
    return "override" if overridden else "job"


#: What is said of the run's life, and what it is compared with: a checkpoint is told as a whole.
_POLICIES = {"success": _DEFAULTS.success, "failure": _DEFAULTS.failure, "checkpoint": None}


def _policy(name: str, usual: Any, of_job: Any, of_run: Any) -> Iterator[tuple[str, Origin]]:
    """The run's takes the place of the Job's; what is alike in both is the Job's still."""
    before = dict(_inside(name, of_job, usual))
    now = before if of_run is None else dict(_inside(name, of_run, usual))
    for path, value in now.items():
        yield path, _either(path not in before or before[path] != value)
    for path in before.keys() - now.keys():
        if "[" not in path:  # it is back at its default
            yield path, "override"


def _inside(path: str, value: Any, usual: Any) -> Iterator[tuple[str, Any]]:
    """Path and value of what differs in `value`, a struct, from what is usual."""
    if value is None:
        return
    if usual is None:
        yield from ((f"{path}.{name}", getattr(value, name)) for name in value.__struct_fields__)
        return
    for name in told(value, usual, value.__struct_fields__):
        inner, place = getattr(value, name), f"{path}.{name}"
        if isinstance(value, FailurePolicy) and name == "rules":
            for rule, called in named_rules(inner):
                bare = FailureRule(action=rule.action, name=rule.name)
                yield f"{place}[{called}].action", rule.action
                yield from _inside(f"{place}[{called}]", rule, bare)
        elif isinstance(inner, msgspec.Struct):
            yield from _inside(place, inner, getattr(usual, name))
        else:
            yield place, inner


def _given(value: msgspec.Struct) -> list[str]:
    """Which of its fields say anything."""
    return [name for name in value.__struct_fields__ if getattr(value, name)]


def told(value: Any, usual: Any, names: Iterable[str]) -> list[str]:
    """Which of the fields differ from what is usual."""
    return [name for name in names if getattr(value, name) != getattr(usual, name)]
