"""Files and folders with manifests and other documents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.spec import yaml
from muster.spec.formats import documents as module
from muster.spec.formats.manifests import read_manifests
from muster.spec.reader import is_manifest, read_spec

JOBSET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: NAME
spec:
  replicatedJobs:
  - name: workers
    template:
      spec:
        template:
          spec:
            containers:
            - name: main
              command: [echo, hello]
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: NAME
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        command: [echo, hello]
"""
ACCOUNT = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: me}\n"


def jobset(name: str) -> str:
    return JOBSET.replace("NAME", name)


def job(name: str) -> str:
    return JOB.replace("NAME", name)


def wrong(path: Path, name: str | None = None) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        read_manifests(path, name)
    return [str(p).replace(f"{path.parent}/", "") for p in caught.value.problems]


def test_several_documents(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(f"---\n# nothing\n---\n{ACCOUNT}---\n{jobset('a')}---\n{jobset('b')}...\n")
    first, second = read_manifests(path)
    assert (first.spec.name, second.spec.name) == ("a", "b")
    assert first.notes == (f"ServiceAccount me ({path}:4) is not needed",)
    assert second.notes == ()
    assert second.place == f"{path}:23"
    assert read_spec(path, "b").name == "b"


def test_each_of_many_documents_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document is read without empty lines for the documents above it."""
    read = []

    def load(text: str, *args: Any, **named: Any) -> tuple[Any, dict[str, int]]:
        read.append(text)
        return yaml.load(text, *args, **named)

    monkeypatch.setattr(module, "load", load)
    text = "---\nkind: X\n" * 50
    found = module.documents(text, "all.yaml")
    assert "".join(read) == text
    assert [document.lines["kind"] for document in found] == [*range(2, 101, 2)]
    with pytest.raises(InvalidInput, match=r"all.yaml:103: kind: given twice, first on line 102"):
        module.documents(f"{text}---\nkind: Y\nkind: Z\n", "all.yaml")


def test_lines_of_a_list_are_visited_once() -> None:
    class Lines(dict[str, int]):
        looked = 0

        def items(self) -> Any:
            self.looked += 1
            return super().items()

    data = {"kind": "List", "items": [{"kind": "X"}, {"kind": "List", "items": [{"a": 1}]}] * 50}
    lines = Lines({"": 1, "items": 2})
    for number in range(100):
        lines[f"items[{number}]"] = number
        lines[f"items[{number}].items[0].a"] = number
    found = list(module.objects(module.Document(data, lines, "all.yaml")))
    assert [document.data for document in found] == [{"kind": "X"}, {"a": 1}] * 50
    assert found[2].lines == {"": 2, "items[0].a": 2}
    assert found[3].lines == {"a": 3}
    assert lines.looked == 1


def test_one_of_several_manifests_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(f"{jobset('a')}---\n{jobset('b')}")
    with pytest.raises(InvalidInput, match=r"there are 2 jobs here: a, b \(name one: .*#a\)"):
        read_spec(path)
    assert wrong(path, "c") == ["#c: no job of that name in all.yaml (use a or b)"]


def test_a_folder_of_manifests(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(jobset("b"))
    (tmp_path / "a.yml").write_text(jobset("a"))
    (tmp_path / "account.yaml").write_text(ACCOUNT)
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    (tmp_path / "chart.yaml").write_text("apiVersion: v1\nname: {{ .Release.Name }}\n")
    (tmp_path / "train.py").write_text("")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c.yaml").write_text(jobset("c"))
    found = read_manifests(tmp_path)
    assert [manifest.spec.name for manifest in found] == ["a", "b"]
    assert found[0].notes == (
        f"ServiceAccount me ({tmp_path}/account.yaml:1) is not needed",
        f"{tmp_path}/chart.yaml is ignored: a template that was not rendered: "
        "'name: {{ .Release.Name }}'",
    )


def test_all_problems_in_a_folder_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(jobset("same"))
    (tmp_path / "b.yaml").write_text(jobset("same"))
    (tmp_path / "c.yaml").write_text(jobset("c").replace("command", "comand"))
    problems = [text.replace(f"{tmp_path.name}/", "") for text in wrong(tmp_path)]
    assert problems == [
        "b.yaml:1: metadata.name: 'same' is also the name of the job at "
        f"{tmp_path}/a.yaml:1 (give one of them another name)".replace(
            f"{tmp_path.parent}/{tmp_path.name}/", ""
        ),
        "c.yaml:14: spec.replicatedJobs[0].template.spec.template.spec.containers[0].comand: "
        'Muster does not read this field (did you mean "command"?)',
    ]


def test_jobs_beside_jobsets(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    cron = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\n"
    volcano = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: v}\n"
    path.write_text("---\n".join((job("a"), jobset("b"), cron, volcano, job("c"))))
    found = read_manifests(path)
    assert [manifest.spec.name for manifest in found] == ["a", "b", "c"]
    assert [manifest.spec.node_groups[0].hostname for manifest in found] == [
        *("a-${index}", "b-workers-${replica}-${index}", "c-${index}"),
    ]
    assert found[0].notes == (
        f"CronJob nightly ({path}:28) is ignored: Muster runs JobSets and Jobs",
        f"Job v ({path}:32) is ignored: Muster runs Jobs of batch/v1, not of "
        "batch.volcano.sh/v1alpha1",
    )
    assert read_spec(path, "c").name == "c"
    assert wrong(path, "d") == ["#d: no job of that name in all.yaml (use a, b or c)"]


@pytest.mark.parametrize("kind", ["List", "JobList"])
def test_a_list_of_jobs(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    items = "".join(f"- {_indented(text)}" for text in (job("a"), job("b")))
    path.write_text(f"apiVersion: batch/v1\nkind: {kind}\nitems:\n{items}")
    assert [manifest.spec.name for manifest in read_manifests(path)] == ["a", "b"]
    path.write_text(path.read_text().replace("command", "comand", 1))
    missing, misspelled = wrong(path)
    assert missing.startswith("all.yaml:13: spec.template.spec.containers[0].command: is missing")
    assert misspelled.startswith("all.yaml:14: spec.template.spec.containers[0].comand: Muster")


def test_a_folder_with_jobs(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(job("a"))
    (tmp_path / "b.json").write_text('{"apiVersion": "v1", "kind": "Service"}')
    (tmp_path / "c.yaml").write_text(job("c").replace("name: c", "name: {{ .Values.name }}"))
    assert wrong(tmp_path, "a")[0].endswith(
        "c.yaml:4: a template that was not rendered: 'name: {{ .Values.name }}' "
        "(render it first: `helm template`, `kustomize build` or the tool that fills it in)"
    )
    (tmp_path / "c.yaml").unlink()
    assert [manifest.spec.name for manifest in read_manifests(tmp_path)] == ["a"]


def test_manifests_in_braces(tmp_path: Path) -> None:
    """As kubectl and Kubernetes' documentation write them (KYAML)."""
    path = tmp_path / "a.yaml"
    path.write_text(
        """# an example
---
{
  apiVersion: "batch/v1",
  kind: "Job",
  metadata: { name: "a" },
  spec: { template: { spec: {
    containers: [{ name: "c", command: ["true"], }],
  } } },
}
"""
    )
    assert wrong(path) == [
        "a.yaml:7: spec.template.spec.restartPolicy: is missing (write OnFailure or Never)"
    ]


#: A file -> what is wrong with it.
BAD = {
    "no JobSet": (
        f"{ACCOUNT}---\napiVersion: v1\nkind: Pod\n",
        [
            "x.yaml:2: kind: no JobSet or Job in this file, but ServiceAccount, Pod "
            "(Muster runs JobSets, Jobs and its own specs: `muster schema` prints their fields)"
        ],
    ),
    "Jobs of another group": (
        job("a").replace("batch/", "batch.volcano.sh/"),
        [
            "x.yaml:2: kind: no JobSet or Job in this file, but Job of batch.volcano.sh/v1 "
            "(Muster runs JobSets, Jobs and its own specs: `muster schema` prints their fields)"
        ],
    ),
    "another version of Jobs": (
        job("a").replace("batch/v1", "batch/v2"),
        ["x.yaml:1: apiVersion: 'batch/v2' is not a version Muster reads (write batch/v1)"],
    ),
    "a Job without its group": (
        job("a").replace("batch/v1", "v1"),
        ["x.yaml:1: apiVersion: 'v1' is not a version Muster reads (write batch/v1)"],
    ),
    "a Job in lower case": (
        job("a").replace("kind: Job", "kind: job"),
        ['x.yaml:2: kind: Muster does not read a job (did you mean "Job"?)'],
    ),
    "two Jobs of one name": (
        f"{job('a')}---\n{jobset('a')}",
        [
            "x.yaml:13: metadata.name: 'a' is also the name of the job at x.yaml:1 "
            "(give one of them another name)"
        ],
    ),
    "a kustomization": (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
        [
            "x.yaml:2: kind: no JobSet or Job in this file, but Kustomization "
            "(render it first: `kustomize build`)"
        ],
    ),
    "another version": (
        jobset("a").replace("v1alpha2", "v1"),
        [
            "x.yaml:1: apiVersion: 'jobset.x-k8s.io/v1' is not a version Muster reads "
            "(write jobset.x-k8s.io/v1alpha2)"
        ],
    ),
    "another kind": (
        jobset("a").replace("kind: JobSet", "kind: jobset"),
        ['x.yaml:2: kind: Muster does not read a jobset (did you mean "JobSet"?)'],
    ),
    "another kind of another group": (
        jobset("a").replace("kind: JobSet", "kind: Jobset").replace("jobset.x-k8s.io", "batch"),
        ['x.yaml:2: kind: Muster does not read a Jobset (did you mean "JobSet"?)'],
    ),
    "an empty list": (
        "apiVersion: v1\nkind: List\nitems: []\n",
        [
            "x.yaml: is empty "
            "(Muster runs JobSets, Jobs and its own specs: `muster schema` prints their fields)"
        ],
    ),
    "no kind": (
        f"{jobset('a')}---\napiVersion: v1\nspec: {{}}\n",
        [
            "x.yaml:16: is not a Kubernetes object: it has no kind "
            "(remove it, or put it into another file)"
        ],
    ),
    "a template": (
        jobset("a").replace("name: a", "name: {{ .Values.name }}"),
        [
            "x.yaml:4: a template that was not rendered: 'name: {{ .Values.name }}' "
            "(render it first: `helm template`, `kustomize build` or the tool that fills it in)"
        ],
    ),
    "a template in quotes": (
        jobset("a").replace("name: a", "name: '{{ name }}'"),
        [
            "x.yaml:4: metadata.name: a template that was not rendered: '{{ name }}' "
            "(render it first: `helm template`, `kustomize build` or the tool that fills it in)",
        ],
    ),
    "not YAML": (
        jobset("a") + "---\nkind: [\n",
        [
            "x.yaml:16: not valid YAML: did not find expected node content "
            "(check indentation, colons and quotes)"
        ],
    ),
    "a key given twice": (
        jobset("a") + "kind: JobSet\n",
        ["x.yaml:15: kind: given twice, first on line 2 (remove one)"],
    ),
}


@pytest.mark.shows("jobset/api-version")
@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path: Path, case: str) -> None:
    text, expected = BAD[case]
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert wrong(path) == expected


