"""What is compiled for a run, as the API server and JobSet's webhook see it."""

from __future__ import annotations

import tomllib
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from engines.conftest import PlanOf
from muster.engines.kubernetes.applied import shown
from muster.engines.kubernetes.layout import layout
from muster.engines.kubernetes.manifest import manifest
from muster.engines.kubernetes.names import jobset_name, longest_pod_name
from muster.engines.kubernetes.notes import notes
from muster.engines.kubernetes.objects import description, secret
from muster.engines.kubernetes.plan_problems import problems
from muster.engines.kubernetes.pods import SERVER, connect_command, pod_mounts
from muster.engines.kubernetes.profile import DEFAULT_IMAGE, KubernetesProfile, read_settings
from muster.engines.kubernetes.versions import NEWEST_JOBSET, Version, Versions
from muster.errors import InvalidInput
from muster.node.pod import GROUP, INDEX, JOB, Group, own_slot
from muster.node.server import UNDECIDED
from muster.plan.model import ArtifactPlan, RunPlan
from muster.spec.formats.jobset.name_rules import MAX_LENGTH
from muster.spec.formats.jobset.schema import check_structure
from support.kube.pod_security import violations
from support.pages import ROOT

PROFILE = KubernetesProfile()
SPECS: list[dict[str, Any]] = [
    {},
    {"nodes": 3, "image": "ghcr.io/team/train:1", "max_runtime": "1h"},
    {"resources": {"cpus": 0.5, "memory": "1GiB", "gpus": 2, "disk": "10GiB"}},
    {"kubernetes": {"exclusive": "rack", "tolerations": [{"key": "gpu", "operator": "Exists"}]}},
    {"kueue": {"queue": "team-a", "priority": "high"}, "max_runtime": "2h"},
    {"kubernetes": {"topology": {"required": "rack", "slice": "host", "slice_size": 2}}},
    {"container": {"user": "1000:1000", "groups": [7], "cap_add": ["IPC_LOCK"], "read_only": True}},
    {"mounts": [{"source": "nfs://files/data", "path": "/data", "read_only": True}]},
    {"failure": {"max_restarts": 3}, "host_aliases": {"10.1.2.3": ["db"]}},
    {"tags": {"team": "vision", "a b": "no label"}, "annotations": {"note": "any text"}},
    {
        "command": None,
        "node_groups": [
            {"name": "driver", "command": ["a"], "image": "driver:1"},
            {"name": "workers", "replicas": 2, "nodes": 4, "command": ["b"]},
        ],
    },
    {
        "extra_containers": None,
        "node_groups": [
            {
                "name": "w",
                "image": "w:1",
                "extra_containers": [
                    {"name": "load", "role": "init", "image": "load:1", "command": ["load"]},
                    {"name": "log", "role": "sidecar", "image": "log:1", "env": {"A": "1"}},
                    {"name": "more", "role": "main", "image": "more:1"},
                ],
            }
        ],
    },
]


def jobset_of(plan: RunPlan, profile: KubernetesProfile = PROFILE) -> dict[str, Any]:
    (made,) = manifest(plan, profile, Versions())
    return made


def pod_of(plan: RunPlan, profile: KubernetesProfile = PROFILE) -> dict[str, Any]:
    """The pod template of the first group."""
    job = jobset_of(plan, profile)["spec"]["replicatedJobs"][0]["template"]
    pod: dict[str, Any] = job["spec"]["template"]
    return pod


def node_of(plan: RunPlan, profile: KubernetesProfile = PROFILE) -> dict[str, Any]:
    containers = pod_of(plan, profile)["spec"]["containers"]
    return next(one for one in containers if one["name"] == "node")


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_api_server_accepts_it(plan_of: PlanOf, spec: dict[str, Any]) -> None:
    made = jobset_of(plan_of(**{name: one for name, one in spec.items() if one is not None}))
    valid, wrong = check_structure(made)
    assert wrong == []
    assert valid == made


def test_each_group_is_a_replicated_job(plan_of: PlanOf) -> None:
    groups = [
        {"name": "driver", "command": ["a"]},
        {"name": "workers", "replicas": 2, "nodes": 4, "command": ["b"]},
    ]
    plan = plan_of(command=None, node_groups=groups)
    driver, workers = jobset_of(plan)["spec"]["replicatedJobs"]
    assert [(one["name"], one["replicas"]) for one in (driver, workers)] == [
        ("driver", 1),
        ("workers", 2),
    ]
    job = workers["template"]["spec"]
    assert (job["parallelism"], job["completions"], job["completionMode"]) == (4, 4, "Indexed")


