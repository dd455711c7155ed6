"""Spec files, good and bad: what a user reads when something is wrong is the product."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput, NotFound
from muster.spec.reader import read_spec, spec_from_mapping


def errors(folder: Path, text: str) -> list[str]:
    path = folder / "job.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_spec(path)
    return [str(p).replace(str(path), "job.yaml") for p in caught.value.problems]


BAD = {
    "unknown field": (
        "command: x\nframwork: pytorch\n",
        ['job.yaml:2: framwork: unknown field (did you mean "framework"?)'],
    ),
    "a neighbour's field": (
        "command: x\nnum_nodes: 2\nenvs: {}\n",
        [
            'job.yaml:2: num_nodes: unknown field (did you mean "nodes"?)',
            'job.yaml:3: envs: unknown field (did you mean "env"?)',
        ],
    ),
    "several at once, nested": (
        "command: x\nnode_groups:\n  - name: a\n    nodes: 0\n  - name: b\n    repliicas: 2\n",
        [
            "job.yaml:4: node_groups[0].nodes: must be at least 1, not 0",
            'job.yaml:6: node_groups[1].repliicas: unknown field (did you mean "replicas"?)',
        ],
    ),
    "wrong types": (
        "command: {a: b}\nnodes: two\nenv: [a]\nnode_groups: 3\ntags: x\n",
        [
            "job.yaml:1: command: must be a list, not a mapping",
            "job.yaml:3: env: must be a mapping, not a list",
            "job.yaml:2: nodes: must be a whole number, not 'two'",
            "job.yaml:4: node_groups: must be a list, not 3",
            "job.yaml:5: tags: must be a mapping, not 'x'",
        ],
    ),
    "true is no number": (
        "command: x\nnodes: true\n",
        ["job.yaml:2: nodes: must be a whole number, not true"],
    ),
    "not one of the values": (
        "command: x\nstartup: sideways\n",
        [
            "job.yaml:2: startup: 'sideways' is not one of the values allowed here "
            "(there are: parallel, in_order)"
        ],
    ),
    "duplicate group": (
        "command: x\nnode_groups:\n  - name: a\n  - name: a\n",
        [
            "job.yaml:4: node_groups[1].name: 'a' is the name of node_groups[0] already "
            "(group names are unique)"
        ],
    ),
    "group name": (
        "command: x\nnode_groups:\n  - name: Workers!\n",
        [
            "job.yaml:3: node_groups[0].name: 'Workers!' is not a name for a group; use up to 40 "
            "lower-case letters, digits and -, starting with a letter"
        ],
    ),
    "missing name": (
        "command: x\nnode_groups:\n  - nodes: 2\n",
        ["job.yaml:3: node_groups[0].name: is missing"],
    ),
    "env names": (
        "command: x\nenv: {1A: x, B-C: y, D: z}\n",
        [
            "job.yaml:2: env: '1A', 'B-C' cannot name an environment variable; use letters, "
            "digits and _, not starting with a digit"
        ],
    ),
    "env too long": (
        f"command: x\nenv: {{A: {'x' * 15000}}}\nnode_groups:\n"
        f"  - name: a\n    env: {{B: {'y' * 6000}}}\n",
        [
            "job.yaml:5: node_groups[0].env: 21,002 characters in names and values, 20,000 are "
            "allowed (put large values into a file)"
        ],
    ),
    "too long": (
        "command: x\nmax_runtime: 31d\n",
        ["job.yaml:2: max_runtime: '31d' is not more than 0 and at most 30d"],
    ),
    "no duration": (
        "command: x\ngrace_period: soon\n",
        ["job.yaml:2: grace_period: 'soon' is not a duration; write 90s, 10m, 1h30m or 30d"],
    ),
    "resources and shape": (
        "command: x\nshape: local\nresources: {cpus: 1}\n",
        [
            "job.yaml:3: resources: stands beside shape 'local', which says the same "
            "(keep the one you mean)"
        ],
    ),
    "nodes and groups": (
        "command: x\nnodes: 2\nnode_groups:\n  - name: a\n",
        [
            "job.yaml:2: nodes: cannot stand beside node_groups "
            "(say it for the groups it is meant for)"
        ],
    ),
    "minimum": (
        "command: x\nnode_groups:\n  - {name: a, replicas: 2, min_success: 3}\n",
        [
            "job.yaml:3: node_groups[0].min_success: 3 replicas cannot succeed where there are 2 "
            "(at most 2)"
        ],
    ),
    "nothing to run": (
        "nodes: 2\n",
        ["job.yaml:1: nothing to run (give an artifact or a command)"],
    ),
    "nothing to run in a group": (
        "node_groups:\n  - {name: a, command: x}\n  - {name: b}\n",
        ["job.yaml:1: nothing to run in group b (give an artifact or a command)"],
    ),
    "entry point without code": (
        "entrypoint: a.py\n",
        [
            "job.yaml:1: entrypoint: there is no artifact to look for it in (give an artifact)",
            "job.yaml:1: nothing to run (give an artifact or a command)",
        ],
    ),
    "probe": (
        "command: x\nstartup_probe: {tcp: 80, file: x}\n",
        [
            "job.yaml:2: startup_probe: has tcp and file (give exactly one of exec, tcp and file)",
        ],
    ),
    "port of a probe": (
        "command: x\nstartup_probe: {tcp: 80000}\n",
        ["job.yaml:2: startup_probe.tcp: must be at most 65535, not 80000"],
    ),
    "mounts that meet": (
        "command: x\nmounts:\n  - source: /tmp/a\n  - {source: /var, path: a}\n",
        [
            "job.yaml:2: mounts: /tmp/a and /var are both mounted at /mnt/a "
            "(give one of them another path)"
        ],
    ),
    "key given twice": (
        "command: x\nnodes: 1\nnodes: 2\n",
        ["job.yaml:3: nodes: given twice (first on line 2) (remove one)"],
    ),
    "broken YAML": (
        "command: [x\nb: }\n",
        [
            "job.yaml:2: not valid YAML: did not find expected ',' or ']' "
            "(check indentation, colons and quotes)"
        ],
    ),
    "empty": ("", ["job.yaml: the file is empty (see docs/spec.md)"]),
    "a list": ("- a\n", ["job.yaml:1: must be a mapping, not a list"]),
    "somebody else's manifest": (
        "apiVersion: v1\nkind: Pod\nspec: {}\n",
        [
            "job.yaml: kind: this is a Pod manifest, which this version cannot read "
            "(write a Muster spec (docs/spec.md))"
        ],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_with_its_place(tmp_path: Path, case: str) -> None:
    text, expected = BAD[case]
    assert errors(tmp_path, text) == expected


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no such file \(check the path\)"):
        read_spec(tmp_path / "nope.yaml")


def test_binary_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="it is not UTF-8 text"):
        read_spec(tmp_path / "job.yaml")


def test_scalars_become_what_a_program_expects() -> None:
    spec = spec_from_mapping(
        {"command": "run --name 'a b'", "args": [1, True, "x"], "env": {"A": 1, "B": False}}
    )
    assert spec.command == ("run", "--name", "a b")
    assert spec.args == ("1", "true", "x")
    assert spec.env == {"A": "1", "B": "false"}


def test_relative_paths_are_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "artifact: code\nentrypoint: a.py\nmounts:\n  - source: data\n  - source: s3://b/c\n"
        "  - source: host:/export\nnode_groups:\n  - {name: a, mounts: [{source: more}]}\n"
        "logging: {directory: logs}\n"
    )
    spec = read_spec(tmp_path / "job.yaml")
    assert spec.artifact == str(tmp_path / "code")
    assert [m.source for m in spec.mounts] == [
        str(tmp_path / "data"),
        "s3://b/c",
        "host:/export",
    ]
    assert spec.node_groups[0].mounts[0].source == str(tmp_path / "more")
    assert spec.logging.directory == str(tmp_path / "logs")


@pytest.mark.parametrize(
    ("file", "name"), [("train.yaml", "train"), ("my job.yml", "my-job"), ("job.yaml", "folder")]
)
def test_default_name(tmp_path: Path, file: str, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / file).write_text("command: x\n")
    assert read_spec(folder / file).name == name


def test_json_is_a_spec_too(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"command": ["x"], "nodes": 2}')
    assert read_spec(tmp_path / "a.json").nodes == 2


@pytest.mark.parametrize(
    ("mount", "destination"),
    [
        ({"source": "/data/set"}, "/mnt/set"),
        ({"source": "s3://bucket/pre/fix/"}, "/mnt/fix"),
        ({"source": "/x", "path": "a/b"}, "/mnt/a/b"),
        ({"source": "/x", "path": "/a/b/"}, "/a/b"),
    ],
)
def test_mount_destination(mount: dict[str, str], destination: str) -> None:
    spec = spec_from_mapping({"command": "x", "mounts": [mount]})
    assert spec.mounts[0].destination == destination
