"""Valid and invalid spec files, and the errors that users read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from muster.errors import InvalidInput, NotFound
from muster.spec.decode import names
from muster.spec.models import JobSpec, Logging, Mount, NodeGroup, Resources, StartupProbe
from muster.spec.policies import (
    Backoff,
    Checkpoint,
    DependsOn,
    FailurePolicy,
    FailureRule,
    SuccessPolicy,
)
from muster.spec.reader import read_spec, spec_from_mapping
from muster.spec.resolve import spec_from_json

POLICIES = (DependsOn, SuccessPolicy, FailurePolicy, FailureRule, Backoff, Checkpoint)
ALL_NAMES = [
    name
    for model in (JobSpec, NodeGroup, Resources, Mount, StartupProbe, Logging, *POLICIES)
    for name in names(model)
]


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
    "fields of other tools": (
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
            "job.yaml:1: command: must be a list, not a mapping (put a dash before each: - ..., or "
            "write [{...}])",
            "job.yaml:2: nodes: must be a whole number, not 'two'",
            "job.yaml:3: env: must be a mapping, not a list (write NAME: VALUE, without dashes)",
            "job.yaml:4: node_groups: must be a list, not 3",
            "job.yaml:5: tags: must be a mapping, not 'x'",
        ],
    ),
    "words of Kubernetes": (
        "command: x\nresources: {gpus: 'A100:8'}\nkubernetes:\n  exclusive: true\n"
        "  image_pull_secrets: [{name: reg}]\nenv: {TOKEN: {secretKeyRef: {name: a, key: b}}}\n",
        [
            "job.yaml:2: resources.gpus: must be a number of GPUs, not 'A100:8' (write 8; on "
            "Kubernetes, kubernetes.node_selector chooses their kind)",
            "job.yaml:4: kubernetes.exclusive: must be the key of a label of machines, not true "
            "(as in cloud.google.com/gke-nodepool)",
            "job.yaml:5: kubernetes.image_pull_secrets[0]: must be text, not a mapping (write reg)",
            "job.yaml:6: env.TOKEN: must be text, not a mapping (with engine kubernetes, patch the "
            "pod: kubernetes: {pod: {spec: {containers: [{name: node, env: [{name: ..., "
            "valueFrom: {secretKeyRef: ...}}]}]}}})",
        ],
    ),
    "names of secrets": (
        "command: x\nkubernetes: {image_pull_secrets: reg}\n",
        [
            "job.yaml:2: kubernetes.image_pull_secrets: must be a list, not 'reg' (write ['reg'])",
        ],
    ),
    "secrets": (
        "command: x\nsecrets: {a: '***', b: y}\nenv: {A: '${secret.b}', B: '$${c}'}\n",
        [
            "job.yaml:2: secrets.a: is what is shown in place of a secret (write the value itself)",
            "job.yaml:3: env.A: has no placeholders: ${secret.b} would stay as it is "
            "(write the variable in node_env of a group)",
        ],
    ),
    "true is not a number": (
        "command: x\nnodes: true\n",
        ["job.yaml:2: nodes: must be a whole number, not true"],
    ),
    "not one of the values": (
        "command: x\nstartup: sideways\n",
        [
            "job.yaml:2: startup: cannot be 'sideways' (use parallel or in_order)",
        ],
    ),
    "duplicate group": (
        "command: x\nnode_groups:\n  - name: a\n  - name: a\n",
        [
            "job.yaml:4: node_groups[1].name: node_groups[0] is already named 'a' "
            "(group names are unique)"
        ],
    ),
    "groups alike in host names": (
        "command: x\nnode_groups:\n  - name: NODE_GROUP_1\n  - name: Node-Group-1\n",
        [
            "job.yaml:4: node_groups[1].name: 'Node-Group-1' and 'NODE_GROUP_1' are both "
            "node-group-1 in host names (use names that differ in more than capitals, - and _)"
        ],
    ),
    "group name": (
        "command: x\nnode_groups:\n  - name: Workers!\n",
        [
            "job.yaml:3: node_groups[0].name: 'Workers!' is not a valid group name (use up to 40 "
            "letters, digits, - and _; start with a letter, end with a letter or digit)"
        ],
    ),
    "missing name": (
        "command: x\nnode_groups:\n  - nodes: 2\n",
        ["job.yaml:3: node_groups[0].name: is missing"],
    ),
    "env names": (
        "command: x\nenv:\n  1A: x\n  B-C: y\n  D: z\n",
        [
            "job.yaml:3: env.1A: '1A' is not a valid name of an environment variable (use letters, "
            "digits and _, not starting with a digit)",
            "job.yaml:4: env.B-C: 'B-C' is not a valid name of an environment variable (use "
            "letters, "
            "digits and _, not starting with a digit)",
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
        ["job.yaml:2: max_runtime: '31d' is too long (a run may take up to 30d)"],
    ),
    "not a duration": (
        "command: x\ngrace_period: soon\n",
        ["job.yaml:2: grace_period: 'soon' is not a duration (write 90s, 10m, 1h30m or 30d)"],
    ),
    "nodes and groups": (
        "command: x\nnodes: 2\nnode_groups:\n  - name: a\n",
        ["job.yaml:2: nodes: conflicts with node_groups (set it in the groups)"],
    ),
    "minimum": (
        "command: x\nnode_groups:\n  - {name: a, replicas: 2, min_success: 3}\n",
        [
            "job.yaml:3: node_groups[0].min_success: 3 replicas must succeed, but there are 2 "
            "(at most 2)"
        ],
    ),
    "maximum": (
        "command: x\nnode_groups:\n  - {name: a, replicas: 4, max_replicas: 3}\n",
        ["job.yaml:3: node_groups[0].max_replicas: 3 is fewer than replicas, 4 (at least 4)"],
    ),
    "too many nodes after scaling": (
        "command: x\nnode_groups:\n  - {name: a, max_replicas: 1000000}\n",
        ["job.yaml:2: node_groups: 1,000,000 nodes in all (a run can have 100,000)"],
    ),
    "equal names after scaling": (
        "command: x\nnode_groups:\n  - {name: a, max_replicas: 2, hostname: x}\n",
        [
            "job.yaml:3: node_groups[0].hostname: ranks 0 and 1 would both be named x "
            "(use ${rank} to make it unique)"
        ],
    ),
    "nothing to run": (
        "nodes: 2\n",
        ["job.yaml:1: nothing to run (give an artifact, a command or an image)"],
    ),
    "nothing to run in a group": (
        "node_groups:\n  - {name: a, command: x}\n  - {name: b}\n",
        [
            "job.yaml:3: node_groups[1]: nothing to run in group b "
            "(give it a command or an image, or the job an artifact)"
        ],
    ),
    "entry point without code": (
        "entrypoint: a.py\n",
        [
            "job.yaml:1: entrypoint: requires an artifact (give an artifact, or git)",
            "job.yaml:1: nothing to run (give an artifact, a command or an image)",
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
    "two mounts at one path": (
        "command: x\nmounts:\n  - source: /tmp/a\n  - {source: /var, path: a}\n",
        [
            "job.yaml:4: mounts[1]: /tmp/a and /var are both mounted at /mnt/a "
            "(give one of them another path)"
        ],
    ),
    "key given twice": (
        "command: x\nnodes: 1\nnodes: 2\n",
        ["job.yaml:3: nodes: given twice, first on line 2 (remove one)"],
    ),
    "broken YAML": (
        "command: [x\nb: }\n",
        [
            "job.yaml:2: not valid YAML: did not find expected ',' or ']' "
            "(check indentation, colons and quotes)"
        ],
    ),
    "errors and conflicts": (
        "command: x\nentrypoint: y\nbogus: 1\nnode_groups: [{name: a, nodes: 0}, {name: a}]\n",
        [
            "job.yaml:1: command: conflicts with entrypoint (keep only one of them)",
            "job.yaml:2: entrypoint: requires an artifact (give an artifact, or git)",
            "job.yaml:3: bogus: unknown field (`muster schema` lists all fields)",
            "job.yaml:4: node_groups[0].nodes: must be at least 1, not 0",
            "job.yaml:4: node_groups[1].name: node_groups[0] is already named 'a' "
            "(group names are unique)",
        ],
    ),
    "a misspelled field is not also missing": (
        "comand: x\nnode_groups:\n- {name: a, replicas: '4', min_success: 3}\n",
        [
            'job.yaml:1: comand: unknown field (did you mean "command"?)',
            "job.yaml:3: node_groups[0].replicas: must be a whole number, not '4' "
            "(without the quotes: 4)",
        ],
    ),
    "single items": (
        'command: [a, null]\nargs: [1, [2]]\nenv:\n  A:\n  B: "x\\0"\n',
        [
            'job.yaml:1: command[1]: must be text, not nothing (write "" for an empty text)',
            "job.yaml:2: args[1]: must be text, not a list",
            'job.yaml:4: env.A: must be text, not nothing (write "" for an empty text)',
            "job.yaml:5: env.B: contains a NUL character",
        ],
    ),
    "infinite values and zero": (
        "command: x\ngrace_period: .inf\nmax_runtime: 0\nresources:\n"
        "  cpus: .inf\n  memory: .inf\n",
        [
            "job.yaml:2: grace_period: inf is not a duration (write 90s, 10m, 1h30m or 30d)",
            "job.yaml:3: max_runtime: 0 is too short (give up to 30d, the default)",
            "job.yaml:5: resources.cpus: must be a finite number, not inf",
            "job.yaml:6: resources.memory: inf is not a size "
            "(write 4GiB, 500MB or a number of bytes)",
        ],
    ),
    "open quote in a command": (
        "command: echo \"it's\"\nargs: it's\n",
        [
            'job.yaml:2: args: "it\'s" has a quote that is not closed '
            "(complete it, or write a list of words)"
        ],
    ),
    "a shell's words in arguments": (
        "name: x\ncommand: a '|' b\nargs: train.py && echo done\n",
        [
            "job.yaml:3: args: contains &&, but no shell runs "
            "(quote && to pass it to the program; a shell runs only text in command)",
        ],
    ),
    "an open quote and a placeholder in commands": (
        "name: x\ncommand: |\n  cd src\n  echo it's\nnode_groups:\n"
        "- name: a\n  command: ./solve ${run.id}\n",
        [
            'job.yaml:2: command: "cd src\\necho it\'s\\n" has a quote that is not closed '
            "(complete it, or write a list of words)",
            "job.yaml:7: node_groups[0].command: ${run.id} is a placeholder, not a variable "
            "(in a command, use variables, such as $NODE_RANK; node_args can have placeholders)",
        ],
    ),
    "arguments that a shell does not pass on": (
        "command: for i in a b; do echo $i; done\nargs: x\n",
        [
            "job.yaml:2: args: a shell runs the command, which does not end with one program "
            'to pass them to (put them into the command, or write "$@" where they belong)',
        ],
    ),
    "the wrong quotes": (
        'name: 5\ncommand: x\nnodes: "4"\nlogging: {enabled: "no"}\n',
        [
            'job.yaml:1: name: must be text, not 5 (put it in quotes: "5")',
            "job.yaml:3: nodes: must be a whole number, not '4' (without the quotes: 4)",
            "job.yaml:4: logging.enabled: must be true or false, not 'no' (without the quotes: no)",
        ],
    ),
    "text instead of a mapping": (
        "command: x\nmounts: [/data]\nresources: 4\n",
        [
            "job.yaml:2: mounts[0]: must be a mapping, not '/data' (write {source: ...})",
            "job.yaml:3: resources: must be a mapping, not 4 (write {cpus: ...})",
        ],
    ),
    "too many nodes and processes": (
        "command: x\nprocesses_per_node: 5000\n"
        "node_groups: [{name: a, nodes: 1000, replicas: 1000}]\n",
        [
            "job.yaml:2: processes_per_node: must be at most 1024, not 5000",
            "job.yaml:3: node_groups: 1,000,000 nodes in all (a run can have 100,000)",
        ],
    ),
    "too many nodes": (
        "command: x\nnode_groups: [{name: a, nodes: 1000, replicas: 1000}]\n",
        ["job.yaml:2: node_groups: 1,000,000 nodes in all (a run can have 100,000)"],
    ),
    "too many processes": (
        "command: x\nnodes: 10_000\nprocesses_per_node: 1000\n",
        ["job.yaml:3: processes_per_node: 10,000,000 processes in all (a run can have 1,000,000)"],
    ),
    "invalid mount points": (
        "command: x\nmounts:\n- source: /\n- {source: /a, path: ../etc}\n"
        "- {source: /a, path: /proc/}\n- source: s3://\n",
        [
            "job.yaml:3: mounts[0]: / has no name for a mount point (give it a path)",
            "job.yaml:4: mounts[1].path: ../etc contains .. (write it without ..)",
            "job.yaml:5: mounts[2]: /a cannot be mounted over /proc (give it another path)",
            "job.yaml:6: mounts[3]: s3:// has no name for a mount point (give it a path)",
        ],
    ),
    "mounts of a group and the job at one path": (
        "command: x\nmounts: [{source: /a}]\nnode_groups:\n- {name: a, mounts: [{source: /b/a}]}\n",
        [
            "job.yaml:4: node_groups[0].mounts[0]: /a and /b/a are both mounted at /mnt/a "
            "(give one of them another path)"
        ],
    ),
    "a probe without a check": (
        "command: x\nstartup_probe: {period: 1}\n",
        [
            "job.yaml:2: startup_probe: has neither exec, tcp nor file "
            "(give exactly one of exec, tcp and file)"
        ],
    ),
    "empty programs": (
        'command: [""]\nstartup_probe: {exec: ""}\n',
        [
            "job.yaml:1: command: is empty (give a program to run)",
            "job.yaml:2: startup_probe.exec: is empty (give a program to run)",
        ],
    ),
    "name of a job": (
        "name: a b\ncommand: x\n",
        [
            "job.yaml:1: name: 'a b' is not a valid job name (use up to 255 letters, digits, "
            ". _ and -, starting with a letter or digit; display_name can be any text)"
        ],
    ),
    "minimum of the shorthand": (
        "command: x\nnodes: 4\nmin_success: 3\n",
        [
            "job.yaml:3: min_success: 3 replicas must succeed, but there is only 1 "
            "(give replicas, too)"
        ],
    ),
    "empty text": ('artifact: ""\n', ["job.yaml:1: artifact: must not be empty"]),
    "empty": ("", ["job.yaml: the file is empty (`muster schema` prints the fields)"]),
    "a list": ("- a\n", ["job.yaml:1: must be a mapping, not a list"]),
    "a manifest of another kind": (
        "apiVersion: v1\nkind: Pod\nspec: {}\n",
        [
            "job.yaml:2: kind: no JobSet or Job in this file, but Pod "
            "(Muster runs JobSets, Jobs and its own specs: `muster schema` prints their fields)"
        ],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_problems_are_reported_with_their_line(tmp_path: Path, case: str) -> None:
    text, expected = BAD[case]
    assert errors(tmp_path, text) == expected


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no such file \(check the path\)"):
        read_spec(tmp_path / "nope.yaml")


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="it is not UTF-8 text"):
        read_spec(tmp_path / "job.yaml")


def test_scalars_become_text_for_programs() -> None:
    spec = spec_from_mapping(
        {"command": "run --name 'a b'", "args": [1, True, "x"], "env": {"A": 1, "B": False}}
    )
    assert spec.command == ("run", "--name", "a b")
    assert spec.args == ("1", "true", "x")
    assert spec.env == {"A": "1", "B": "false"}


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
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
    ("file", "name"),
    [
        ("train.yaml", "train"),
        ("my job.yml", "my-job"),
        ("ünï.yml", "uni"),
        ("表.yml", "job"),
        ("job.yaml", "folder"),
    ],
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
        ({"source": "/x", "path": "//a/./b"}, "/a/b"),
        ({"source": "/x", "path": "."}, "/mnt"),
        ({"source": "https://host/data/x?sig=abc&token=d/e"}, "/mnt/x"),
    ],
)
def test_mount_destination(mount: dict[str, str], destination: str) -> None:
    spec = spec_from_mapping({"command": "x", "mounts": [mount]})
    assert spec.mounts[0].destination == destination


def test_text_for_programs_is_kept_as_written(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "command: [run, 010, 2024-01-01]\nargs: [1.10, yes, 12:30, =]\n"
        "env: {NO: off, Y: 1_000, E: 1e3}\ntags: {1: 0x10}\nnodes: 0x2\n"
    )
    spec = read_spec(tmp_path / "a.yaml")
    assert spec.command == ("run", "010", "2024-01-01")
    assert spec.args == ("1.10", "yes", "12:30", "=")
    assert spec.env == {"NO": "off", "Y": "1_000", "E": "1e3"}
    assert spec.tags == {"1": "0x10"}
    assert spec.nodes == 2


def test_an_empty_field_is_unset(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name:\ncommand: x\nenv:\nnode_groups:\nmax_runtime:\n")
    assert read_spec(tmp_path / "a.yaml") == JobSpec(name="a", command=("x",))


def test_home_directories_of_unknown_users(tmp_path: Path) -> None:
    spec = spec_from_mapping(
        {"artifact": "~unknown-user/x.py", "mounts": [{"source": "a/../../b"}]}, folder=tmp_path
    )
    assert spec.artifact == str(tmp_path / "~unknown-user/x.py")
    assert spec.mounts[0].source == str(tmp_path.parent / "b")


def test_bytes_that_are_not_valid_text() -> None:
    with pytest.raises(InvalidInput, match=r"env\.A: is not UTF-8 text"):
        spec_from_mapping({"command": "x", "env": {"A": "\udcff"}})


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(ALL_NAMES) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(names(JobSpec)), PLAIN, max_size=5) | PLAIN)
def test_any_data_is_a_spec_or_refused(data: object) -> None:
    try:
        spec = spec_from_mapping(data, source="job.yaml", lines={"": 1})
    except InvalidInput as error:
        assert error.problems
        assert all(str(problem).startswith("job.yaml:1: ") for problem in error.problems)
    else:
        assert spec_from_json(to_builtins(spec)) == spec


def test_the_old_name_of_a_scratch_directory() -> None:
    mounts = [{"source": "scratch:life/tmp", "path": "/tmp"}, {"source": "/scratch:life/x"}]
    spec = spec_from_mapping({"name": "a", "command": "x", "mounts": mounts})
    assert [mount.source for mount in spec.mounts] == ["scratch:incarnation/tmp", "/scratch:life/x"]


def test_a_very_long_key_is_cut_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"command: [echo]\n? {'A' * 9000}\n: 1\n")
    with pytest.raises(InvalidInput, match=r"job.yaml:2: A+\.\.\.A+: unknown field") as refused:
        read_spec(path)
    assert len(str(refused.value)) < 2000
