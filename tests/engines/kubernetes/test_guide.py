"""The guide: its Role, its profile, and its commands, typed with the double of a cluster by a user
who has the rights of that Role."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.engines.grantees import Grantees
from muster.engines.kubernetes.profile import read_settings
from muster.engines.kubernetes.role import role, role_binding
from muster.engines.kubernetes.versions import Versions
from support.kube import Cluster
from support.kube.access import Rule
from support.kube_engine import require_client
from support.pages import ROOT, read_page, type_commands

#: They run real nodes in the double of a cluster.
pytestmark = pytest.mark.slow

PAGE = "docs/guides/kubernetes.md"


#: What stands for kubectl: it keeps what it is to apply, and answers as kubectl does.
KUBECTL = """#!/bin/sh
cat > "$0".applied
echo role.rbac.authorization.k8s.io/muster created
echo rolebinding.rbac.authorization.k8s.io/muster created
"""
GROUP = Grantees(groups=("researchers",))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    require_client()
    folder = tmp_path / "kube"
    folder.mkdir()
    with Cluster(folder, nodes=4, kueue=True) as made:
        yield made


def shown_role() -> dict[str, Any]:
    """The Role of the guide."""
    blocks = (ROOT / PAGE).read_text().split("```yaml\n")[1:]
    (found,) = [one.split("```")[0] for one in blocks if "kind: Role\n" in one]
    made: dict[str, Any] = yaml.safe_load(found)
    return made


def test_the_role_of_the_guide_is_what_runs_need() -> None:
    assert shown_role() == role(read_settings({}), Versions(), "research")


def test_the_profile_of_the_guide_is_valid() -> None:
    settings = tomllib.loads((ROOT / PAGE).read_text().split("```toml\n")[1].split("```")[0])
    assert settings.pop("kind") == "kubernetes"
    assert read_settings(settings).queue == "team-vision"


def test_the_commands_of_the_guide_work_with_its_role(
    cluster: Cluster, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [
        Rule(one["verbs"], one["resources"], one["apiGroups"], "research")
        for one in shown_role()["rules"]
    ]
    cluster.grant("token-of-ana", "ana", tuple(rules))
    cluster.add_namespace("research")
    cluster.add_queue("team-vision", {"cpu": "64", "memory": "1Ti"}, namespace="research")
    kubeconfig = cluster.write_kubeconfig("token-of-ana", "research", tmp_path / "kubeconfig")
    text = kubeconfig.read_text().replace('"test", "context"', '"gpu-cluster", "context"')
    kubeconfig.write_text(
        text.replace('"current-context": "test"', '"current-context": "gpu-cluster"')
    )
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    programs, folder, results = tmp_path / "bin", tmp_path / "own", tmp_path / "typed"
    for one in (programs, folder, results):
        one.mkdir()
    (programs / "kubectl").write_text(KUBECTL)
    (programs / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    (folder / "train.py").write_text("print('epoch 1/1')\n")
    page, image = read_page(PAGE), folder / "app"
    image.mkdir()
    (image / "train.py").write_text("print('from the image')\n")
    # pods of the double have the files of this machine
    spec = page.files["in-image.yaml"].replace(" /app\n", f" {image}\n")
    page.files["in-image.yaml"] = spec
    # what a check prints is about the cluster of the reader
    commands = [
        one._replace(output=[]) if "engines check" in one.text else one for one in page.commands
    ]
    type_commands(page, commands, folder, results)
    printed = {
        one.text: (results / f"{number}.out").read_text() for number, one in enumerate(commands)
    }
    assert printed["muster engines check kubernetes"].count("yes ") == 4
    (trained,) = [text for command, text in printed.items() if "run train.py" in command]
    assert trained.count("epoch 1/1") == 4
    (explained,) = [text for command, text in printed.items() if "explain job.yaml" in command]
    assert "kind: JobSet" in explained
    (packed,) = [text for command, text in printed.items() if "in-image.yaml" in command]
    assert packed.count("from the image") == 2
    for applied in (folder / "role.yaml", programs / "kubectl.applied"):
        granted, binding = yaml.safe_load_all(applied.read_text())
        assert granted == shown_role()
        assert binding == role_binding(GROUP, "research")
    cluster.until(lambda: cluster.left("research") == [], "nothing of the run is left")
