"""What a spec may not ask for on a server of several people."""

from __future__ import annotations

from typing import Any

import pytest

from muster.plan.arrange import arrange
from muster.spec.models import JobSpec, Workload
from muster.spec.override_models import RunOverrides
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve
from muster.spec.separation import local_paths, owner_problems, workload_problems


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"artifact": "/home/ana/train.py"}, "artifact"),
        ({"artifact": "train.py"}, "artifact"),
        ({"git": {"url": "file:///srv/repo"}, "entrypoint": "a.py"}, "git.url"),
        ({"git": {"url": "/srv/repo"}, "entrypoint": "a.py"}, "git.url"),
        ({"git": {"url": "https://example.com/repo.git"}, "entrypoint": "a.py"}, ""),
        ({"git": {"url": "git@example.com:a/repo.git"}, "entrypoint": "a.py"}, ""),
        ({"command": "true", "requirements": ["torch", "/srv/wheels/x.whl"]}, "requirements[1]"),
        ({"command": "true", "requirements": ["-r more.txt"]}, "requirements[0]"),
        ({"command": "true", "requirements": ["x @ file:///srv/x"]}, "requirements[0]"),
        ({"command": "true", "requirements": ["x @ https://example.com/x.whl"]}, ""),
        ({"command": "true", "requirements": "requirements.txt"}, "requirements[0]"),
        ({"command": "true", "conda": "environment.yaml"}, "conda"),
        ({"command": "true", "conda": "dependencies: [python=3.11]\n"}, ""),
        ({"command": "true", "logging": {"directory": "/var/log"}}, "logging.directory"),
        ({"command": "true", "working_dir": "/srv"}, "working_dir"),
        ({"command": "true", "working_dir": "src"}, ""),
        ({"command": "true", "working_dir": "/mnt/data/x", "mounts": ["volume:data"]}, ""),
        ({"command": "true", "mounts": ["/srv/data"]}, "mounts[0].source"),
        ({"command": "true", "mounts": ["volume:a", "scratch:run/b", "s3://c/d"]}, ""),
        ({"command": "true", "mounts": ["file:///srv/data"]}, "mounts[0].source"),
        ({"command": "true", "mounts": ["zip://*.csv::file:///a.zip"]}, "mounts[0].source"),
        ({"command": "true", "mounts": ["zip://*.csv::/a.zip"]}, "mounts[0].source"),
        ({"command": "true", "mounts": ["zip://*.csv::s3://b/a.zip"]}, ""),
        ({"command": "true", "mounts": ["simplecache::s3://b/a"]}, ""),
        (
            {"node_groups": [{"name": "a", "command": "true", "mounts": ["/srv"]}]},
            "node_groups[a].mounts[0].source",
        ),
        (
            {"node_groups": [{"name": "a", "command": "true", "working_dir": "/srv"}]},
            "node_groups[a].working_dir",
        ),
    ],
)
def test_local_paths_are_named_with_their_place(fields: dict[str, Any], path: str) -> None:
    mounts = [{"source": one} for one in fields.pop("mounts", [])]
    groups = [
        {**group, "mounts": [{"source": one} for one in group.get("mounts", [])]}
        for group in fields.pop("node_groups", [])
    ]
    given = {"name": "demo", **fields, "mounts": mounts}
    if groups:
        given["node_groups"] = groups
    found = local_paths(spec_from_mapping(given))
    assert [problem.path for problem in found] == ([path] if path else [])
    assert all(problem.hint for problem in found)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"network": "shared"}, "network"),
        ({"network": "cluster"}, ""),
        ({"network": "isolated"}, ""),
        ({"mounts": [{"source": "nfs://server/a"}]}, "node_groups[workers].mounts[0].source"),
        (
            {"resources": {"disk": "1GiB", "disk_image": True}},
            "node_groups[workers].resources.disk_image",
        ),
    ],
)
def test_what_would_need_root_is_refused(fields: dict[str, Any], path: str) -> None:
    spec = spec_from_mapping({"name": "demo", "command": "true", "nodes": 2, **fields})
    arranged = arrange(resolve(spec, RunOverrides()).spec)
    assert [one.path for one in owner_problems(arranged.spec)] == ([path] if path else [])


@pytest.mark.parametrize(
    ("workload", "paths"),
    [
        (None, []),
        (Workload(manifest={"metadata": {"name": "a"}}), []),
        (Workload(manifest={}, uid="1"), ["workload.uid"]),
        (
            Workload(manifest={"metadata": {"namespace": "others"}}),
            ["workload.manifest.metadata.namespace"],
        ),
    ],
)
def test_a_server_neither_adopts_nor_leaves_its_namespace(
    workload: Workload | None, paths: list[str]
) -> None:
    found = workload_problems(JobSpec(workload=workload))
    assert [problem.path for problem in found] == paths