def test_braces_in_arguments_are_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(jobset("a").replace("hello", "'{{x}} <b>'"))
    (manifest,) = read_manifests(path)
    assert manifest.spec.node_groups[0].command == ("echo", "{{x}} <b>")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apiVersion: v1\n", True),
        ("# why\n---\n'apiVersion' : v1\n", True),
        ('{"kind": "JobSet", "apiVersion": "x"}', True),
        ("---\n# why\n{\n  kind: 'Job',\n  apiVersion: 'x',\n}\n", True),
        ("# why\n{command: echo}\n", False),
        ("command: echo\n", False),
        ("command:\n- |\n  apiVersion: v1\n", False),
        ('{"command": "echo"}', False),
        ('{"spec": {"x": "}"}, "kind": "job"}', True),
        ("{kind: distributed}", True),
        ('{"command": "x", "tags": {"kind": "test"}, "max_runtime": "10m"}', False),
        ('{"tags": {"kind": "job", "apiVersion": "v1"}, "runtime": 1}', False),
        ('{"tags": {"a": "{"}, "args": [\'"kind": "job",\'], command: it\'s} # {kind: job}', False),
        ('{"kind": "test", "args": ["kind"]}', False),
    ],
)
def test_manifests_are_distinguished_from_specs(text: str, expected: bool) -> None:
    assert is_manifest(text) is expected


