"""Runs with secrets, given files and host names, from specs and from manifests: what programs
get, and that secrets are shown and kept nowhere."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from muster.engines.local.namespaces import probe
from support.command import muster
from support.plugins import install_servers

PASSWORD, USER = "s3cr3t-qwerty", "admin-zz9"
INDEX = "batch.kubernetes.io/job-completion-index"
TESTS = Path(__file__).parents[1]
#: Prints digests of what is secret.
SCRIPT = """
sum() { md5sum | cut -c1-8; }
echo "level $LEVEL, $C_LEVEL, $OPT"
printf %s "$PASSWORD" | sum
printf %s "$CONN" | sum
printf %s "$0" | sum
cd "$MUSTER_MOUNT_APP"; cat app.conf
cd "$MUSTER_MOUNT_ALL"; sum < pw; sum < key.bin; cat pod; echo; cat index; echo
cat "$MUSTER_MOUNT_ONE_CONF"
touch "$MUSTER_MOUNT_SCRATCH/here"
"""
OBJECTS = f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: app}}
data:
  app.conf: |
    port = ${{PORT}}
  LEVEL: debug
---
apiVersion: v1
kind: Secret
metadata: {{name: db}}
data: {{PASSWORD: czNjcjN0LXF3ZXJ0eQ==, key.bin: /wD+AQ==}}
stringData: {{USER: {USER}}}
"""


def pod() -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", SCRIPT],
        "args": ["$(CONN)"],
        "envFrom": [
            {"configMapRef": {"name": "app"}},
            {"configMapRef": {"name": "app"}, "prefix": "C_"},
            {"secretRef": {"name": "db"}},
            {"secretRef": {"name": "none", "optional": True}},
        ],
        "env": [
            {"name": "OPT", "value": "x-$(LEVEL)"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "db", "key": "PASSWORD"}}},
            {"name": "CONN", "value": "$(USER):$(PW)@$(POD)"},
        ],
        "volumeMounts": [
            {"name": "app", "mountPath": "/mnt/app"},
            {"name": "all", "mountPath": "/mnt/all"},
            {"name": "app", "mountPath": "/mnt/one.conf", "subPath": "app.conf"},
            {"name": "data", "mountPath": "/mnt/scratch", "subPathExpr": "$(POD)/x"},
        ],
    }
    fields = [
        {"path": "pod", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "index", "fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}},
    ]
    keys = [{"key": "PASSWORD", "path": "pw"}, {"key": "key.bin", "path": "key.bin"}]
    sources = [{"secret": {"name": "db", "items": keys}}, {"downwardAPI": {"items": fields}}]
    volumes = [
        {"name": "app", "configMap": {"name": "app"}},
        {"name": "data", "emptyDir": {}},
        {"name": "all", "projected": {"defaultMode": 0o400, "sources": sources}},
    ]
    return {"restartPolicy": "Never", "containers": [container], "volumes": volumes}


def manifest() -> str:
    job = {"backoffLimit": 0, "template": {"spec": pod()}}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js"},
        "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": job}}]},
    }
    return f"{OBJECTS}---\n{json.dumps(jobset)}\n"


def short(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return hashlib.md5(data, usedforsecurity=False).hexdigest()[:8]


CONNECTION = f"{USER}:{PASSWORD}@js-w-0-0"
EXPECTED = f"""\
level debug, debug, x-debug
{short(PASSWORD)}
{short(CONNECTION)}
{short(CONNECTION)}
port = ${{PORT}}
{short(PASSWORD)}
{short(bytes([255, 0, 254, 1]))}
js-w-0-0
0
port = ${{PORT}}
"""
#: The secrets, and how they may be encoded.
LEAKS = (PASSWORD, USER, "czNjcjN0LXF3ZXJ0eQ", "/wD+AQ")


@pytest.fixture(params=["namespaces", "plain", "servers"])
def engine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Options that choose an engine."""
    if request.param == "servers":
        site = tmp_path / "site"
        install_servers(site)
        monkeypatch.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{site}")
        return ["--engine", "servers"]
    if request.param == "namespaces" and probe():
        pytest.skip("the kernel refuses namespaces")
    monkeypatch.setenv("MUSTER_ISOLATION", request.param)
    return []


def test_a_manifest_gets_its_values_and_nothing_shows_them(
    engine: list[str], own_home: Path, tmp_path: Path
) -> None:
    path = tmp_path / "js.yaml"
    path.write_text(manifest())
    done = muster("run", str(path), *engine, code=0)
    printed = [line.partition("| ")[2] or line for line in done.stdout.splitlines()]
    assert printed == EXPECTED.splitlines()
    shown = done.stdout + done.stderr
    for words in (
        ("explain", str(path)),
        ("status", "js-1", "--all"),
        ("status", "js-1", "--all", "--json"),
        ("events", "js-1", "--json"),
        ("ps", "--json"),
        ("jobs", "show", "js", "--json"),
        ("runs", "show", "js-1", "--json"),
        ("convert", str(path)),
        ("convert", str(path), "--to", "jobset"),
    ):
        again = muster(*words)
        shown += again.stdout + again.stderr
    kept = {
        str(file): file.read_bytes().decode(errors="replace")
        for file in own_home.rglob("*")
        if file.is_file()
    }
    for secret in LEAKS:
        assert secret not in shown
        assert [name for name, text in kept.items() if secret in text] == []
    assert "***" in shown
