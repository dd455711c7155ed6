"""What was probably meant by a field that is not there. Imported only when there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from muster.errors import Problem
from muster.spec import models, policies
from muster.spec.decode import names
from muster.spec.wording import close_to

#: What people write who come from a neighbouring tool.
_NEIGHBOURS = {
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
    "workdir": "artifact",
    "working_dir": "artifact",
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
    "container": "image",
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

#: The same, of one model alone.
_NEIGHBOURS_IN: dict[type[msgspec.Struct], dict[str, str]] = {
    models.StartupProbe: {"command": "exec", "cmd": "exec", "script": "exec", "url": "http"},
}

#: Names that fit into a message; of more, only those that are close are named.
_MOST = 15

#: Where else a field may belong, and how that is said.
_PLACES: tuple[tuple[type[msgspec.Struct], str], ...] = (
    (models.JobSpec, "to the whole job: at the top of the spec"),
    (policies.FailurePolicy, "below failure: {{{name}: ...}}"),
    (policies.SuccessPolicy, "below success: {{{name}: ...}}"),
    (policies.FailureRule, "to a rule: failure: {{rules: [{{action: fail, {name}: ...}}]}}"),
    (models.NodeGroup, "to a group: node_groups: [{{name: workers, {name}: ...}}]"),
    (models.Resources, "below resources: {{{name}: ...}}"),
    (models.StartupProbe, "below startup_probe: {{{name}: ...}}"),
)


#: What a run can change that has an option of its own.
_OPTIONS = ("nodes", "max_runtime", "max_restarts", "processes_per_node")


def unknown_field(model: type[msgspec.Struct], where: str, name: str, value: Any = None) -> Problem:
    """The problem of a field `model` does not have. where: its path; value: what it was given."""
    known = names(model)
    if model in (models.RunOverrides, models.GroupOverrides):
        if own := _own_of_run(value, known):
            return Problem(where, "belongs to the Job; a run cannot change it", own)
        job = names(models.JobSpec if model is models.RunOverrides else models.NodeGroup)
        if name in job:
            from muster.spec.edit import EDITABLE

            text = "belongs to the Job; a run cannot change it"
            way = "change the spec"
            if name in EDITABLE:
                way = f"`muster jobs edit JOB --set {name}=VALUE` does, or change the spec"
            return Problem(where, text, f"{way}; a run can change {', '.join(known)}")
        meant = close_to(name, [*known, *job], 1, 0.7)
        if meant and meant[0] not in known:
            hint = f'did you mean "{meant[0]}"? it belongs to the Job: change the spec'
            return Problem(where, "unknown field", hint)
    hint, meant_here = _hint(model, name, known)
    beside = where.removesuffix(name)
    return Problem(where, "unknown field", hint, meant=beside + meant_here if meant_here else "")


def _own_of_run(value: Any, known: list[str]) -> str:
    """A hint: what a run calls a setting that a Job has within another, failure.max_restarts."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return ""
    ((name, inner),) = value.items()
    plain = str(name).replace("-", "_")
    close = [n for n in (plain, _NEIGHBOURS.get(plain)) if n in known]
    close = close or close_to(plain, known, 1, 0.8)
    if not close:
        return ""
    shown = inner if isinstance(inner, (str, int, float)) else "..."
    way = f"--set {close[0]}={shown}"
    if close[0] in _OPTIONS:
        way = f"--{close[0].replace('_', '-')} {shown}, or {way}"
    return f"what a run can change is {close[0]}: {way}"


def _hint(model: type[msgspec.Struct], name: str, known: list[str]) -> tuple[str, str]:
    """What to do, and the field of the same model that was probably meant, or ""."""
    plain = name.replace("-", "_")
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in plain).strip("_")
    meant = [snake, _NEIGHBOURS_IN.get(model, {}).get(snake, ""), _NEIGHBOURS.get(snake, "")]
    close = [text for text in meant if text in known] or close_to(snake, known, 1, 0.7)
    if close:
        return f'did you mean "{close[0]}"?', close[0]
    for other, place in _PLACES if model in (kind for kind, _ in _PLACES) else ():
        theirs = names(other)
        found = [text for text in meant if text in theirs] or close_to(snake, theirs, 1, 0.8)
        if found and other is not model:
            verb = "it belongs" if found[0] == name else f'did you mean "{found[0]}"? it belongs'
            return f"{verb} {place.format(name=found[0])}", ""
    if len(known) > _MOST:
        return "`muster schema` prints all that there are", ""
    return f"there are: {', '.join(known)}" if known else "there are none here; remove it", ""