@pytest.mark.skipif(
    "MUSTER_JOBSET_EXAMPLES" not in os.environ, reason="the folder of JobSet's own examples"
)
@pytest.mark.parametrize(
    "name",
    [
        "simple/paralleljobs",
        "simple/coordinator",
        "simple/success-policy",
        "simple/failure-policy",
        "simple/ttl-after-finished",
        "simple/group",
        "simple/jobset-with-network",
        "simple/exclusive-placement",
        "depends-on/depends-on",
        "depends-on/multiple-depends-on",
        "startup-policy/startup-driver-ready",
        "failure-policy/failjobset-action",
        "failure-policy/restartjobset-action",
        "failure-policy/restartjobsetandignoremaxrestarts-action",
        "failure-policy/onjobfailurereasons-present",
        "failure-policy/onjobfailurereasons-present-podfailurepolicy",
        "failure-policy/host-maintenance-event-model",
        "failure-policy/restartjob-action",
        "failure-policy/restartjobandignoremaxrestarts-action",
        "in-place-restart/jobset-main-container-mode",
        "in-place-restart/jobset-sidecar-container-mode",
        "volume-claim-policy/single-pvc",
        "pytorch/cnn-mnist/mnist",
        "pytorch/resnet-cifar10/resnet",
        "tensorflow/mnist",
        "tpu-multislice/v6e-jax-workload",
        "workload-aware-scheduling/jobset",
    ],
)
def test_the_examples_of_jobset_are_read(name: str) -> None:
    from muster.spec.formats.jobset.write import write_jobset
    from muster.spec.formats.manifests import read_manifest

    spec = read_manifest(Path(os.environ["MUSTER_JOBSET_EXAMPLES"]) / f"{name}.yaml").spec
    write_jobset(spec)


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ").rstrip(" ")


