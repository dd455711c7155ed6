"""Suggestions for unknown fields. Imported only if there is one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster.errors import Problem
from muster.spec import models, override_models, policies
from muster.spec.decode import names
from muster.spec.wording import alternatives, close_to

#: Names of the same settings in other tools.
_OTHER_NAMES = {
    "num_nodes": "nodes",
    "nnodes": "nodes",
    "node_count": "nodes",
    "num_replicas": "replicas",
    "minimum_success_replicas": "min_success",
    "environment": "env",
    "envs": "env",
    "environment_variables": "env",
    "nproc_per_node": "processes_per_node",
    "procs_per_node": "processes_per_node",
    "ntasks_per_node": "processes_per_node",
    "volumes": "mounts",
    "file_mounts": "mounts",
    "storage_mounts": "mounts",
    "timeout": "max_runtime",
    "time_limit": "max_runtime",
    "max_duration": "max_runtime",
    "maximum_runtime": "max_runtime",
    "entry_point": "entrypoint",
    "run": "command",
    "cmd": "command",
    "commands": "command",
    "arguments": "args",
    "groups": "node_groups",
    "replicated_jobs": "node_groups",
    "startup_order": "startup",
    "termination_grace_period": "grace_period",
    "labels": "tags",
    "script": "artifact",
    "workdir": "working_dir",
    "cwd": "working_dir",
    "chdir": "working_dir",
    "source": "artifact",
    "repository": "git",
    "repo": "git",
    "uri": "url",
    "dependencies": "requirements",
    "packages": "requirements",
    "pip": "requirements",
    "requirements_txt": "requirements",
    "conda_env": "conda",
    "environment_yaml": "conda",
    "tag": "branch",
    "ref": "branch",
    "revision": "commit",
    "code_dir": "path",
    "subfolder": "path",
    "excludetags": "exclude_tags",
    "docker_image": "image",
    "instance_type": "shape",
    "shape_name": "shape",
    "cpu": "cpus",
    "ocpus": "cpus",
    "vcpus": "cpus",
    "gpu": "gpus",
    "accelerators": "gpus",
    "mem": "memory",
    "ram": "memory",
    "memory_gb": "memory",
    "readonly": "read_only",
    "target": "path",
    "destination": "path",
    "mount_path": "path",
    "src": "source",
    "dir": "directory",
    "folder": "directory",
    "probe": "startup_probe",
    "readiness_probe": "startup_probe",
    "health_check": "liveness_probe",
    "post_start": "after_start",
    "pre_stop": "before_stop",
    "failure_threshold": "threshold",
    "port": "tcp",
    "delay": "initial_delay",
    "success_policy": "success",
    "failure_policy": "failure",
    "restart_policy": "failure",
    "depends": "depends_on",
    "needs": "depends_on",
    "after": "depends_on",
    "backoff_limit": "retries",
    "backoff_limit_per_index": "retries",
    "completions": "replicas",
    "max_failed_indexes": "max_failed",
    "enough": "early_success",
    "success_criteria": "early_success",
    "max_parallel": "parallelism",
    "concurrency": "parallelism",
    "matrix": "array",
    "sweep": "array",
    "grid": "array",
    "active_deadline_seconds": "timeout",
    "attempts": "max_restarts",
    "restarts": "max_restarts",
    "restart_strategy": "strategy",
    "backoff_policy": "backoff",
    "ttl": "ttl_after_finished",
    "ttl_seconds_after_finished": "ttl_after_finished",
    "host_name": "hostname",
    "host": "hostname",
    "target_replicated_jobs": "groups",
    "on_exit_codes": "exit_codes",
    "exit_code": "exit_codes",
    "reason": "reasons",
    "message": "messages",
    "counted": "count",
    "operator": "when",
}

#: The same for single models.
_OF_PROBES = {"command": "exec", "cmd": "exec", "script": "exec", "url": "http"}
_OTHER_NAMES_IN: dict[type[msgspec.Struct], dict[str, str]] = {
    models.StartupProbe: _OF_PROBES,
    models.LivenessProbe: _OF_PROBES,
}

#: Maximum number of fields to list in a message.
_MAX_LISTED = 15

#: Models in which a field is looked for, and the hint if it is found there.
_PLACES: tuple[tuple[type[msgspec.Struct], str], ...] = (
    (models.JobSpec, "to the whole job: at the top of the spec"),
    (policies.FailurePolicy, "below failure: {{{name}: ...}}"),
    (policies.SuccessPolicy, "below success: {{{name}: ...}}"),
    (policies.FailureRule, "to a rule: failure: {{rules: [{{action: fail, {name}: ...}}]}}"),
    (models.NodeGroup, "to a group: node_groups: [{{name: workers, {name}: ...}}]"),
    (models.Resources, "below resources: {{{name}: ...}}"),
    (models.Container, "below container: {{{name}: ...}}"),
    (models.StartupProbe, "below startup_probe: {{{name}: ...}}"),
    (models.Kueue, "below kueue: {{{name}: ...}}"),
    (models.Kubernetes, "below kubernetes: {{{name}: ...}}"),
)
#: Fields of other tools that have no counterpart -> what to write.
_INSTEAD: dict[type[msgspec.Struct], dict[str, str]] = {
    models.Resources: dict.fromkeys(
        ("limits", "requests"), "write the amounts alone, as in {cpus: 4, memory: 16GiB, gpus: 1}"
    ),
}


def unknown_field(model: type[msgspec.Struct], where: str, name: str) -> Problem:
    """The problem of a field that `model` does not have. where: the field's path."""
    known = names(model)
    if name in ("sample", "sample_seed") and "array" in known:
        hint = f"write array: {{parameters: ..., {name}: ...}}"
        return Problem(where, "belongs to an array", hint)
    if model in (override_models.RunOverrides, override_models.GroupOverrides):
        of_run = model is override_models.RunOverrides
        job = names(models.JobSpec if of_run else models.NodeGroup)
        if name in job:
            text = "belongs to the job; a run cannot change it"
            return Problem(where, text, _way_to_change(name, of_run=of_run))
        if of_run and name in names(override_models.GroupOverrides):
            hint = f"it belongs to a group: node_groups.NAME.{name}"
            return Problem(where, "unknown field", hint)
        meant = close_to(name, [*known, *job], 1, 0.7)
        if meant and meant[0] not in known:
            hint = f'did you mean "{meant[0]}"? it belongs to the job: change the spec'
            return Problem(where, "unknown field", hint)
    hint, meant_here = _hint(model, name, known)
    parent = where.removesuffix(name)
    return Problem(where, "unknown field", hint, meant=parent + meant_here if meant_here else "")