GROUPS = [
    {"name": "driver", "command": ["a"]},
    {"name": "workers", "replicas": 3, "nodes": 2, "command": ["b"]},
]


@pytest.mark.parametrize(
    ("slots", "shapes"),
    [
        (range(7), [("driver", 1, 1), ("workers", 3, 2)]),
        ([3, 4], [("workers", 1, 2)]),
        ([1, 2, 5, 6], [("workers", 2, 2)]),
        ([2, 3], [("workers", 1, 2)]),  # halves of two replicas
        ([0, 6], [("driver", 1, 1), ("workers", 1, 1)]),
    ],
)
def test_each_pod_finds_its_slot(plan_of: PlanOf, slots: Any, shapes: Any) -> None:
    plan = plan_of(command=None, node_groups=GROUPS)
    told = description(plan, KubernetesProfile(), layout(plan, slots), {})
    groups = {name: Group(**one) for name, one in told["groups"].items()}
    (made,) = manifest(plan, PROFILE, Versions(), slots)
    jobs = made["spec"]["replicatedJobs"]
    size = [(j["name"], j["replicas"], j["template"]["spec"]["completions"]) for j in jobs]
    assert size == shapes
    found = [
        own_slot(groups, {GROUP: name, JOB: str(job), INDEX: str(index)})
        for name, replicas, completions in size
        for job in range(replicas)
        for index in range(completions)
    ]
    assert found == list(slots)


