"""Fixtures: a manifest with changes, and its reading."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.spec.formats.documents import Manifest
from muster.spec.formats.manifests import read_manifest
from support.jobset_manifests import Make, Problems, Read


def _replicated(name: str, pods: int) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["echo", "hello"]}
    return {
        "name": name,
        "template": {
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "backoffLimit": 0,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            }
        },
    }


@pytest.fixture
def make() -> Make:
    """A JobSet `demo` with a driver (1 pod) and workers (2 pods), and these changes."""

    def made(changes: dict[str, Any]) -> dict[str, Any]:
        data: dict[str, Any] = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "demo"},
            "spec": {"replicatedJobs": [_replicated("driver", 1), _replicated("workers", 2)]},
        }
        for path, value in changes.items():
            _set(data, path, value)
        return data

    return made


def _set(data: Any, path: str, value: Any) -> None:
    steps: list[Any] = [
        int(number) if number else name for name, number in re.findall(r"([\w-]+)|\[(\d+)\]", path)
    ]
    for step, following in pairwise(steps):
        if isinstance(step, str) and step not in data:
            data[step] = [] if isinstance(following, int) else {}
        elif isinstance(step, int) and step == len(data):
            data.append({})
        data = data[step]
    if value is None:
        data.pop(steps[-1], None) if isinstance(data, dict) else data.pop(steps[-1])
    elif isinstance(data, list) and steps[-1] == len(data):
        data.append(value)
    else:
        data[steps[-1]] = value


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read data or text that is one manifest."""

    def reading(data: Any) -> Manifest:
        path = tmp_path / "jobset.yaml"
        path.write_text(data if isinstance(data, str) else json.dumps(data, indent=1))
        return read_manifest(path)

    return reading


@pytest.fixture
def problems(read: Read) -> Problems:
    """The problems of a manifest, without the name of its file."""

    def wrong(data: Any) -> list[str]:
        with pytest.raises(InvalidInput) as caught:
            read(data)
        return [str(problem._replace(source="")) for problem in caught.value.problems]

    return wrong
