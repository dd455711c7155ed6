"""Messages for unknown fields."""

from __future__ import annotations

from typing import Any

import pytest

from muster.spec.decode import names
from muster.spec.models import (
    JobSpec,
    Kubernetes,
    Logging,
    Mount,
    NodeGroup,
    Resources,
    StartupProbe,
)
from muster.spec.override_models import GroupOverrides, RunOverrides
from muster.spec.policies import FailurePolicy, SuccessPolicy
from muster.spec.sources import Git, Notebook
from muster.spec.unknown import _OTHER_NAMES, _PLACES, unknown_field


@pytest.mark.parametrize(
    ("model", "name", "hint"),
    [
        (JobSpec, "framwork", 'did you mean "framework"?'),
        (JobSpec, "nodeGroups", 'did you mean "node_groups"?'),
        (JobSpec, "max-runtime", 'did you mean "max_runtime"?'),
        (JobSpec, "nproc_per_node", 'did you mean "processes_per_node"?'),
        (Mount, "readOnly", 'did you mean "read_only"?'),
        (Resources, "ram", 'did you mean "memory"?'),
        (StartupProbe, "command", 'did you mean "exec"?'),
        (StartupProbe, "cmd", 'did you mean "exec"?'),
        (
            JobSpec,
            "max_replicas",
            "it belongs to a group: node_groups: [{name: workers, max_replicas: ...}]",
        ),
        (
            JobSpec,
            "hostnamme",
            'did you mean "hostname"? it belongs to a group: '
            "node_groups: [{name: workers, hostname: ...}]",
        ),
        (JobSpec, "gpus", "it belongs below resources: {gpus: ...}"),
        (JobSpec, "ocpus", 'did you mean "cpus"? it belongs below resources: {cpus: ...}'),
        (NodeGroup, "grace_period", "it belongs to the whole job: at the top of the spec"),
        (JobSpec, "failurePolicy", 'did you mean "failure"?'),
        (JobSpec, "max_restarts", "it belongs below failure: {max_restarts: ...}"),
        (
            JobSpec,
            "restarts",
            'did you mean "max_restarts"? it belongs below failure: {max_restarts: ...}',
        ),
        (FailurePolicy, "restartStrategy", 'did you mean "strategy"?'),
        (
            FailurePolicy,
            "exit_codes",
            "it belongs to a rule: failure: {rules: [{action: fail, exit_codes: ...}]}",
        ),
        (NodeGroup, "backoffLimit", 'did you mean "retries"?'),
        (NodeGroup, "activeDeadlineSeconds", 'did you mean "timeout"?'),
        (SuccessPolicy, "operator", 'did you mean "when"?'),
        (Kubernetes, "queue", "it belongs below kueue: {queue: ...}"),
        (
            JobSpec,
            "serviceAccount",
            'did you mean "service_account"? it belongs below kubernetes: {service_account: ...}',
        ),
        (RunOverrides, "queue", "it belongs below kueue: {queue: ...}"),
        (RunOverrides, "gpus", "it belongs below resources: {gpus: ...}"),
        (Resources, "limits", "write the amounts alone, as in {cpus: 4, memory: 16GiB, gpus: 1}"),
        (Logging, "zzz", "use enabled or directory"),
        (Resources, "bogus", "use cpus, memory, gpus, disk or disk_image"),
    ],
)
def test_hints_for_unknown_fields(model: Any, name: str, hint: str) -> None:
    problem = unknown_field(model, f"here.{name}", name)
    assert (problem.path, problem.message, problem.hint) == (f"here.{name}", "unknown field", hint)


@pytest.mark.parametrize(
    ("model", "name", "hint"),
    [
        (RunOverrides, "framework", "change the spec, which makes a new version of the job"),
        (RunOverrides, "description", "`muster jobs edit JOB --set description=VALUE` does, or"),
        (GroupOverrides, "name", "another name is another group; change the spec"),
    ],
)
def test_fields_of_the_job_in_overrides(model: Any, name: str, hint: str) -> None:
    problem = unknown_field(model, name, name)
    assert problem.message == "belongs to the job; a run cannot change it"
    assert problem.hint.startswith(hint)


def test_settings_of_a_run_for_one_group_only() -> None:
    hint = unknown_field(RunOverrides, "max_replicas", "max_replicas").hint
    assert hint == "it belongs to a group: node_groups.NAME.max_replicas"


def test_every_known_foreign_field_has_a_hint() -> None:
    models = (*(kind for kind, _ in _PLACES), Mount, Logging, Git, Notebook)
    known = {n for model in models for n in names(model)}
    assert set(_OTHER_NAMES.values()) <= known
    assert not set(_OTHER_NAMES) & set(names(JobSpec))