@pytest.mark.parametrize("kind", ["List", "JobSetList"])
def test_a_list_is_read_as_its_items(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    items = "".join(f"- {_indented(text)}" for text in (ACCOUNT, jobset("a"), jobset("b")))
    path.write_text(f"apiVersion: v1\nkind: {kind}\nitems:\n{items}")
    first, second = read_manifests(path)
    assert (first.spec.name, second.spec.name) == ("a", "b")
    assert first.notes == (f"ServiceAccount me ({path}:4) is not needed",)
    assert second.place == f"{path}:21"
    path.write_text(path.read_text().replace("replicatedJobs", "replicatedjobs", 1))
    assert wrong(path) == [
        "all.yaml:12: spec.replicatedjobs: Muster does not read this field "
        '(did you mean "replicatedJobs"?)'
    ]


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text("\ufeff" + jobset("a"), encoding="utf-8")
    assert read_spec(path).name == "a"


TAGS = (
    *("!!timestamp x", "!!set {x}", "!!binary aGk=", "!!int x", "!!bool x", "!!float x", "!x y"),
    *("!!omap [x: 1]", "!!pairs [x: 1]", "!!python/name:os.system", "!!python/tuple [1]"),
)


@pytest.mark.parametrize("tag", TAGS)
def test_tags_are_refused_or_text(tag: str, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    for output in (f"args: {tag}", f"args: [{tag}]", f"image: {tag}", f"tty: {tag}"):
        path.write_text(jobset("a").replace("command:", f"{output}\n              command:"))
        if tag.startswith("!!timestamp") and output.startswith(("image", "args: [")):
            assert read_spec(path).name == "a"  # a date is text
        else:
            assert wrong(path)


def test_dates_and_times_are_text(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(jobset("a").replace("[echo, hello]", "[echo, 2026-01-31, 1:30, =]"))
    (found,) = read_manifests(path)
    assert found.spec.node_groups[0].command == ("echo", "2026-01-31", "1:30", "=")


@pytest.mark.parametrize("kind", ["emptyDir", "hostPath", "nfs", "persistentVolumeClaim"])
@pytest.mark.parametrize("value", ["true", "5", "[]", "x", "[x]"])
def test_volumes_that_are_not_mappings(kind: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    volumes = f"            volumes: [{{name: v, {kind}: {value}}}]\n            containers:"
    path.write_text(jobset("a").replace("            containers:", volumes))
    assert f"volumes[0].{kind}: must be a mapping" in wrong(path)[0]
