"""Manifests that are kept as files: what jobs become in clusters of several versions.

To write them again, after a change of what is applied:

PYTHONPATH=tests python -m engines.kubernetes.golden
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from muster.engines.kubernetes.applied import shown
from muster.engines.kubernetes.profile import KubernetesProfile, read_settings
from muster.engines.kubernetes.versions import NEWEST_JOBSET, OLDEST_JOBSET, Version, Versions
from muster.plan.arrange import arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ResourcePlan, RunPlan
from muster.spec.formats.yaml_write import dump
from muster.spec.kinds import classify_source
from muster.spec.models import JobSpec
from muster.spec.override_models import RunOverrides
from muster.spec.reader import read_spec, spec_from_mapping
from muster.spec.resolve import resolve
from support.pages import ROOT

FOLDER = Path(__file__).with_name("manifests")
#: Part of the file's name -> the JobSet of the cluster; None: it has none.
JOBSETS: Mapping[str, Version | None] = {
    f"jobset-{'.'.join(map(str, NEWEST_JOBSET))}": NEWEST_JOBSET,
    f"jobset-{'.'.join(map(str, OLDEST_JOBSET))}": OLDEST_JOBSET,
    "no-jobset": None,
}
#: The newest three minor versions: what is applied is the same for all of them.
KUBERNETES: tuple[Version, ...] = ((1, 34), (1, 35), (1, 36))
#: Examples of this repository.
EXAMPLES = ("mpi", "pytorch-digits", "ray")
#: Other jobs, each with the settings of the profile.
JOBS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one-node": ({"command": ["true"]}, {}),
    "groups": (
        {
            "failure": {"max_restarts": 3},
            "node_groups": [
                {"name": "driver", "command": ["drive"], "image": "registry.test/driver:1"},
                {"name": "workers", "replicas": 2, "nodes": 4, "command": ["work"]},
            ],
            "tags": {"team": "vision", "a b": "no label"},
            "annotations": {"note": "any text"},
        },
        {"namespace": "research"},
    ),
    "resources": (
        {
            "command": ["train"],
            "nodes": 2,
            "resources": {"cpus": 0.5, "memory": "4GiB", "gpus": 2, "disk": "10GiB"},
            "kubernetes": {"resources": {"rdma/ib": 1}},
            "mounts": [{"source": "nfs://files/data", "path": "/data", "read_only": True}],
            "host_aliases": {"10.1.2.3": ["db"]},
        },
        {},
    ),
    "queue": (
        {
            "command": ["train"],
            "nodes": 2,
            "kueue": {"queue": "team-a", "priority": "high"},
            "max_runtime": "2h",
            "kubernetes": {
                "topology": {"required": "rack", "slice": "host", "slice_size": 2},
                "exclusive": "rack",
            },
        },
        {},
    ),
    "containers": (
        {
            "node_groups": [
                {
                    "name": "w",
                    "command": ["work"],
                    "image": "registry.test/w:1",
                    "container": {
                        "user": "1000:1000",
                        "groups": [7],
                        "cap_add": ["IPC_LOCK"],
                        "read_only": True,
                    },
                    "nodes": 2,
                    "mounts": [
                        {"source": "scratch:node/data", "path": "/data"},
                        {"source": "nfs://files/a", "path": "/a", "sub_path": "of-${rank}"},
                    ],
                    "extra_containers": [
                        {
                            "name": "load",
                            "role": "init",
                            "image": "load:1",
                            "command": ["load", "--cost=$(COST)"],
                            "node_args": ["--part=${index}", "/data"],
                            "mounts": [{"source": "scratch:node/data", "path": "/data"}],
                        },
                        {
                            "name": "log",
                            "role": "sidecar",
                            "image": "log:1",
                            "env": {"A": "1"},
                            "node_env": {"WHO": "${run.name}/${hostname} at ${address}"},
                        },
                        {"name": "more", "role": "main", "image": "more:1"},
                    ],
                }
            ]
        },
        {},
    ),
    "site": (
        {
            "command": ["train"],
            "kubernetes": {
                "node_selector": {"pool": "b"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "pod": {"spec": {"hostIPC": True}},
            },
        },
        {
            "contact": "dial",
            "address": "192.0.2.1",
            "ports": "7000-7100",
            "queue": "all",
            "service_account": "runs",
            "image_pull_secrets": ["registry-login"],
            "node_selector": {"pool": "a", "disk": "ssd"},
            "tolerations": [{"key": "team", "operator": "Exists"}],
        },
    ),
    "array": ({"command": ["train"], "array": {"n": "1..4"}, "parallelism": 2}, {}),
}


def plan_of(spec: JobSpec) -> RunPlan:
    return build_plan(
        arrange(resolve(spec, RunOverrides()).spec),
        Identity("r1", "demo-1", "j1", "demo"),
        artifact=None,
        addresses=lambda _network, nodes: [""] * nodes,
        source_kind=classify_source,
        shape_of=lambda name: ResourcePlan(shape=name),
    )


def profile_of(settings: Mapping[str, Any]) -> KubernetesProfile:
    """With an image that does not depend on the Python that runs here, and restarts by JobSet."""
    image = "docker.io/library/python:3.12-slim"
    return read_settings({"image": image, "decision_window": "10m", **settings})


def cases() -> Iterator[tuple[str, RunPlan, KubernetesProfile]]:
    """Each job: its name, its plan, and the profile of the engine."""
    for name in EXAMPLES:
        spec = read_spec(ROOT / "examples" / name / "job.yaml")
        yield name, plan_of(spec), profile_of({})
    for name, (data, settings) in JOBS.items():
        spec = spec_from_mapping({"name": "demo", **data})
        yield name, plan_of(spec), profile_of(settings)


def text_of(plan: RunPlan, profile: KubernetesProfile, versions: Versions) -> str:
    return "---\n".join(map(dump, shown(plan, profile, versions)))


def files() -> Iterator[tuple[Path, str]]:
    """Every file, with what is to be in it."""
    for name, plan, profile in cases():
        for variant, jobset in JOBSETS.items():
            yield FOLDER / f"{name}.{variant}.yaml", text_of(plan, profile, Versions(jobset=jobset))


if __name__ == "__main__":
    for old in FOLDER.glob("*.yaml"):
        old.unlink()
    FOLDER.mkdir(exist_ok=True)
    for path, text in files():
        path.write_text(text)
