"""The kubelets of the double: containers are processes, with files, output, exec and ends."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from support.kube import Cluster
from support.kube.cluster import ADMIN
from support.kube.containers import marked
from support.kube.kubelet import Paths
from support.kube.objects import Obj, condition, has_condition
from support.kube.pod_security import ENFORCE
from support.kube.users import open_folder

#: Says that it begins, then waits. SIGTERM ends it with 143, as a shell does.
WAIT = ["sh", "-c", "echo begins; sleep 1000 & wait"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as made:
        yield made


def start(cluster: Cluster, command: list[str], **more: Any) -> Obj:
    """A Job of one pod, which runs. more: fields of its container, and pod: those of the pod."""
    pod: Obj = {"restartPolicy": "Never", **more.pop("pod", {})}
    container = {"name": "node", "image": "python", "command": command, **more}
    template = {"spec": {**pod, "containers": [container]}}
    spec = {"completionMode": "Indexed", "completions": 1, "backoffLimit": 3, "template": template}
    spec["podReplacementPolicy"] = "Failed"
    cluster.create({"kind": "Job", "metadata": {"name": "j"}, "spec": spec})
    return wait(cluster, "Running", "Succeeded", "Failed")


def wait(cluster: Cluster, *phases: str) -> Obj:
    """The pod when it is in one of these phases."""
    found: list[Obj] = []

    def reached() -> bool:
        found[:] = [p for p in cluster.pods() if p["status"].get("phase") in phases]
        return bool(found)

    cluster.until(reached, f"a pod is {phases}")
    return found[0]


def ended(pod: Obj) -> Obj:
    state: Obj = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return state


def output(cluster: Cluster, pod: Obj) -> str:
    return cluster.kubelet.container(pod).log.tail()


def test_paths_of_volumes_become_paths_here() -> None:
    paths = Paths({"/muster": "/x/m", "/muster/node": "/x/n"})
    for given, found in {
        "/muster/node/a": "/x/n/a",
        "/muster/nodes": "/x/m/nodes",
        "--at=/muster": "--at=/x/m",
        "/a:/muster/node:/b": "/a:/x/n:/b",
        "/other/muster": "/other/muster",
        "cat '/muster/node'": "cat '/x/n'",
        "/musters": "/musters",
    }.items():
        assert paths.translate(given) == found


def test_a_pod_sees_its_files_and_variables(cluster: Cluster) -> None:
    code = {"binaryData": {"run.py": b64encode(b"import sys; print(sys.argv[1:])").decode()}}
    cluster.create({"kind": "ConfigMap", "metadata": {"name": "code"}, **code})
    secret = {"data": {"key": b64encode(b"hunter2").decode()}}
    cluster.create({"kind": "Secret", "metadata": {"name": "key"}, **secret})
    field = {"fieldRef": {"fieldPath": "metadata.labels['job-name']"}}
    pod = start(
        cluster,
        ["sh", "-c", "python3 /code/run.py $JOB_COMPLETION_INDEX $NAME $ADDRESS $MORE; cat /k/key"],
        env=[
            {"name": "NAME", "valueFrom": field},
            {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "MORE", "value": "$(NAME),$$(NAME),/empty/x"},
        ],
        volumeMounts=[
            {"name": "code", "mountPath": "/code"},
            {"name": "key", "mountPath": "/k"},
            {"name": "empty", "mountPath": "/empty"},
        ],
        pod={
            "volumes": [
                {"name": "code", "configMap": {"name": "code"}},
                {"name": "key", "secret": {"secretName": "key", "defaultMode": 0o400}},
                {"name": "empty", "emptyDir": {}},
            ]
        },
    )
    pod = wait(cluster, "Succeeded", "Failed")
    here = cluster.kubelet.pods[pod["metadata"]["uid"]]
    empty = here.paths["node"].mounts["/empty"]
    words = ["0", "j", pod["status"]["podIP"], f"j,$(NAME),{empty}/x"]
    assert output(cluster, pod) == f"{words}\nhunter2"
    key = Path(here.paths["node"].mounts["/k"]) / "key"
    # as kubelets write them: a link into a folder that is replaced as a whole
    assert os.readlink(key) == "..data/key"
    assert key.stat().st_mode & 0o777 == 0o400


def test_a_file_of_a_volume_is_chosen_by_variables(cluster: Cluster) -> None:
    data = {name: b64encode(name.encode()).decode() for name in ("j-0", "j-1")}
    cluster.create({"kind": "Secret", "metadata": {"name": "keys"}, "data": data})
    label = {"fieldRef": {"fieldPath": "metadata.labels['job-name']"}}
    start(
        cluster,
        ["cat", "/key"],
        env=[{"name": "NAME", "valueFrom": label}],
        volumeMounts=[
            {"name": "k", "mountPath": "/key", "subPathExpr": "$(NAME)-$(JOB_COMPLETION_INDEX)"}
        ],
        pod={"volumes": [{"name": "k", "secret": {"secretName": "keys"}}]},
    )
    assert output(cluster, wait(cluster, "Succeeded")) == "j-0"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize(
    ("security", "said"),
    [
        ({}, "0 0  0:0 777 0:0 400"),
        ({"runAsUser": 1234, "runAsGroup": 5}, "1234 5  0:0 777 0:0 400"),
        ({"runAsUser": 1234, "fsGroup": 7}, "1234 0 7 0:7 2777 0:7 440"),
        (
            {"runAsUser": 1234, "supplementalGroups": [8], "fsGroup": 7},
            "1234 0 7 8 0:7 2777 0:7 440",
        ),
    ],
)
def test_whom_containers_run_as_and_volumes_belong_to(security: Obj, said: str) -> None:
    with open_folder() as folder, Cluster(folder) as cluster:
        check_users(cluster, security, said)


def check_users(cluster: Cluster, security: Obj, said: str) -> None:
    data = {"key": b64encode(b"x").decode()}
    cluster.create({"kind": "Secret", "metadata": {"name": "keys"}, "data": data})
    script = (
        "id -u; id -g; sed -n 's/^Groups:[[:space:]]*//p' /proc/self/status;"
        " stat -Lc '%u:%g %a' /empty /keys/key"
    )
    start(
        cluster,
        ["sh", "-c", script],
        volumeMounts=[
            {"name": "empty", "mountPath": "/empty"},
            {"name": "keys", "mountPath": "/keys"},
        ],
        pod={
            "securityContext": security,
            "volumes": [
                {"name": "empty", "emptyDir": {}},
                {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
            ],
        },
    )
    found = output(cluster, wait(cluster, "Succeeded", "Failed"))
    assert found.split() == said.split()


def test_root_is_refused_where_a_pod_must_not_run_as_root(cluster: Cluster) -> None:
    container = {"name": "node", "image": "i", "command": ["true"]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    template = {"spec": {"securityContext": {"runAsNonRoot": True}, **spec}}
    cluster.create({"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}})

    def reason() -> str:
        statuses = [s for p in cluster.pods() for s in p["status"].get("containerStatuses", ())]
        return str([one["state"].get("waiting") for one in statuses])

    cluster.until(lambda: "image will run as root" in reason(), "it is refused")
    assert "CreateContainerConfigError" in reason()


@pytest.mark.parametrize("level", ["restricted", "baseline"])
def test_a_namespace_may_restrict_its_pods(cluster: Cluster, level: str) -> None:
    cluster.add_namespace("safe", {ENFORCE: level})
    container = {"name": "node", "image": "i", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    cluster.create(job, "safe")
    if level == "restricted":
        text = "violates PodSecurity"
        cluster.until(lambda: text in str(cluster.storage.listed("events", "safe")), "it says so")
        assert cluster.pods("safe") == []
    else:
        cluster.until(lambda: cluster.pods("safe"), "its pod is there")


def test_a_volume_that_is_missing_is_waited_for(cluster: Cluster) -> None:
    volume = {"name": "v", "configMap": {"name": "late"}}
    mount = {"name": "v", "mountPath": "/v"}
    container = {"name": "node", "image": "i", "command": ["cat", "/v/a"], "volumeMounts": [mount]}
    template = {"spec": {"restartPolicy": "Never", "volumes": [volume], "containers": [container]}}
    cluster.create({"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}})

    def waits() -> bool:
        states = [p["status"].get("containerStatuses") for p in cluster.pods()]
        return any(
            one and one[0]["state"].get("waiting", {}).get("reason") == "ContainerCreating"
            for one in states
        )

    cluster.until(waits)
    text = 'MountVolume.SetUp failed for volume "v" : configmap "late" not found'
    assert text in [one["message"] for one in cluster.storage.listed("events")]
    cluster.create({"kind": "ConfigMap", "metadata": {"name": "late"}, "data": {"a": "x"}})
    assert output(cluster, wait(cluster, "Succeeded")) == "x"


def test_the_end_of_a_container(cluster: Cluster) -> None:
    start(
        cluster,
        ["sh", "-c", "echo no such data >&2; exit 3"],
        terminationMessagePolicy="FallbackToLogsOnError",
    )
    pod = wait(cluster, "Failed")
    found = ended(pod)
    assert (found["exitCode"], found["reason"]) == (3, "Error")
    assert found["message"] == "no such data\n"
    assert not has_condition(pod, "Ready")


def test_all_processes_of_a_container_end_with_its_first(cluster: Cluster) -> None:
    start(cluster, ["sh", "-c", "setsid sleep 1000 > /dev/null & exit 1"])
    pod = wait(cluster, "Failed")
    assert marked(cluster.kubelet.container(pod).mark) == []


def test_a_deleted_pod_has_its_grace_period(cluster: Cluster) -> None:
    pod = start(
        cluster, ["sh", "-c", "trap 'echo bye; exit 7' TERM; echo begins; sleep 1000 & wait"]
    )
    cluster.until(lambda: "begins" in output(cluster, pod))
    container = cluster.kubelet.container(pod)
    cluster.storage.delete("pods", "default", pod["metadata"]["name"])
    cluster.until(lambda: cluster.find("pods", pod["metadata"]["name"]) is None)
    assert container.code == 7
    assert container.log.tail() == "begins\nbye\n"
    # its Job has made another one
    cluster.until(lambda: cluster.pods() and cluster.pods()[0]["metadata"] != pod["metadata"])


def test_a_pod_that_ignores_the_signal_is_killed(cluster: Cluster) -> None:
    code = "trap '' TERM; echo begins; sleep 1000"
    pod = start(cluster, ["sh", "-c", code], pod={"terminationGracePeriodSeconds": 2})
    cluster.until(lambda: "begins" in output(cluster, pod))
    container = cluster.kubelet.container(pod)
    cluster.storage.delete("pods", "default", pod["metadata"]["name"])
    cluster.until(lambda: container.code is not None)
    assert container.code == 137


def test_out_of_memory(cluster: Cluster) -> None:
    pod = start(cluster, WAIT)
    cluster.kubelet.run_out_of_memory(pod)
    found = ended(wait(cluster, "Failed"))
    assert (found["exitCode"], found["reason"]) == (137, "OOMKilled")


def test_evicted(cluster: Cluster) -> None:
    pod = start(cluster, WAIT)
    cluster.kubelet.evict(pod)
    pod = wait(cluster, "Failed")
    assert (pod["status"]["reason"], pod["status"]["message"]) == (
        "Evicted",
        "The node was low on resource: memory.",
    )
    assert condition(pod, "DisruptionTarget")["reason"] == "TerminationByKubelet"


def test_drained(cluster: Cluster) -> None:
    pod = start(cluster, WAIT)
    node = pod["spec"]["nodeName"]
    cluster.kubelet.drain(node)
    cluster.until(lambda: cluster.find("pods", pod["metadata"]["name"]) is None)
    again = wait(cluster, "Running")
    assert again["spec"]["nodeName"] != node


def test_a_lost_node(tmp_path: Path) -> None:
    with Cluster(tmp_path, scale=0.002) as cluster:
        pod = start(cluster, WAIT)
        node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
        container = cluster.kubelet.container(pod)
        cluster.kubelet.lose_node(node)
        cluster.until(lambda: container.code is not None)
        # five minutes later, the cluster wants to end the pod, and cannot know whether it has
        cluster.until(lambda: "deletionTimestamp" in cluster.get("pods", name)["metadata"])
        lost = cluster.get("pods", name)
        assert lost["status"]["phase"] == "Running"
        assert condition(lost, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
        assert not has_condition(lost, "Ready")
        assert len(cluster.pods()) == 1
        cluster.kubelet.remove_node(node)
        cluster.until(lambda: cluster.find("pods", name) is None)
        assert wait(cluster, "Running")["spec"]["nodeName"] != node


def test_an_image_that_is_not_there(cluster: Cluster) -> None:
    cluster.kubelet.missing_images["nothing:1"] = "manifest unknown"
    container = {"name": "node", "image": "nothing:1", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    cluster.create({"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}})

    def waiting() -> Obj:
        states = [p["status"].get("containerStatuses") for p in cluster.pods()]
        found: Obj = states[0][0]["state"].get("waiting", {}) if states and states[0] else {}
        return found

    cluster.until(lambda: waiting().get("reason") == "ImagePullBackOff")
    assert "manifest unknown" in waiting()["message"]


def test_containers_are_started_again(tmp_path: Path) -> None:
    script = f"mkdir {tmp_path / 'mark'} && exit 1; {WAIT[2]}"
    with Cluster(tmp_path, scale=0.2) as cluster:
        pod = start(cluster, ["sh", "-c", script], pod={"restartPolicy": "OnFailure"})
        name = pod["metadata"]["name"]

        def state() -> Obj:
            found: Obj = cluster.get("pods", name)["status"]["containerStatuses"][0]
            return found

        cluster.until(lambda: "waiting" in state()["state"], "it is not started again at once")
        assert state()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert cluster.get("pods", name)["status"]["phase"] == "Running"
        cluster.until(lambda: "running" in state()["state"], "it is started again")
        assert state()["restartCount"] == 1


def test_init_containers_and_sidecars(cluster: Cluster, tmp_path: Path) -> None:
    volume, mounts = {"name": "v", "emptyDir": {}}, [{"name": "v", "mountPath": "/v"}]
    load = {"name": "load", "image": "i", "command": ["sh", "-c", "echo data > /v/x"]}
    log = {"name": "log", "image": "i", "command": WAIT, "restartPolicy": "Always"}
    start(
        cluster,
        ["cat", "/v/x"],
        volumeMounts=mounts,
        pod={"volumes": [volume], "initContainers": [log, {**load, "volumeMounts": mounts}]},
    )
    pod = wait(cluster, "Succeeded")
    assert output(cluster, pod) == "data\n"


def test_a_pod_is_ready_when_its_probe_succeeds(cluster: Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    probe = {"exec": {"command": ["test", "-e", str(mark)]}, "periodSeconds": 1}
    pod = start(cluster, WAIT, readinessProbe=probe)
    name = pod["metadata"]["name"]
    assert not has_condition(pod, "Ready")
    mark.touch()
    cluster.until(lambda: has_condition(cluster.get("pods", name), "Ready"))
    mark.unlink()
    cluster.until(lambda: not has_condition(cluster.get("pods", name), "Ready"))


# --- through the API


@contextmanager
def channels(cluster: Cluster, path: str, *protocols: str) -> Iterator[ClientConnection]:
    """A WebSocket of exec or portforward. path: below that of pods, with the query."""
    settings = json.loads(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    context = ssl.create_default_context(cafile=settings["certificate-authority"])
    url = cluster.server.url.replace("https", "wss")
    with connect(
        f"{url}/api/v1/namespaces/default/pods/{path}",
        ssl=context,
        subprotocols=[Subprotocol(one) for one in protocols],
        additional_headers={"authorization": f"Bearer {ADMIN}"},
    ) as made:
        yield made


def received(connection: ClientConnection) -> dict[int, bytes]:
    """Channel -> all that arrives until the server closes the connection."""
    found: dict[int, bytes] = {}
    for message in connection:
        assert isinstance(message, bytes)
        found[message[0]] = found.get(message[0], b"") + message[1:]
    return found


def test_exec_has_channels(cluster: Cluster) -> None:
    name = start(cluster, WAIT)["metadata"]["name"]
    query = "command=sh&command=-c&command=cat;echo%20no>%262;exit%205"
    streams = "stdin=true&stdout=true&stderr=true"
    with channels(cluster, f"{name}/exec?{query}&{streams}", "v5.channel.k8s.io") as one:
        big = b"x" * 300_000
        one.send(b"\0" + big)
        one.send(bytes((255, 0)))  # closes stdin
        found = received(one)
    assert found[1] == big
    assert found[2] == b"no\n"
    status = json.loads(found[3])
    assert (status["reason"], status["details"]["causes"]) == (
        "NonZeroExitCode",
        [{"reason": "ExitCode", "message": "5"}],
    )


def test_exec_in_a_pod_that_does_not_run(cluster: Cluster) -> None:
    start(cluster, ["true"])
    name = wait(cluster, "Succeeded")["metadata"]["name"]
    path = f"{name}/exec?command=true&stdout=true"
    with pytest.raises(InvalidStatus) as caught, channels(cluster, path, "v5.channel.k8s.io"):
        pass
    assert caught.value.response.status_code == 500
    assert b"container not found" in (caught.value.response.body or b"")


def test_a_port_is_forwarded(cluster: Cluster) -> None:
    code = (
        "import os, socket; s = socket.create_server((os.environ['ADDRESS'], 8765)); "
        "print('listens', flush=True); c, _ = s.accept(); c.sendall(c.recv(9).upper())"
    )
    address = {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    pod = start(cluster, ["python3", "-c", code], env=[address])
    cluster.until(lambda: "listens" in output(cluster, pod))
    path = f"{pod['metadata']['name']}/portforward?ports=8765"
    with channels(cluster, path, "v4.channel.k8s.io") as one:
        one.send(b"\0hello")
        found = received(one)
    port = (8765).to_bytes(2, "little")
    assert found == {0: port + b"HELLO", 1: port}


def kubectl(cluster: Cluster, *words: str, given: str | None = None) -> Any:
    argv = ["kubectl", "--kubeconfig", str(cluster.kubeconfig)]
    cache = ["--cache-dir", str(cluster.folder / "cache")]
    return subprocess.run(
        [*argv, *cache, *words],
        capture_output=True,
        text=True,
        input=given,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl(cluster: Cluster) -> None:
    container = {"name": "node", "image": "i", "command": WAIT}
    pod = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    job = {"name": "w", "template": {"spec": {"completions": 1, "parallelism": 1, **pod}}}
    made = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "demo"},
        "spec": {"replicatedJobs": [job]},
    }
    applied = kubectl(cluster, "apply", "--server-side", "-f", "-", given=json.dumps(made))
    assert applied.stdout == "jobset.jobset.x-k8s.io/demo serverside-applied\n", applied.stderr
    name = wait(cluster, "Running")["metadata"]["name"]
    waited = kubectl(cluster, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s")
    assert waited.stdout == f"pod/{name} condition met\n", waited.stderr
    assert kubectl(cluster, "logs", name).stdout == "begins\n"
    done = kubectl(cluster, "exec", "-i", name, "--", "sh", "-c", "cat; exit 3", given="hello")
    assert (done.stdout, done.returncode) == ("hello", 3)
    refused = kubectl(cluster, "get", "pods", "--token", "wrong")
    assert "Unauthorized" in refused.stderr or "logged in" in refused.stderr
    assert kubectl(cluster, "delete", "jobset", "demo").returncode == 0
    cluster.until(lambda: cluster.left() == [])


PROGRAM = """
import sys
from kubernetes import client, config, watch
from kubernetes.stream import stream

config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()
(pod,) = core.list_namespaced_pod("default").items
name = pod.metadata.name
# versions 36.0.0 to 36.0.3 of the client do not decode a log that they read themselves
log = core.read_namespaced_pod_log(name, "default", _preload_content=False)
print(log.data.decode(), end="")
events = watch.Watch()
for event in events.stream(core.list_namespaced_pod, "default", timeout_seconds=20):
    print(event["type"], event["object"].metadata.name == name)
    events.stop()
done = stream(
    core.connect_get_namespaced_pod_exec,
    name,
    "default",
    command=["sh", "-c", "read x; echo got $x; exit 4"],
    stdin=True,
    stdout=True,
    stderr=True,
    _preload_content=False,
)
done.write_stdin("word\\n")
done.run_forever(timeout=20)
print(done.read_stdout(), end="")
print(done.returncode)
"""


@pytest.mark.skipif(find_spec("kubernetes") is None, reason="the Python client is not installed")
def test_the_python_client(cluster: Cluster) -> None:
    pod = start(cluster, WAIT)
    cluster.until(lambda: "begins" in output(cluster, pod))
    argv = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(cluster.kubeconfig)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["begins", "ADDED True", "got word", "4"], done.stderr
