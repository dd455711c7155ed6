"""Any job that the engine accepts becomes a manifest that clusters accept, and that says what the
job says."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engines.kubernetes.accepted import refusals
from engines.kubernetes.golden import JOBSETS, plan_of, profile_of, text_of
from muster.engines.kubernetes.applied import shown
from muster.engines.kubernetes.names import group_names
from muster.engines.kubernetes.plan_problems import problems
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.versions import Version, Versions
from muster.errors import InvalidInput
from muster.node.pod import DESCRIPTION, GROUP, INDEX, JOB, Group, own_slot
from muster.plan.model import GroupPlan, RunPlan
from muster.spec.formats.quantity import parse_quantity
from muster.spec.reader import spec_from_mapping

texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)
names = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,30}", fullmatch=True)
names_of_groups = st.from_regex(r"[a-zA-Z]([a-zA-Z0-9_-]{0,20}[a-zA-Z0-9])?", fullmatch=True)
labels = st.from_regex(r"[a-z]([a-z0-9-]{0,12}[a-z0-9])?", fullmatch=True)
words = st.sampled_from(("true", "sleep", "a b", "$(HOME)", "${rank}", "ä", "'"))
durations = st.sampled_from(("1s", "0.5s", "90s", "2h", "3d"))
sizes = st.sampled_from(("1B", "999", "1KiB", "1.5GiB", "3GB", "2TiB"))
resources = st.fixed_dictionaries(
    {},
    optional={
        "cpus": st.sampled_from((0.001, 0.1, 0.25, 1, 1.5, 64)),
        "memory": sizes,
        "disk": sizes,
        "gpus": st.integers(0, 8),
    },
)
capabilities = st.lists(st.sampled_from(("IPC_LOCK", "SYS_PTRACE", "NET_ADMIN")), unique=True)
containers = st.fixed_dictionaries(
    {},
    optional={
        "user": st.sampled_from(("0", "1000", "1000:7", "ana", "ana:users")),
        "groups": st.lists(st.integers(0, 9999), max_size=3, unique=True),
        "cap_add": capabilities,
        "read_only": st.booleans(),
        "no_new_privileges": st.booleans(),
        "seccomp": st.sampled_from(("default", "unconfined")),
        "pull": st.sampled_from(("missing", "always", "never")),
    },
)
probes = st.fixed_dictionaries(
    {"period": durations, "timeout": durations},
    optional={"initial_delay": durations, "threshold": st.integers(1, 99)},
).flatmap(
    lambda one: st.sampled_from(({"tcp": 80}, {"file": "/up"}, {"exec": ["test"]})).map(
        lambda what: {**one, **what}
    )
)
extra_containers = st.lists(
    st.fixed_dictionaries(
        {
            "name": labels,
            "role": st.sampled_from(("init", "sidecar", "main")),
            "image": st.just("more:1"),
        },
        optional={
            "command": st.lists(words, min_size=1, max_size=2),
            "env": st.dictionaries(st.sampled_from(("A", "B", "PATH")), texts, max_size=2),
            "resources": resources.map(lambda r: {k: r[k] for k in r if k in ("cpus", "memory")}),
        },
    ),
    max_size=3,
    unique_by=lambda one: one["name"],
)
mounts = st.lists(
    st.builds(
        lambda source, path, read_only: {"source": source, "path": path, "read_only": read_only},
        st.sampled_from(("nfs://files/data", "nfs://files/data/more", "scratch:node/tmp")),
        st.sampled_from(("/data", "/more", "/a b")),
        st.booleans(),
    ),
    max_size=3,
    unique_by=lambda one: one["path"],
)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(labels, st.sampled_from(("", "a", "1.0")), max_size=2),
        "annotations": st.dictionaries(labels, texts, max_size=2),
    },
)
kubernetes = st.fixed_dictionaries(
    {},
    optional={
        "service_account": labels,
        "priority_class": labels,
        "image_pull_secrets": st.lists(labels, max_size=2, unique=True),
        "node_selector": st.dictionaries(labels, st.sampled_from(("a", "b.c")), max_size=2),
        "tolerations": st.just([{"key": "gpu", "operator": "Exists"}]),
        "exclusive": st.sampled_from(("rack", "cloud.test/pool")),
        "topology": st.sampled_from(({"required": "rack"}, {"preferred": "rack"})),
        "resources": st.just({"rdma/ib": 1}),
        "pod": st.sampled_from(({"spec": {"hostIPC": True}}, {"metadata": {"labels": {"x": "1"}}})),
    },
)
groups = st.lists(
    st.fixed_dictionaries(
        {"name": names_of_groups, "command": st.lists(words, min_size=1, max_size=3)},
        optional={
            "nodes": st.integers(1, 5),
            "replicas": st.integers(1, 3),
            "image": st.sampled_from(("w:1", "registry.test:5000/team/w@sha256:" + "0" * 64)),
            "resources": resources,
            "container": containers,
            "extra_containers": extra_containers,
            "mounts": mounts,
            "startup_probe": probes,
            "kubernetes": kubernetes,
            "job_metadata": metadata,
            "pod_metadata": metadata,
        },
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one["name"],
)
jobs = st.fixed_dictionaries(
    {"name": names, "node_groups": groups},
    optional={
        "failure": st.fixed_dictionaries({"max_restarts": st.integers(0, 2**31)}),
        "grace_period": durations,
        "checkpoint": st.fixed_dictionaries({"grace": durations}),
        "max_runtime": durations,
        "tags": st.dictionaries(texts.filter(bool), texts, max_size=3),
        "annotations": st.dictionaries(labels, texts, max_size=2),
        "host_aliases": st.just({"10.1.2.3": ["db", "db.test"], "fd00::1": ["six"]}),
        "kueue": st.fixed_dictionaries({"queue": labels}, optional={"priority": labels}),
    },
)
profiles = st.fixed_dictionaries(
    {},
    optional={
        "namespace": labels,
        "queue": labels,
        "decision_window": st.sampled_from(("never", "1s", "1h")),
        "tolerations": st.just([{"key": "team"}]),
        "node_selector": st.just({"pool": "a"}),
    },
).flatmap(
    lambda one: st.sampled_from(({}, {"contact": "dial", "address": "192.0.2.1"})).map(
        lambda contact: {**one, **contact}
    )
)
jobsets = st.sampled_from(list(JOBSETS.values()))


def plan_from(data: dict[str, Any]) -> RunPlan:
    """The plan of a job that the engine accepts."""
    try:
        plan = plan_of(spec_from_mapping(data))
    except InvalidInput:
        assume(False)
        raise
    assume(not list(problems(plan, KubernetesProfile())))
    return plan


@settings(deadline=None, max_examples=100)
@given(jobs, profiles, jobsets)
def test_clusters_accept_it(
    data: dict[str, Any], settings: dict[str, Any], jobset: Version | None
) -> None:
    plan, profile = plan_from(data), profile_of(settings)
    assert refusals(shown(plan, profile, Versions(jobset=jobset)), jobset) == []


@settings(deadline=None, max_examples=50)
@given(jobs, profiles, jobsets)
def test_it_is_the_same_each_time(
    data: dict[str, Any], settings: dict[str, Any], jobset: Version | None
) -> None:
    versions = Versions(jobset=jobset)
    texts = [text_of(plan_from(data), profile_of(settings), versions) for _ in range(2)]
    assert texts[0] == texts[1]


# --- reading it


def pod_templates(objects: list[dict[str, Any]]) -> dict[str, tuple[int, int, dict[str, Any]]]:
    """Replicated Job -> how many Jobs it has, how many pods each has, and the pod template."""
    first = objects[0]
    if first["kind"] == "JobSet":
        return {
            one["name"]: (one["replicas"], spec["completions"], spec["template"])
            for one in first["spec"]["replicatedJobs"]
            for spec in [one["template"]["spec"]]
        }
    found: dict[str, tuple[int, int, dict[str, Any]]] = {}
    for one in objects:
        if one["kind"] == "Job":
            spec = one["spec"]
            (node,) = [c for c in spec["template"]["spec"]["containers"] if c["name"] == "node"]
            name = next(v["value"] for v in node["env"] if v["name"] == GROUP)
            known = found.get(name, (0, 0, {}))[0]
            found[name] = known + 1, spec["completions"], spec["template"]
    return found


def check_group(group: GroupPlan, template: dict[str, Any], profile: KubernetesProfile) -> None:
    pod = template["spec"]
    (node,) = [one for one in pod["containers"] if one["name"] == "node"]
    assert node["image"] == (group.image or profile.image)
    limits = node.get("resources", {}).get("limits", {})
    wanted = {
        "cpu": group.resources.cpus,
        "memory": group.resources.memory,
        "ephemeral-storage": group.resources.disk,
        "nvidia.com/gpu": group.resources.gpus or None,
    }
    read = {name: float(parse_quantity(limits[name])) for name in wanted if name in limits}
    assert read == {name: amount for name, amount in wanted.items() if amount is not None}
    roles = {one.name: one.role for one in group.extra_containers}
    init = {
        one["name"]: "sidecar" if one.get("restartPolicy") == "Always" else "init"
        for one in pod.get("initContainers", ())
    }
    beside = {one["name"]: "main" for one in pod["containers"] if one["name"] != "node"}
    assert {**init, **beside} == roles
    nfs = {one["nfs"]["path"] for one in pod["volumes"] if "nfs" in one}
    assert len(nfs) == len({one.source for one in group.mounts if one.kind == "nfs"})


@settings(deadline=None, max_examples=50)
@given(jobs, profiles, jobsets)
def test_what_the_job_says_can_be_read_from_it(
    data: dict[str, Any], settings: dict[str, Any], jobset: Version | None
) -> None:
    plan, profile = plan_from(data), profile_of(settings)
    objects = shown(plan, profile, Versions(jobset=jobset))
    names = group_names(plan.groups)
    templates = pod_templates(objects)
    assert [(*templates[names[group.name]][:2],) for group in plan.groups] == [
        (group.replicas, group.nodes) for group in plan.groups
    ]
    for group in plan.groups:
        check_group(group, templates[names[group.name]][2], profile)
    # each pod serves another slot
    (config,) = [one for one in objects if one["kind"] == "ConfigMap"]
    described = json.loads(config["data"][DESCRIPTION])
    groups = {name: Group(**one) for name, one in described["groups"].items()}
    slots = [
        own_slot(groups, {GROUP: name, JOB: str(job), INDEX: str(index)})
        for name, (replicas, nodes, _) in templates.items()
        for job in range(replicas)
        for index in range(nodes)
    ]
    assert sorted(slots) == list(range(len(plan.nodes)))
    restarts = objects[0]["spec"].get("failurePolicy", {}).get("maxRestarts", 0)
    may = jobset is not None and profile.decision_window is not None
    assert restarts == (min(plan.policy.max_restarts, 2**31 - 1) if may else 0)
    grace = templates[names[plan.groups[0].name]][2]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= math.ceil(plan.policy.grace_period)


@pytest.mark.parametrize("field", ["queue", "priority"])
def test_names_of_kueue_are_checked(field: str) -> None:
    plan = plan_of(spec_from_mapping({"command": ["a"], "kueue": {"queue": "q", field: "a b"}}))
    assert [one.path for one in problems(plan, KubernetesProfile())] == [f"kueue.{field}"]
