"""Rules for the other containers of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.spec.models import JobSpec
from muster.spec.override_models import RunOverrides
from muster.spec.paths import absolute_paths
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve


def spec_of(*containers: dict[str, Any], **more: Any) -> JobSpec:
    given = [{"name": "c", "role": "sidecar", "image": "i", **one} for one in containers]
    group = {"name": "w", "extra_containers": given}
    return spec_from_mapping({"name": "j", "command": ["true"], "node_groups": [group], **more})


FILE = {"path": "/etc/a", "files": {"x": "${secret.s}"}}
PROBE = {"startup_probe": {"tcp": 80}}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "role": ({"role": "helper"}, ".role: cannot be 'helper' (use init, sidecar or main)"),
    "image": ({"image": ""}, ".image: "),
    "command": ({"command": []}, ".command: is empty"),
    "folder": ({"working_dir": "srv"}, ".working_dir: srv is not an absolute path (write /srv)"),
    "probe": ({**PROBE, "role": "init"}, ".startup_probe: cannot be given for the role init"),
    "no check": ({"startup_probe": {}}, ".startup_probe: has neither exec, tcp nor file"),
    "gpus": ({"resources": {"gpus": 1}}, ".resources.gpus: only the container of the program"),
    "python": ({"container": {"python": "/p"}}, ".container.python: only the container of the"),
    "link": ({"mounts": [{"source": "/d", "link": "d"}]}, ".mounts[0].link: only the container"),
    "url": ({"mounts": [{"source": "s3://b/d"}]}, ".mounts[0].source: only the container of"),
    "part": (
        {"mounts": [{"source": "/d", "sub_path": "${rank}"}]},
        ".mounts[0].sub_path: cannot have placeholders here",
    ),
    "nothing": ({"mounts": [{"path": "/a"}]}, ".mounts[0]: has neither source nor files"),
    "variable": ({"node_env": {"A": "${rnak}"}}, ".node_env.A: no placeholder named ${rnak}"),
    "word": ({"node_args": ["${rnak}"]}, ".node_args[0]: no placeholder named ${rnak}"),
    "both": ({"env": {"A": "1"}, "node_env": {"A": "2"}}, ".node_env.A: A is also in env"),
}


@pytest.mark.parametrize(("container", "text"), WRONG.values(), ids=WRONG)
def test_wrong_containers(container: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        resolve(spec_of(container), RunOverrides())
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"node_groups[0].extra_containers[0]{text}")


def test_names_are_unique() -> None:
    with pytest.raises(InvalidInput, match=r"containers\[1\].name: another one is named c"):
        resolve(spec_of({}, {}), RunOverrides())


def test_secrets_in_plain_variables() -> None:
    with pytest.raises(InvalidInput, match=r"\[0\].env.A: has no placeholders: \$\{secret.s\}"):
        resolve(spec_of({"env": {"A": "${secret.s}"}}, secrets={"s": "x"}), RunOverrides())


def test_a_complete_one() -> None:
    one = {**PROBE, "mounts": [FILE], "node_env": {"R": "${rank}"}, "container": {"user": "5"}}
    resolve(spec_of(one, secrets={"s": "x"}), RunOverrides())


def test_sources_are_relative_to_the_file() -> None:
    group = {"extra_containers": [{"mounts": [{"source": "data"}]}]}
    made = absolute_paths(group, Path("/jobs"))
    assert made["extra_containers"][0]["mounts"][0]["source"] == "/jobs/data"