def test_a_lost_pod_is_replaced_alone_and_never_beside_the_old_one(plan_of: PlanOf) -> None:
    job = jobset_of(plan_of(nodes=2))["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["podReplacementPolicy"] == "Failed"
    assert job["backoffLimit"] == 2**31 - 1
    # whatever its exit code is: no rule fails the Job
    assert [one["action"] for one in job["podFailurePolicy"]["rules"]] == ["Ignore"]


@pytest.mark.parametrize(
    ("window", "jobset", "fails"),
    [(600.0, NEWEST_JOBSET, True), (None, NEWEST_JOBSET, False), (600.0, None, False)],
    ids=["window", "never", "no JobSet"],
)
def test_only_a_node_that_nobody_decides_about_fails_its_job(
    plan_of: PlanOf, window: float | None, jobset: Version | None, fails: bool
) -> None:
    plan = plan_of(failure={"max_restarts": 3})
    profile = replace(PROFILE, decision_window=window)
    *_, made = manifest(plan, profile, Versions(jobset=jobset))
    job = made["spec"]
    if jobset is not None:
        job = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    codes = {"containerName": "node", "operator": "In", "values": [UNDECIDED]}
    rules = job["podFailurePolicy"]["rules"]
    assert ({"action": "FailJob", "onExitCodes": codes} in rules) == fails


def test_requests_equal_limits(plan_of: PlanOf) -> None:
    plan = plan_of(
        resources={"cpus": 0.5, "memory": "1GiB", "gpus": 2},
        kubernetes={"resources": {"rdma/ib": 1}},
    )
    resources = node_of(plan)["resources"]
    assert resources["limits"] == {
        "cpu": "500m",
        "memory": "1Gi",
        "nvidia.com/gpu": "2",
        "rdma/ib": "1",
    }
    assert resources["requests"] == resources["limits"]


def test_shared_memory_is_half_of_the_memory_unless_it_is_given(plan_of: PlanOf) -> None:
    def shm(**spec: Any) -> Any:
        volumes = pod_of(plan_of(**spec))["spec"]["volumes"]
        return next(one["emptyDir"] for one in volumes if one["name"] == "muster-shm")

    assert shm() == {"medium": "Memory"}
    assert shm(resources={"memory": "4GiB"}) == {"medium": "Memory", "sizeLimit": "2Gi"}
    given = {"resources": {"memory": "4GiB"}, "container": {"shm_size": "3GiB"}}
    assert shm(**given) == {"medium": "Memory", "sizeLimit": "3Gi"}


def test_kueue_is_asked_only_if_there_is_a_queue(plan_of: PlanOf) -> None:
    assert not any("kueue" in key for key in jobset_of(plan_of())["metadata"]["labels"])
    plan = plan_of(kueue={"queue": "team-a", "priority": "high"}, max_runtime="1h")
    labels = jobset_of(plan)["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "team-a"
    assert labels["kueue.x-k8s.io/priority-class"] == "high"
    # longer than the run's own limit, which ends it with a checkpoint
    assert labels["kueue.x-k8s.io/max-exec-time-seconds"] == "3900"
    profile = replace(PROFILE, queue="all")
    assert jobset_of(plan_of(), profile)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "all"


def test_topology_is_kueues_annotations_of_pods(plan_of: PlanOf) -> None:
    topology = {"preferred": "rack", "slice": "host", "slice_size": 2}
    plan = plan_of(kubernetes={"topology": topology})
    assert pod_of(plan)["metadata"]["annotations"] == {
        "kueue.x-k8s.io/podset-preferred-topology": "rack",
        "kueue.x-k8s.io/podset-slice-required-topology": "host",
        "kueue.x-k8s.io/podset-slice-size": "2",
    }


def test_a_part_of_a_topology_is_enough(plan_of: PlanOf) -> None:
    plan = plan_of(kubernetes={"topology": {"required": "rack"}})
    assert list(problems(plan, PROFILE)) == []


def test_huge_pages_are_a_resource(plan_of: PlanOf) -> None:
    plan = plan_of(kubernetes={"resources": {"hugepages-2Mi": "64Mi"}})
    assert [*problems(plan, PROFILE)] == []


def test_a_limit_of_code_needs_a_unit() -> None:
    with pytest.raises(InvalidInput, match=r'code_limit: 64 has no unit .*"64MiB"'):
        read_settings({"code_limit": "64"})
    assert read_settings({"code_limit": 64}).code_limit == 64


def test_a_container_that_a_patch_adds_is_noted(plan_of: PlanOf) -> None:
    def noted(*containers: dict[str, Any]) -> list[str]:
        plan = plan_of(image="a", kubernetes={"pod": {"spec": {"containers": [*containers]}}})
        return [one for one in notes(plan, PROFILE, lambda: None) if "adds container" in one]

    (note,) = noted({"name": "main", "image": "x"}, {"name": "node", "tty": True})
    text = "kubernetes.pod adds container main to its pods; that of the node is named node"
    assert note == f"group workers: {text}"
    assert noted({"name": "main", "$patch": "delete"}) == []


@pytest.mark.parametrize(
    ("kueue", "settings", "versions", "text"),
    [
        ({"priority": "high"}, {}, None, "kueue.priority is not used: neither the job nor the"),
        ({"queue": "a"}, {}, Versions(kueue=None), "queue a is not used: Kueue is not installed"),
        ({}, {"queue": "b"}, Versions(kueue=None), "queue b is not used: Kueue is not installed"),
        ({"priority": "high"}, {"queue": "b"}, Versions(), None),
        ({"queue": "a"}, {}, None, None),
    ],
)
def test_what_is_not_used_of_kueue_is_noted(
    plan_of: PlanOf,
    kueue: dict[str, str],
    settings: dict[str, str],
    versions: Versions | None,
    text: str | None,
) -> None:
    plan = plan_of(**({"kueue": kueue} if kueue else {}))
    found = [
        one for one in notes(plan, read_settings(settings), lambda: versions) if "not used" in one
    ]
    assert [one.startswith(str(text)) for one in found] == ([] if text is None else [True])


PREFERRED = {"topology": {"preferred": "rack"}}


@pytest.mark.parametrize(
    ("kubernetes", "queue", "versions", "text"),
    [
        (
            {"exclusive": "pool"},
            None,
            Versions(jobset=None),
            "exclusive is not used: JobSet is not",
        ),
        ({"exclusive": "pool"}, None, Versions(), None),
        ({"exclusive": "pool"}, None, None, None),
        (PREFERRED, "a", Versions(kueue=None), "topology is not used: Kueue is not installed"),
        (PREFERRED, None, Versions(), "topology is not used: neither the job nor the engine names"),
        (PREFERRED, None, None, "topology is not used: neither the job nor the engine names"),
        (PREFERRED, "a", Versions(), None),
        (PREFERRED, "a", None, None),
    ],
)
def test_what_a_cluster_cannot_place_is_noted(
    plan_of: PlanOf,
    kubernetes: dict[str, Any],
    queue: str | None,
    versions: Versions | None,
    text: str | None,
) -> None:
    profile = read_settings({} if queue is None else {"queue": queue})
    found = notes(plan_of(kubernetes=kubernetes), profile, lambda: versions)
    found = [one for one in found if "kubernetes." in one]
    assert len(found) == (text is not None)
    assert all(one.startswith(f"group workers: kubernetes.{text}") for one in found)


def test_scratch_directories_are_at_their_paths(plan_of: PlanOf) -> None:
    mounts = [
        {"source": "scratch:node/a", "path": "/a"},
        {"source": "scratch:incarnation/b", "path": "/b"},
        {"source": "scratch:node/a", "path": "/again"},
        {"source": "scratch:incarnation/tmp", "path": "/tmp"},
        {"source": "scratch:node/d", "path": "/d", "sub_path": "x"},
    ]
    plan = plan_of(mounts=mounts)
    assert [*problems(plan, PROFILE)] == []
    made = {one["mountPath"]: one["name"] for one in node_of(plan)["volumeMounts"]}
    assert made["/a"] == made["/again"] == "scratch-0"
    assert made["/b"] == "scratch-1"
    assert not {"/tmp", "/d"} & made.keys()
    volumes = {one["name"]: one for one in pod_of(plan)["spec"]["volumes"]}
    assert all(volumes[f"scratch-{n}"]["emptyDir"] == {} for n in range(2))
    found = [one for one in notes(plan, PROFILE, lambda: None) if "is not there" in one]
    assert found == ["/d is not there: nodes find scratch:node/d at $MUSTER_MOUNT_D"]


def test_groups_cannot_share_a_directory_of_the_run(plan_of: PlanOf) -> None:
    mount = {"source": "scratch:run/data", "path": "/data"}
    groups = [
        {"name": "first", "command": ["a"], "mounts": [mount]},
        {"name": "w", "command": ["a"], "nodes": 2, "mounts": [{"source": "/x"}, mount]},
    ]
    found = list(problems(plan_of(command=None, node_groups=groups), PROFILE))
    assert [one.path for one in found] == [
        "node_groups[first].mounts[0].source",
        "node_groups[w].mounts[1].source",
    ]
    assert {one.message for one in found} == {"pods of first and w cannot share scratch:run/data"}
    assert found[0].hint == "create a PersistentVolumeClaim, and mount it with volume:CLAIM"
    volume = {"name": "data", "emptyDir": {}}
    node = {"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    patch = {"pod": {"spec": {"volumes": [volume], "containers": [node]}}}
    groups = [{**one, "kubernetes": patch} for one in groups]
    assert [*problems(plan_of(command=None, node_groups=groups), PROFILE)] == []


def test_nodes_of_a_group_have_a_directory_of_the_run_each(plan_of: PlanOf) -> None:
    plan = plan_of(nodes=2, mounts=[{"source": "scratch:run/data"}])
    assert [*problems(plan, PROFILE)] == []
    text = "scratch:run/data is not shared: each node has its own, without what others write"
    assert text in notes(plan, PROFILE, lambda: None)


def test_parts_of_claims_differ_between_pods(plan_of: PlanOf) -> None:
    mount = {"source": "volume:data", "path": "/data", "sub_path": "of-${index}"}
    node = node_of(plan_of(nodes=2, mounts=[mount]))
    seen = next(one for one in node["volumeMounts"] if one["mountPath"] == "/data")
    assert seen["subPathExpr"] == "of-$(MUSTER_POD_INDEX)"
    assert "MUSTER_POD_INDEX" in [one["name"] for one in node["env"]]
    rank = {**mount, "sub_path": "of-${rank}"}
    (problem,) = problems(plan_of(nodes=2, replicas=2, mounts=[rank]), PROFILE)
    assert problem.path == "node_groups[workers].mounts[0].sub_path"


def test_names_are_not_added_to_the_hosts_file_of_a_machine(plan_of: PlanOf) -> None:
    assert "hosts=/etc/hosts" in node_of(plan_of())["command"]
    volume = {"name": "etc", "hostPath": {"path": "/etc/hosts"}}
    node = {"name": "node", "volumeMounts": [{"name": "etc", "mountPath": "/etc/hosts"}]}
    patch = {"spec": {"volumes": [volume], "containers": [node]}}
    assert "hosts=/etc/hosts" not in node_of(plan_of(kubernetes={"pod": patch}))["command"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, f"pods have {DEFAULT_IMAGE}, the default"),
        ({"image": "a:1"}, "a:1, that of the engine"),
    ],
)
def test_the_image_of_pods_is_noted(plan_of: PlanOf, settings: dict[str, str], text: str) -> None:
    (note,) = notes(plan_of(), read_settings(settings), lambda: None)
    assert text in note


def test_the_profile_is_the_default_and_its_tolerations_stay(plan_of: PlanOf) -> None:
    pods = {
        "node_selector": {"pool": "a", "disk": "ssd"},
        "tolerations": [{"key": "team"}],
        "service_account": "runs",
    }
    given = {"node_selector": {"pool": "b"}, "tolerations": [{"key": "gpu"}]}
    spec = pod_of(plan_of(kubernetes=given), replace(PROFILE, pods=pods))["spec"]
    assert spec["nodeSelector"] == {"pool": "b", "disk": "ssd"}
    assert spec["tolerations"] == [{"key": "team"}, {"key": "gpu"}]
    assert spec["serviceAccountName"] == "runs"
    assert spec["automountServiceAccountToken"] is True


def test_pods_have_no_token_unless_an_account_is_named(plan_of: PlanOf) -> None:
    assert pod_of(plan_of())["spec"]["automountServiceAccountToken"] is False


def test_a_patch_comes_last(plan_of: PlanOf) -> None:
    patch = {"spec": {"hostNetwork": True, "containers": [{"name": "node", "tty": True}]}}
    plan = plan_of(kubernetes={"pod": patch})
    assert pod_of(plan)["spec"]["hostNetwork"] is True
    assert node_of(plan)["tty"] is True
    assert node_of(plan)["command"][0] == "python3"


def test_secrets_are_not_in_it(plan_of: PlanOf) -> None:
    groups = [{"name": "w", "node_env": {"KEY": "${secret.KEY}"}, "command": ["a"]}]
    plan = plan_of(command=None, node_groups=groups, secrets={"KEY": "hunter2"})
    assert "hunter2" not in str(manifest(plan, PROFILE, Versions()))


@pytest.mark.parametrize("length", range(28, 41))
def test_a_name_that_fits_now_fits_later(plan_of: PlanOf, length: int) -> None:
    groups = [{"name": "g" * length, "nodes": 4, "command": ["a"]}]
    plan = replace(plan_of(command=None, node_groups=groups), run_id="31c0z7x3v1")
    end = longest_pod_name(plan).removeprefix(jobset_name(plan, 99_999))
    fits = [len(jobset_name(plan, number) + end) <= MAX_LENGTH for number in (0, 1, 7, 99_999)]
    assert all(fits) == (not list(problems(plan, PROFILE)))


@pytest.mark.parametrize("number", [0, 7])
def test_names_fit_whatever_the_run_is_called(plan_of: PlanOf, number: int) -> None:
    groups = [{"name": "a-group-with-a-long-name-as-well", "nodes": 100, "command": ["a"]}]
    plan = replace(plan_of(command=None, node_groups=groups), run_name="x" * 60 + "-1")
    assert len(longest_pod_name(plan)) <= MAX_LENGTH
    assert jobset_name(plan, number) != jobset_name(plan, number + 1)


def test_without_jobset_each_replica_is_a_job_with_the_same_names(plan_of: PlanOf) -> None:
    plan = plan_of(nodes=2)
    service, job = manifest(plan, PROFILE, Versions(jobset=None))
    name = jobset_name(plan, 0)
    assert (service["kind"], service["metadata"]["name"]) == ("Service", name)
    assert service["spec"]["clusterIP"] == "None"
    assert (job["kind"], job["metadata"]["name"]) == ("Job", f"{name}-workers-0")
    assert job["spec"]["template"]["spec"]["subdomain"] == name
    env = {one["name"]: one for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["MUSTER_POD_JOB"] == {"name": "MUSTER_POD_JOB", "value": "0"}


def code_of(size: int) -> ArtifactPlan:
    return ArtifactPlan("0" * 64, "train", "archive", size)


@pytest.mark.parametrize(
    ("settings", "size", "refused"),
    [
        ({}, 64 << 20, False),
        ({}, (64 << 20) + 1, True),
        ({"code_limit": "1GiB"}, 1 << 30, False),
        ({"code_limit": 1000}, 1001, True),
        # once for all pods, or by another way
        ({"claim": "shared"}, 1 << 40, False),
        ({"contact": "dial", "address": "10.0.0.1"}, 1 << 40, False),
    ],
)
def test_large_code_does_not_go_through_the_api_server(
    plan_of: PlanOf, settings: dict[str, object], size: int, refused: bool
) -> None:
    plan = replace(plan_of(), artifact=code_of(size))
    found = list(problems(plan, read_settings(settings)))
    assert [one.path for one in found] == (["artifact"] if refused else [])


def test_the_ways_out_of_the_limit_are_named(plan_of: PlanOf) -> None:
    (problem,) = problems(replace(plan_of(), artifact=code_of(3 << 30)), PROFILE)
    text = "has 3GiB; at most 64MiB are sent to each pod through the API server"
    assert problem.message == text
    for way in (".musterignore", "image", "mount", "`claim`", "`contact`", "`code_limit`"):
        assert way in problem.hint


def test_pods_share_the_volume_of_a_claim(plan_of: PlanOf) -> None:
    spec = pod_of(plan_of(), read_settings({"claim": "shared"}))["spec"]
    volume = {"name": "muster-shared", "persistentVolumeClaim": {"claimName": "shared"}}
    assert volume in spec["volumes"]
    node = spec["containers"][0]
    assert {"name": "muster-shared", "mountPath": "/muster/shared"} in node["volumeMounts"]
    assert node["command"][-1] == "shared=/muster/shared"
    assert pod_of(plan_of())["spec"]["containers"][0]["command"][-2:] == [
        SERVER,
        "hosts=/etc/hosts",
    ]


# --- what pods that dial prove themselves with

DIALING = read_settings({"contact": "dial", "address": "192.0.2.1"})


def secret_of(plan: RunPlan, slots: Sequence[int]) -> Any:
    def key_of(slot: int) -> bytes:
        return b"key of %d" % slot

    return secret(plan, DIALING, "s", layout(plan, slots), key_of)


@pytest.mark.parametrize("slots", [range(7), [3, 4], [2, 3], [0, 6]])
@pytest.mark.parametrize("jobset", [NEWEST_JOBSET, None])
def test_a_pod_mounts_the_key_of_its_own_slot(
    plan_of: PlanOf, slots: Sequence[int], jobset: Version | None
) -> None:
    plan = plan_of(command=None, node_groups=GROUPS)
    made = manifest(plan, DIALING, Versions(jobset=jobset), slots)
    config = description(plan, KubernetesProfile(), layout(plan, slots), {})
    groups = {name: Group(**one) for name, one in config["groups"].items()}
    entries = secret_of(plan, slots)["data"]
    found = []
    for variables, template in pods_of(made):
        node = template["spec"]["containers"][0]
        (mount,) = [one for one in node["volumeMounts"] if one["name"] == "muster-key"]
        assert (mount["mountPath"], mount["readOnly"]) == ("/muster/key", True)
        name = mount["subPathExpr"]
        for variable, value in variables.items():
            name = name.replace(f"$({variable})", value)
        found.append((own_slot(groups, variables), b64decode(entries[name])))
    assert found == [(slot, b"key of %d" % slot) for slot in slots]
    assert len(entries) == len(found)


def pods_of(made: Sequence[Any]) -> Iterator[tuple[dict[str, str], Any]]:
    """What tells each pod its place, with its template."""
    for one in made:
        if one["kind"] == "JobSet":
            jobs = [
                (replicated["name"], job, replicated["template"]["spec"])
                for replicated in one["spec"]["replicatedJobs"]
                for job in range(replicated["replicas"])
            ]
        elif one["kind"] == "Job":
            env = one["spec"]["template"]["spec"]["containers"][0]["env"]
            values = {v["name"]: v["value"] for v in env}
            jobs = [(values[GROUP], values[JOB], one["spec"])]
        else:
            continue
        for name, job, spec in jobs:
            for index in range(spec["completions"]):
                yield {GROUP: name, JOB: str(job), INDEX: str(index)}, spec["template"]


def test_without_dialing_there_is_no_secret(plan_of: PlanOf) -> None:
    names = [one["name"] for one in pod_of(plan_of())["spec"]["volumes"]]
    assert "muster-key" not in names
    kinds = [one["kind"] for one in shown(plan_of(), PROFILE, Versions())]
    assert kinds == ["JobSet", "ConfigMap"]
    kinds = [one["kind"] for one in shown(plan_of(), DIALING, Versions())]
    assert kinds == ["JobSet", "Secret", "ConfigMap"]


def test_keys_of_15000_pods_fit_into_a_secret(plan_of: PlanOf) -> None:
    """Kubernetes: 1 MiB of values, and 1.5 MiB for the object in etcd, where each entry is its name
    and its value, and once more its name among the managed fields."""
    plan = plan_of(nodes=15_000)
    data = secret(plan, DIALING, "s", layout(plan, range(15_000)), lambda _: bytes(32))["data"]
    assert len(data) == 15_000
    assert sum(len(b64decode(one)) for one in data.values()) < 1 << 20
    kept = sum(
        len(b64decode(one)) + 8 + 2 * len(name) + len('"f:":{},') for name, one in data.items()
    )
    assert kept < 1 << 20


# --- who containers run as

#: What a job says for namespaces with the Pod Security Standard `restricted`.
RESTRICTED = {
    "user": "1000",
    "non_root": True,
    "no_new_privileges": True,
    "cap_drop": ["ALL"],
    "seccomp": "default",
}
#: The same for all jobs of an engine.
RESTRICTED_PATCH = {
    "spec": {
        "securityContext": {
            "runAsUser": 1000,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "node",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
}


@pytest.mark.parametrize("profile", [PROFILE, DIALING, read_settings({"claim": "shared"})])
def test_a_job_passes_the_standard_restricted_if_it_asks_for_it(
    plan_of: PlanOf, profile: KubernetesProfile
) -> None:
    extra = {"name": "more", "role": "sidecar", "image": "more:1", "container": RESTRICTED}
    group = {"name": "w", "command": ["a"], "container": RESTRICTED, "extra_containers": [extra]}
    plan = plan_of(command=None, node_groups=[group])
    assert [*violations(pod_of(plan, profile)["spec"])] == []
    by_profile = replace(profile, pods={"pod": RESTRICTED_PATCH})
    assert [*violations(pod_of(plan_of(), by_profile)["spec"])] == []


def test_the_guide_says_what_the_standard_restricted_requires() -> None:
    text = (ROOT / "docs/guides/kubernetes.md").read_text()
    blocks = [one.split("```")[0] for one in text.split("```toml\n")[1:]]
    (profile,) = [one for one in map(tomllib.loads, blocks) if "pod" in one]
    assert read_settings(profile).pods == {"pod": RESTRICTED_PATCH}
    (job,) = [one for one in text.split("```")[1::2] if "restricted.yaml" in one]
    spec = yaml.safe_load(job.partition("\n")[2])
    assert spec["container"] == RESTRICTED


@pytest.mark.parametrize("missing", [name for name in RESTRICTED if name != "user"])
def test_what_the_standard_restricted_requires(plan_of: PlanOf, missing: str) -> None:
    given = {name: value for name, value in RESTRICTED.items() if name != missing}
    plan = plan_of(container=given)
    assert len([*violations(pod_of(plan)["spec"])]) == 1


def test_the_folder_of_the_server_is_one_that_it_makes_itself(plan_of: PlanOf) -> None:
    """The volume is root's, and a server uses no folder of another user."""
    node = pod_of(plan_of())["spec"]["containers"][0]
    assert [m["mountPath"] for m in node["volumeMounts"] if m["name"] == "node"] == ["/muster/node"]
    assert "/muster/node/server" in node["command"]
    group = plan_of().groups[0]
    assert connect_command(group, PROFILE)[-2:] == ["connect", "/muster/node/server"]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def terms_of(plan: RunPlan, *avoid: str) -> Any:
    (made,) = manifest(plan, PROFILE, Versions(), [0], 1, avoid)
    _, wrong = check_structure(made)
    assert wrong == []
    template = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return template["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def field(machine: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "NotIn", "values": [machine]}


def test_machines_are_avoided_by_their_names(plan_of: PlanOf) -> None:
    # Kubernetes takes one value for each field
    assert terms_of(plan_of(), "gpu-3", "gpu-7") == [
        {"matchFields": [field("gpu-3"), field("gpu-7")]}
    ]


@pytest.mark.parametrize("place", ["affinity", "patch"])
def test_machines_are_avoided_besides_what_the_job_wants(plan_of: PlanOf, place: str) -> None:
    given = [
        {"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}
        for rack in ("a", "b")
    ]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": given}}}
    wanted = (
        {"affinity": affinity} if place == "affinity" else {"pod": {"spec": {"affinity": affinity}}}
    )
    plan = plan_of(kubernetes=wanted)
    # one of the terms has to match, so each has it
    assert terms_of(plan, "gpu-3") == [{**one, "matchFields": [field("gpu-3")]} for one in given]


@pytest.mark.parametrize(
    ("profile", "job", "group", "found"),
    [
        (None, None, None, True),
        (False, None, None, False),
        (False, True, None, True),
        (None, False, None, False),
        (None, None, False, False),
    ],
)
def test_whether_the_log_of_pods_has_the_output_of_programs(
    plan_of: PlanOf, profile: bool | None, job: bool | None, group: bool | None, found: bool
) -> None:
    def given(value: bool | None) -> dict[str, Any]:
        return {} if value is None else {"pod_log": value}

    groups: list[dict[str, Any]] = [{"name": "a", "command": ["a"]}]
    groups[0] |= {"kubernetes": given(group)} if group is not None else {}
    plan = plan_of(command=None, node_groups=groups, kubernetes=given(job))
    told = description(plan, read_settings(given(profile)), layout(plan, [0]), {})
    assert told["groups"]["a"]["pod_log"] is found


def test_it_is_true_or_false() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_settings({"pod_log": "no"})
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == ("pod_log", "must be true or false, not 'no'")


# --- mounts that are volumes of the cluster


def test_a_volume_is_the_claim_of_its_name(plan_of: PlanOf) -> None:
    mounts = [
        {"source": "volume:datasets", "path": "/data", "sub_path": "a"},
        {"source": "volume:datasets", "path": "/more", "read_only": True},
    ]
    plan = plan_of(mounts=mounts)
    spec = pod_of(plan)["spec"]
    claim = {"name": "claim-0", "persistentVolumeClaim": {"claimName": "datasets"}}
    assert [one for one in spec["volumes"] if "persistentVolumeClaim" in one] == [claim]
    seen = [one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "claim-0"]
    assert seen == [
        {"name": "claim-0", "mountPath": "/data", "subPath": "a"},
        {"name": "claim-0", "mountPath": "/more", "readOnly": True},
    ]
    assert [one.path for one in pod_mounts(plan.groups[0], PROFILE)] == ["/data", "/more"]
    assert not [*problems(plan, PROFILE)]
    (problem,) = problems(plan_of(mounts=[{"source": "volume:My_Data", "path": "/d"}]), PROFILE)
    assert problem.path == "node_groups[workers].mounts[0].source"
    assert "must name a PersistentVolumeClaim" in problem.message


@pytest.mark.parametrize("container", ["node", "load"])
def test_a_mount_is_the_volume_that_the_patch_has_at_its_path(
    plan_of: PlanOf, container: str
) -> None:
    volume = {"name": "disk", "hostPath": {"path": "/mnt/disk"}}
    kind = "containers" if container == "node" else "initContainers"
    seen = {"name": "disk", "mountPath": "/data"}
    patch = {"volumes": [volume], kind: [{"name": container, "volumeMounts": [seen]}]}
    mounts = [{"source": "/mnt/disk", "path": "/data"}, {"source": "/here", "path": "/here"}]
    extra = {"name": "load", "role": "init", "image": "load:1", "command": ["load"]}
    group: dict[str, Any] = {"name": "w", "image": "w:1", "kubernetes": {"pod": {"spec": patch}}}
    if container == "node":
        group |= {"mounts": mounts, "extra_containers": [extra]}
    else:
        group["extra_containers"] = [{**extra, "mounts": mounts[:1]}]
    plan = plan_of(node_groups=[group])
    spec = pod_of(plan)["spec"]
    (made,) = (one for one in spec[kind] if one["name"] == container)
    assert [one for one in made["volumeMounts"] if one["mountPath"] in ("/data", "/here")] == [seen]
    expected = ["/data"] if container == "node" else []
    assert [one.path for one in pod_mounts(plan.groups[0], PROFILE)] == expected
    assert not [*problems(plan, PROFILE)]
