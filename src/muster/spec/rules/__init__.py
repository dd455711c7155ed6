"""Rules between fields. Pure; all problems are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from muster.errors import Problem
from muster.spec.models import JobSpec
from muster.spec.oci_variables import bad_variables
from muster.spec.problem_places import follows, touched
from muster.spec.rules.groups import bad_hostnames, name_conflicts, order_conflicts
from muster.spec.rules.kubernetes import kubernetes_problems
from muster.spec.rules.policies import policy_conflicts, policy_gaps
from muster.spec.rules.sources import (
    ignored_arguments,
    lost_programs,
    source_conflicts,
    source_gaps,
)
from muster.spec.rules.structure import (
    array_conflicts,
    duplicate_names,
    incomplete_mounts,
    job_conflicts,
    level_conflicts,
    missing_program,
    numbers,
    probes_without_check,
    too_long_commands,
    too_many_groups,
)
from muster.spec.rules.workloads import workload_conflicts


def check(spec: JobSpec, broken: Collection[str] = ()) -> list[Problem]:
    """Check a spec as written.

    broken: paths that could not be read and have their defaults. Rules that need them, and problems
    in them, are skipped.
    """
    if alone := too_many_groups(spec):
        return alone
    rules = (rule for rule, needs in _RULES if not broken or not touched(needs, broken))
    return [p for rule in rules for p in rule(spec) if not follows(p.path, broken)]


def _anywhere(*fields: str) -> tuple[str, ...]:
    """The paths of fields that the job and its groups both have."""
    return (*fields, *(f"node_groups.{field}" for field in fields))


_SIZES = (*_anywhere("nodes", "replicas", "array"), "node_groups.max_replicas")
_ARRAY = ("parallelism", "max_failed", "only")
_ARRAY_OF_GROUP = ("node_groups.total_retries", "node_groups.early_success")
_PROGRAM = ("artifact", "git", *_anywhere("command"))
#: Each rule with the fields that it needs. Rules without any report values that exclude each other,
#: which holds for a partial spec, too.
_RULES: tuple[tuple[Callable[[JobSpec], Iterator[Problem]], tuple[str, ...]], ...] = (
    (source_gaps, (*_PROGRAM, "entrypoint")),
    (lost_programs, (*_PROGRAM, *_anywhere("working_dir", "image"))),
    (ignored_arguments, _anywhere("command", "args")),
    (probes_without_check, _anywhere("startup_probe", "liveness_probe")),
    (missing_program, (*_PROGRAM, "framework", *_anywhere("env", "image"))),
    (bad_variables, _PROGRAM),
    (numbers, (*_SIZES, *_anywhere("min_success"))),
    (array_conflicts, (*_SIZES, *_anywhere(*_ARRAY), *_ARRAY_OF_GROUP)),
    (policy_gaps, ("node_groups.name", "success", "failure", *_anywhere("min_success"))),
    (bad_hostnames, (*_SIZES, "name", "node_groups.name", "node_groups.hostname")),
    (job_conflicts, ()),
    (duplicate_names, ()),
    (source_conflicts, ("artifact", "entrypoint")),
    (level_conflicts, ()),
    (incomplete_mounts, _anywhere("mounts")),
    (order_conflicts, ("node_groups.name", "node_groups.depends_on")),
    (policy_conflicts, ("failure.rules",)),
    (name_conflicts, ()),
    (too_long_commands, ()),
    (workload_conflicts, ()),
    (kubernetes_problems, _anywhere("kubernetes")),
)
