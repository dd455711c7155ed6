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
from muster.engines.local.network.addresses import wrapper
from support.command import muster
from support.faults import until

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
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options that choose an engine."""
    if request.param == "servers":
        return ["--engine", request.getfixturevalue("servers")]
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


def test_large_files_arrive_whole_also_in_restarts(engine: list[str], tmp_path: Path) -> None:
    """More than a socket takes at once."""
    content = "".join(f"{n:07d}\n" for n in range((1 << 20) // 8 - 2))
    files = {"large": content, "last": "${attempt}"}
    script = """
        cd $MUSTER_MOUNT_L; echo $(wc -c < large) $(tail -n1 large) $(cat last)
        exit $((1 - MUSTER_ATTEMPT))
    """
    job = {
        "name": "large",
        "command": ["sh", "-c", script],
        "mounts": [{"path": "l", "files": files}],
        "failure": {"max_restarts": 1, "strategy": "in_place"},
    }
    path = tmp_path / "large.json"
    path.write_text(json.dumps(job))
    done = muster("run", str(path), *engine, code=0)
    found = [line for line in done.stdout.splitlines() if "0131069" in line]
    assert [line.rpartition("0131069 ")[2] for line in found] == ["0", "1"]
    assert f" {len(content)} " in f" {found[0]}"


def test_replicas_of_an_array_get_their_own_files(engine: list[str], tmp_path: Path) -> None:
    """Also those that take over the place of another one, in folders of their own."""
    job = {
        "name": "each",
        "command": [
            "sh",
            "-c",
            "cat $MUSTER_MOUNT_F/lr; ls $MUSTER_MOUNT_D; touch $MUSTER_MOUNT_D/x",
        ],
        "array": {"lr": "1..4"},
        "parallelism": 1,
        "mounts": [
            {"path": "f", "files": {"lr": "lr ${param.lr}\n"}},
            {"path": "d", "source": "scratch:node/d", "sub_path": "of-${param.lr}"},
        ],
    }
    path = tmp_path / "each.json"
    path.write_text(json.dumps(job))
    done = muster("run", str(path), *engine, code=0)
    lines = [line.rpartition("lr ")[2] for line in done.stdout.splitlines()]
    assert lines == ["1", "2", "3", "4"]


def test_a_resumed_run_has_its_files_again(engine: list[str], tmp_path: Path) -> None:
    job = {
        "name": "again",
        "command": ["sh", "-c", "cat $MUSTER_MOUNT_F/at; test $MUSTER_ATTEMPT = 1 || sleep 1000"],
        "secrets": {"x": PASSWORD},
        "mounts": [{"path": "f", "files": {"at": "at ${attempt}\n", "x": "${secret.x}"}}],
    }
    path = tmp_path / "again.json"
    path.write_text(json.dumps(job))
    muster("run", str(path), "--detach", *engine, code=0)
    until(lambda: "at 0" in muster("logs", "again-1").stdout, "the program has printed")
    muster("runs", "suspend", "again-1", code=0)
    muster("runs", "resume", "again-1", code=0)
    done = muster("logs", "again-1", "--follow", code=0)
    assert "at 1" in done.stdout


def test_host_aliases(engine: list[str], tmp_path: Path) -> None:
    job = {
        "name": "names",
        "command": ["getent", "hosts", "db.example.com"],
        "host_aliases": {"10.9.8.7": ["db.example.com", "db"]},
    }
    path = tmp_path / "names.json"
    path.write_text(json.dumps(job))
    done = muster("run", str(path), *engine)
    if engine:
        assert "engine servers does not change the hosts files of its machines" in done.stderr
    elif os.environ["MUSTER_ISOLATION"] == "namespaces" or wrapper() is not None:
        assert "10.9.8.7" in done.stdout
    else:
        assert "host_aliases have no effect without namespaces" in done.stderr


def test_mounts_inside_a_read_only_one(tmp_path: Path) -> None:
    if probe():
        pytest.skip("the kernel refuses namespaces")
    script = """
        cat /mnt/app/a /mnt/app/sub/one /mnt/app/deep.conf
        touch /mnt/app/data/x && echo wrote; touch /mnt/app/y 2>&- || echo read-only
    """
    job = {
        "name": "nested",
        "command": ["sh", "-c", script],
        "mounts": [
            {"path": "app", "files": {"a": "a\n"}},
            {"path": "app/sub", "files": {"one": "one\n"}},
            {"path": "app/deep.conf", "sub_path": "x", "files": {"x": "deep\n"}},
            {"path": "app/data", "source": "scratch:node/d"},
        ],
    }
    path = tmp_path / "nested.json"
    path.write_text(json.dumps(job))
    done = muster("run", str(path), code=0)
    printed = [line.partition("| ")[2] for line in done.stdout.splitlines()]
    assert printed == ["a", "one", "deep", "wrote", "read-only"]


def test_a_killed_agent_leaves_no_files(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without namespaces they are on the disk, and the agent removes them."""
    monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    job = {
        "name": "killed",
        "command": ["sh", "-c", "kill -9 $PPID"],
        "secrets": {"x": PASSWORD},
        "mounts": [{"path": "f", "files": {"x": "${secret.x}"}}],
    }
    path = tmp_path / "killed.json"
    path.write_text(json.dumps(job))
    assert muster("run", str(path)).returncode != 0
    kept = [
        file.read_bytes().decode(errors="replace") for file in own_home.rglob("*") if file.is_file()
    ]
    assert not any(PASSWORD in text for text in kept)