def _way_to_change(name: str, *, of_run: bool) -> str:
    """A hint for a field that belongs to the Job."""
    from muster.spec.edit import EDITABLE

    if not of_run:
        return "another name is another group; change the spec"
    if name in EDITABLE:
        return f"`muster jobs edit JOB --set {name}=VALUE` does, or change the spec"
    return "change the spec, which makes a new version of the job"


def _hint(model: type[msgspec.Struct], name: str, known: list[str]) -> tuple[str, str]:
    """A hint, and the field of the same model that was probably meant, or ""."""
    plain = name.replace("-", "_")
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in plain).strip("_")
    meant = [snake, _OTHER_NAMES_IN.get(model, {}).get(snake, ""), _OTHER_NAMES.get(snake, "")]
    has_places = (override_models.RunOverrides, *(kind for kind, _ in _PLACES))
    places = [one for one in _PLACES if model in has_places and one[0] is not model]
    if instead := _INSTEAD.get(model, {}).get(snake):
        return instead, ""
    close = [text for text in meant if text in known]
    if not close and not any(snake in names(other) for other, _ in places):
        close = close_to(snake, known, 1, 0.7)
    if close:
        return f'did you mean "{close[0]}"?', close[0]
    if elsewhere := _elsewhere(places, meant) or _elsewhere(places, meant, guess=True):
        found, place = elsewhere
        verb = "it belongs" if found == name else f'did you mean "{found}"? it belongs'
        return f"{verb} {place.format(name=found)}", ""
    if len(known) > _MAX_LISTED:
        return "`muster schema` lists all fields", ""
    if not known:
        options = model.__name__.endswith("Options")
        return f"remove it: {'the framework has no options' if options else 'no fields here'}", ""
    return f"use {alternatives(known)}", ""


def _elsewhere(
    places: Sequence[tuple[type[msgspec.Struct], str]], meant: Sequence[str], *, guess: bool = False
) -> tuple[str, str] | None:
    """The field of another model that was probably meant, and its place. meant: its names, the one
    that was written first. guess: whether a similar one will do."""
    for model, place in places:
        known = names(model)
        found = [name for name in meant if name in known]
        if guess:
            found = close_to(meant[0], known, 1, 0.8)
        if found:
            return found[0], place
    return None
