"""ConfigMaps and Secrets beside a JobSet or Job: variables, files, and what is wrong with them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.secrets import hidden
from muster.spec.formats.convert import convert_file
from muster.spec.formats.documents import Manifest
from muster.spec.formats.jobset.write import write_jobset
from muster.spec.formats.manifests import read_manifest, read_manifests
from muster.spec.models import JobSpec, MountFile, NodeGroup
from muster.spec.reader import read_spec, spec_from_mapping
from support.jobset_manifests import MAIN, POD, Make, workers

PASSWORD = "correct-horse"
#: JobSet: of the only Job of the workers.
KEY = hashlib.sha1(b"default/demo-workers-0", usedforsecurity=False).hexdigest()


def encoded(data: str | bytes) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def config_map(name: str = "app", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


def secret(name: str = "db", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **fields}


APP = config_map(
    data={"LEVEL": "debug", "app.conf": "${rank}\n", "2X": "y"},
    binaryData={"blob": encoded(b"\xff\x00")},
)
DB = secret(
    data={"PASSWORD": encoded(PASSWORD), "raw": encoded(b"\xff\x00"), "USER": encoded("old")},
    stringData={"USER": "ann"},
)


@pytest.fixture
def put(tmp_path: Path, make: Make) -> Callable[..., Path]:
    """Write the JobSet of `make` with changes, and these objects, into one file."""

    def written(changes: dict[str, Any], *objects: Any) -> Path:
        path = tmp_path / "all.yaml"
        path.write_text("---\n".join(f"{json.dumps(one)}\n" for one in (*objects, make(changes))))
        return path

    return written


Put = Callable[..., Path]


def from_key(kind: str, name: str, key: str, **more: Any) -> dict[str, Any]:
    return {"valueFrom": {f"{kind}KeyRef": {"name": name, "key": key, **more}}}


def group_of(path: Path) -> NodeGroup:
    return workers(read_manifest(path))


# --- variables


def test_variables_of_objects_by_kubernetes_rules_of_precedence(put: Put) -> None:
    changes = {
        f"{MAIN}.envFrom": [
            {"configMapRef": {"name": "app"}},
            {"configMapRef": {"name": "more"}},
            {"configMapRef": {"name": "more"}, "prefix": "M_"},
            {"secretRef": {"name": "db"}},
            {"secretRef": {"name": "none", "optional": True}},
        ],
        f"{MAIN}.env": [
            {"name": "KEPT", **from_key("configMap", "app", "none", optional=True)},
            {"name": "NOT_SET", **from_key("secret", "none", "x", optional=True)},
            {"name": "COPY", "value": "$(LEVEL)/$(USER)"},
            {"name": "LEVEL", "value": "own"},
            {"name": "PW", **from_key("secret", "db", "PASSWORD")},
            {"name": "URL", "value": "db://$(USER):$(PW)@$(POD)"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        f"{MAIN}.args": ["$(LEVEL)", "--password=$(PW)", "$$(PW)"],
    }
    more = config_map("more", data={"LEVEL": "info", "KEPT": "1"})
    texts = secret(data={"PASSWORD": encoded(PASSWORD)}, stringData={"USER": "ann"})
    manifest = read_manifest(put(changes, APP, more, texts))
    group = workers(manifest)
    assert group.env == {"LEVEL": "own", "KEPT": "1", "M_LEVEL": "info", "M_KEPT": "1"}
    assert group.node_env == {
        "PASSWORD": "${secret.db.PASSWORD}",
        "USER": "${secret.db.USER}",
        "COPY": "info/${secret.db.USER}",
        "PW": "${secret.db.PASSWORD}",
        "URL": "db://${secret.db.USER}:${secret.db.PASSWORD}@$(POD)",
        "POD": "${hostname}",
        "JOB_COMPLETION_INDEX": "${index}",
    }
    assert group.args == ("own",)
    assert group.node_args == ("--password=${secret.db.PASSWORD}", "$(PW)")
    assert manifest.spec.secrets == {"db.PASSWORD": PASSWORD, "db.USER": "ann"}
    skipped = "app.conf, 2X of ConfigMap app (workers) cannot name variables"
    assert [note for note in manifest.notes if note.startswith(skipped)]


def test_no_secret_is_outside_of_the_secrets(put: Put) -> None:
    changes = {
        f"{MAIN}.env": [{"name": "HARMLESS", **from_key("secret", "db", "PASSWORD")}],
        f"{MAIN}.args": ["$(HARMLESS)"],
        f"{POD}.volumes": [{"name": "s", "secret": {"secretName": "db"}}],
        f"{MAIN}.volumeMounts": [{"name": "s", "mountPath": "/s"}],
    }
    path = put(changes, DB)
    for to in ("muster", "jobset"):
        text, *_ = convert_file(path, None, to)
        assert PASSWORD not in text
        assert encoded(b"\xff\x00") not in text
        assert PASSWORD in convert_file(path, None, to, secrets=True)[0]


# --- files


VOLUMES: dict[str, tuple[dict[str, Any], dict[str, MountFile]]] = {
    "all keys": (
        {"configMap": {"name": "app"}},
        {
            "LEVEL": MountFile(text="debug"),
            "app.conf": MountFile(text="$${rank}\n"),
            "2X": MountFile(text="y"),
            "blob": MountFile(base64="/wA="),
        },
    ),
    "items and modes": (
        {
            "configMap": {
                "name": "app",
                "defaultMode": 0o440,
                "items": [
                    {"key": "LEVEL", "path": "a/level"},
                    {"key": "2X", "path": "x", "mode": 0o400},
                ],
            }
        },
        {
            "a/level": MountFile(text="debug", mode="0440"),
            "x": MountFile(text="y", mode="0400"),
        },
    ),
    "a Secret": (
        {"secret": {"secretName": "db", "defaultMode": 0o400}},
        {
            "PASSWORD": MountFile(text="${secret.db.PASSWORD}", mode="0400"),
            "USER": MountFile(text="${secret.db.USER}", mode="0400"),
            "raw": MountFile(base64="${secret.db.raw}", mode="0400"),
        },
    ),
    "fields of the pod": (
        {
            "downwardAPI": {
                "items": [
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.annotations"}},
                    {
                        "path": "cpu",
                        "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"},
                    },
                ]
            }
        },
        {
            "name": MountFile(text="${hostname}"),
            "labels": MountFile(
                text='batch.kubernetes.io/job-completion-index="${index}"\n'
                'jobset.sigs.k8s.io/global-replicas="2"\n'
                'jobset.sigs.k8s.io/group-name="default"\n'
                'jobset.sigs.k8s.io/group-replicas="2"\n'
                'jobset.sigs.k8s.io/job-global-index="1"\n'
                'jobset.sigs.k8s.io/job-group-index="1"\n'
                'jobset.sigs.k8s.io/job-index="${replica}"\n'
                f'jobset.sigs.k8s.io/job-key="{KEY}"\n'
                'jobset.sigs.k8s.io/jobset-name="demo"\n'
                'jobset.sigs.k8s.io/jobset-uid="${run.id}"\n'
                'jobset.sigs.k8s.io/replicatedjob-name="${group}"\n'
                'jobset.sigs.k8s.io/replicatedjob-replicas="1"\n'
                'jobset.sigs.k8s.io/restart-attempt="${run.restarts}"\n'
                'own="a \\"b\\""'
            ),
            "cpu": MountFile(text="2"),
        },
    ),
    "several sources, the last of which wins": (
        {
            "projected": {
                "sources": [
                    {"configMap": {"name": "app", "items": [{"key": "2X", "path": "p"}]}},
                    {"secret": {"name": "db", "items": [{"key": "PASSWORD", "path": "p"}]}},
                    {"configMap": {"name": "none", "optional": True}},
                    {
                        "secret": {
                            "name": "db",
                            "optional": True,
                            "items": [{"key": "no", "path": "q"}],
                        }
                    },
                ]
            }
        },
        {"p": MountFile(text="${secret.db.PASSWORD}")},
    ),
}


@pytest.mark.parametrize("case", VOLUMES)
def test_volumes_become_files(case: str, put: Put) -> None:
    volume, expected = VOLUMES[case]
    changes = {
        f"{POD}.volumes": [{"name": "v", **volume}],
        f"{MAIN}.volumeMounts": [{"name": "v", "mountPath": "/etc/v"}],
        f"{MAIN}.resources": {"limits": {"cpu": "2"}},
        "spec.replicatedJobs[1].template.spec.template.metadata": {"annotations": {"own": 'a "b"'}},
    }
    mount = group_of(put(changes, APP, DB)).mounts[0]
    assert (mount.path, mount.source, mount.sub_path) == ("/etc/v", None, None)
    assert mount.files == expected


def test_parts_of_volumes(put: Put) -> None:
    changes = {
        f"{POD}.volumes": [
            {"name": "app", "configMap": {"name": "app"}},
            {"name": "data", "hostPath": {"path": "/data"}},
        ],
        f"{MAIN}.env": [{"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        f"{MAIN}.volumeMounts": [
            {"name": "app", "mountPath": "/etc/app.conf", "subPath": "app.conf"},
            {"name": "data", "mountPath": "/d", "subPath": "./a//b/"},
            {"name": "data", "mountPath": "/e", "subPathExpr": "x/$(P)", "readOnly": True},
        ],
    }
    one, two, three, _ = group_of(put(changes, APP)).mounts
    assert (list(one.files), one.sub_path) == (["app.conf"], "app.conf")
    assert (two.source, two.sub_path) == ("/data", "a/b")
    assert (three.sub_path, three.read_only) == ("x/${hostname}", True)


def test_an_optional_volume_that_is_missing_is_an_empty_folder(put: Put) -> None:
    changes = {
        f"{POD}.volumes": [{"name": "v", "secret": {"secretName": "no", "optional": True}}],
        f"{MAIN}.volumeMounts": [{"name": "v", "mountPath": "/etc/v"}],
    }
    assert group_of(put(changes)).mounts[0].source == "scratch:incarnation/v"


# --- problems


def env(*one: dict[str, Any]) -> dict[str, Any]:
    return {f"{MAIN}.env": [{"name": "A", **each} for each in one]}


def volume(one: dict[str, Any]) -> dict[str, Any]:
    return {f"{POD}.volumes": [{"name": "v", **one}]}


WRONG: dict[str, tuple[dict[str, Any], list[Any], str]] = {
    "no such object": (
        env(from_key("configMap", "ap", "x")),
        [APP],
        "there is no ConfigMap 'ap' in all.yaml (did you mean \"app\"?)",
    ),
    "nothing like it": (
        env(from_key("secret", "tokens", "x")),
        [],
        "there is no Secret 'tokens' in all.yaml (add it to the file, or run a folder with both; "
        "`kubectl get secret tokens -o yaml` prints that of a cluster)",
    ),
    "no such key": (
        env(from_key("configMap", "app", "LEVLE")),
        [APP],
        "ConfigMap app (all.yaml:1) has no key 'LEVLE' (did you mean \"LEVEL\"?)",
    ),
    "no such key in a volume": (
        volume({"secret": {"secretName": "db", "items": [{"key": "x", "path": "p"}]}}),
        [DB],
        "Secret db (all.yaml:1) has no key 'x' (use PASSWORD, USER or raw)",
    ),
    "a variable of bytes": (
        env(from_key("secret", "db", "raw")),
        [DB],
        "Secret db (all.yaml:1): raw is no text (mount it as a file)",
    ),
    "another namespace": (
        {"metadata.namespace": "ml", **env(from_key("secret", "db", "USER"))},
        [{**DB, "metadata": {"name": "db", "namespace": "web"}}],
        "Secret db (all.yaml:1) is in namespace web, not in ml (give both the same namespace)",
    ),
    "twice": (
        env(from_key("secret", "db", "USER")),
        [DB, DB],
        "Secret db is given twice: all.yaml:1 and all.yaml:3 (remove one of them)",
    ),
    "a number": (
        env(from_key("configMap", "app", "PORT")),
        [config_map(data={"PORT": 80})],
        'ConfigMap app (all.yaml:1): data.PORT must be text, not 80 (put it in quotes: "80")',
    ),
    "a number that is secret": (
        env(from_key("secret", "db", "PIN")),
        [secret(stringData={"PIN": 4711})],
        "Secret db (all.yaml:1): stringData.PIN must be text (put it in quotes)",
    ),
    "not base64": (
        env(from_key("secret", "db", "P")),
        [secret(data={"P": PASSWORD})],
        "Secret db (all.yaml:1): data.P is not base64 (encode it: base64 FILE)",
    ),
    "an unknown field": (
        env(from_key("configMap", "app", "P")),
        [config_map(dat={"P": "x"})],
        "ConfigMap app (all.yaml:1) has no field 'dat' (use data or binaryData)",
    ),
    "a key with a space": (
        env(from_key("configMap", "app", "a b")),
        [config_map(data={"a b": "x"})],
        "ConfigMap app (all.yaml:1): data.a b is not a valid key (use letters, digits, -, _ and .)",
    ),
    "envFrom without an object": (
        {f"{MAIN}.envFrom": [{"prefix": "A_"}]},
        [],
        "names no object (give it a configMapRef or a secretRef)",
    ),
    "a path that leads out": (
        volume({"configMap": {"name": "app", "items": [{"key": "2X", "path": "../x"}]}}),
        [APP],
        "'../x' is not a path in the volume (write it without / and ..)",
    ),
    "a part that is none of the files": (
        {
            **volume({"configMap": {"name": "app"}}),
            f"{MAIN}.volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "ap.conf"}],
        },
        [APP],
        "'ap.conf' is none of the files (did you mean \"app.conf\"?)",
    ),
    "a part that changes with the attempt": (
        {
            **volume({"hostPath": {"path": "/d"}}),
            f"{MAIN}.env": [
                {
                    "name": "A",
                    "valueFrom": {
                        "fieldRef": {
                            "fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
                        }
                    },
                }
            ],
            f"{MAIN}.volumeMounts": [{"name": "v", "mountPath": "/x", "subPathExpr": "$(A)"}],
        },
        [],
        "${run.restarts} cannot be in the path of a mount",
    ),
    "two addresses of a name": (
        {
            f"{POD}.hostAliases": [
                {"ip": "10.0.0.1", "hostnames": ["a"]},
                {"ip": "10.0.0.2", "hostnames": ["a"]},
            ]
        },
        [],
        "a is 10.0.0.1 elsewhere in this manifest (nodes of a run know the same names)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_without_secrets(
    case: str, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, objects, expected = WRONG[case]
    path = put(changes, *objects)
    monkeypatch.chdir(path.parent)
    with pytest.raises(InvalidInput) as caught:
        read_manifests(Path(path.name))
    texts = [str(problem) for problem in caught.value.problems]
    assert len(texts) == 1, texts
    assert expected in texts[0]
    assert PASSWORD not in texts[0]


# --- files and folders


def test_objects_in_other_files_of_a_folder(put: Put, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "jobs.yaml").write_text(put(env(from_key("secret", "db", "USER"))).read_text())
    (folder / "secret.yaml").write_text(json.dumps(DB))
    (folder / "unused.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [APP]})
    )
    (manifest,) = read_manifests(folder)
    assert manifest.spec.secrets == {"db.USER": "ann"}
    assert f"ConfigMap app ({folder}/unused.json:1) is not needed" in manifest.notes
    assert not any("Secret" in note for note in manifest.notes)


def test_a_job_has_them_too(tmp_path: Path) -> None:
    container = {"name": "c", "image": "x", "command": ["true"], "env": []}
    container |= {"envFrom": [{"secretRef": {"name": "db"}, "prefix": "DB_"}]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    job |= {"spec": {"template": {"spec": pod}}}
    path = tmp_path / "job.yaml"
    path.write_text(f"{json.dumps(secret(stringData={'USER': 'ann'}))}\n---\n{json.dumps(job)}")
    spec = read_spec(path)
    assert spec.node_groups[0].node_env["DB_USER"] == "${secret.db.USER}"
    assert spec.secrets == {"db.USER": "ann"}


# --- back


def again(path: Path) -> tuple[Manifest, JobSpec]:
    """The manifest, and the spec that is read from what is written of it."""
    manifest = read_manifest(path)
    written = write_jobset(manifest.spec)
    back = path.with_name("back.yaml")
    documents = (*written.objects, written.data)
    back.write_text("---\n".join(f"{json.dumps(one)}\n" for one in documents))
    return manifest, read_manifest(back).spec


@pytest.mark.parametrize("case", [case for case in VOLUMES if case != "fields of the pod"])
def test_files_can_be_written_as_volumes(case: str, put: Put) -> None:
    changes = {
        f"{POD}.volumes": [{"name": "v", **VOLUMES[case][0]}],
        f"{MAIN}.volumeMounts": [{"name": "v", "mountPath": "/etc/v"}],
        f"{MAIN}.env": [{"name": "PW", **from_key("secret", "db", "PASSWORD")}],
    }
    manifest, back = again(put(changes, APP, DB))
    (mount, _), (mount_again, _) = workers(manifest).mounts, back.node_groups[1].mounts
    assert mount_again == mount
    assert back.secrets == manifest.spec.secrets
    assert back.node_groups[1].node_env["PW"] == "${secret.db.PASSWORD}"


def test_host_names_are_kept(put: Put) -> None:
    aliases = [{"ip": "10.0.0.1", "hostnames": ["a", "a.example.com"]}]
    manifest, back = again(put({f"{POD}.hostAliases": aliases}))
    assert manifest.spec.host_aliases == {"10.0.0.1": ("a", "a.example.com")}
    assert back.host_aliases == manifest.spec.host_aliases
    assert any(note.startswith("hostAliases of one replicated Job") for note in manifest.notes)


def test_secrets_of_a_spec_are_hidden_whatever_their_names() -> None:
    data = {"secrets": {"harmless": "x1", "empty": ""}, "env": {"harmless": "x1"}}
    assert hidden(data) == {
        "secrets": {"harmless": "***", "empty": ""},
        "env": {"harmless": "x1"},
    }


def test_a_secret_of_the_project_is_a_reference_and_a_note() -> None:
    group = {"name": "all", "image": "x", "node_env": {"A": "${secret.hf-token}"}}
    spec = spec_from_mapping({"name": "j", "command": ["true"], "node_groups": [group]})
    written = write_jobset(spec)
    assert written.objects == ()
    (loss,) = (one for one in written.losses if "Secret" in one.why)
    assert loss.path == "node_groups[all].node_env.A"
    assert "needs a Secret j-secrets with the key hf-token" in loss.why
