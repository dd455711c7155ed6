"""The kubelets of all nodes: pods are processes of this machine, or nothing at all.

Containers run their command as it is written, with the paths of their volumes replaced by folders
here: a program that gets its paths in its command or in variables finds its files. Each pod has an
address of its own in 127.0.0.0/8.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from support.kube.containers import Container, Log
from support.kube.manager import Clock, Key, Manager
from support.kube.objects import (
    ApiError,
    Obj,
    Resource,
    has_condition,
    key_of,
    set_condition,
    timestamp,
)
from support.kube.probes import Probe
from support.kube.scheduler import UNREACHABLE, disrupt
from support.kube.storage import Event, Storage
from support.kube.users import NotCreated, user_of
from support.kube.volumes import NotMounted, Paths, Volumes, content_of, paths_of

_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_REFERENCE = re.compile(r"\$\$|\$\(([^)]+)\)")
#: Seconds between attempts to start a container again, at first and at most.
_FIRST_BACKOFF, _LONGEST_BACKOFF = 10.0, 300.0


def _write_hosts(pod: Obj, here: PodHere) -> Path:
    """The hosts file of a pod, which the kubelet writes whenever it starts a container."""
    found = here.folder / "etc-hosts"
    name = pod["spec"].get("hostname") or pod["metadata"]["name"]
    lines = ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost", f"{here.address}\t{name}"]
    lines += [
        "\t".join((one["ip"], *one["hostnames"])) for one in pod["spec"].get("hostAliases", ())
    ]
    found.write_text("\n".join(lines) + "\n")
    return found


class PodHere:
    """A pod that a node has."""

    def __init__(self, uid: str, address: str, folder: Path) -> None:
        self.uid, self.address, self.folder = uid, address, folder
        self.containers: dict[str, Container] = {}
        self.paths: dict[str, Paths] = {}
        #: Containers whose probes have not succeeded.
        self.unready: set[str] = set()
        #: Container -> the log before it was started again.
        self.previous: dict[str, Log] = {}
        self.restarts: dict[str, int] = {}
        self.again_at: dict[str, float] = {}
        self.last: dict[str, Obj] = {}
        self.ending = False
        #: What the pod ends with if the node ends it: reason and message.
        self.eviction: tuple[str, str] | None = None


class Kubelet:
    """All kubelets. processes: whether containers are processes; else a test says how they end
    (`end`)."""

    batch = 0.0

    def __init__(
        self, storage: Storage, manager: Manager, folder: Path, *, processes: bool = True
    ) -> None:
        self._storage, self._manager, self._folder = storage, manager, folder
        self._processes = processes
        self._clock: Clock = manager.clock
        self.pods: dict[str, PodHere] = {}
        #: Image -> the command that it runs by itself.
        self.entrypoints: dict[str, list[str]] = {}
        #: Image -> what the registry says instead of it.
        self.missing_images: dict[str, str] = {}
        #: Image -> its USER; root's, unless a test says otherwise.
        self.image_users: dict[str, int] = {}
        #: Real seconds that a second of a grace period takes.
        self.grace_scale = 0.2
        #: Variables that every container has; PATH has this Python first.
        self.environ = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        }
        self._silent: set[str] = set()
        self._addresses = (
            f"127.{100 + n // 62500}.{n // 250 % 250}.{n % 250 + 2}" for n in itertools.count()
        )
        self._hosts: dict[str, str] = {}
        #: Pod -> its uid, for those that are in `pods`.
        self._names: dict[Key, str] = {}
        #: Without processes: uid of a pod -> container -> how it has ended.
        self._results: dict[str, dict[str, Obj]] = {}
        self._lock = threading.RLock()

    def keys(self, resource: Resource, event: Event) -> Iterable[Key]:
        if resource.plural == "pods":
            if "nodeName" in event.new["spec"]:
                yield key_of(event.new)
        elif resource.plural in ("configmaps", "secrets") and event.kind == "ADDED":
            for pod in self._storage.listed("pods", key_of(event.new)[0]):
                if pod["metadata"]["uid"] in self.pods and not _started(pod):
                    yield key_of(pod)

    def reconcile(self, key: Key) -> float | None:
        pod = self._storage.find("pods", *key)
        with self._lock:
            self._forget(None if pod is None else pod["metadata"]["uid"], key)
        if pod is None or "nodeName" not in pod["spec"] or pod["spec"]["nodeName"] in self._silent:
            return None
        if self._storage.find("nodes", "", pod["spec"]["nodeName"]) is None:
            return None
        if pod["status"].get("phase") in ("Succeeded", "Failed"):
            return None
        here = self.pods.get(pod["metadata"]["uid"])
        if here is None:
            here = self._accept(pod)
        if "deletionTimestamp" in pod["metadata"] or here.eviction is not None:
            return self._terminate(pod, here)
        return self._run(pod, here)

    def _accept(self, pod: Obj) -> PodHere:
        node = pod["spec"]["nodeName"]
        uid = pod["metadata"]["uid"]
        here = PodHere(uid, next(self._addresses), self._folder / uid[:8])
        self._hosts.setdefault(
            node, f"127.99.{len(self._hosts) // 250}.{len(self._hosts) % 250 + 1}"
        )
        self.pods[uid] = here
        self._names[key_of(pod)] = uid
        return here

    def _forget(self, uid: str | None, key: Key) -> None:
        """End what is left of a pod that is gone, or had the same name."""
        known = self._names.get(key)
        if known is not None and known != uid:
            here = self.pods.pop(known, None)
            del self._names[key]
            if here is not None:
                self._clean(here)

    def _clean(self, here: PodHere) -> None:
        for one in here.containers.values():
            one.kill()
        shutil.rmtree(here.folder, ignore_errors=True)

    # --- running

    def _run(self, pod: Obj, here: PodHere) -> float | None:
        spec = pod["spec"]
        for one in self._all(spec):
            if text := self.missing_images.get(one.get("image", "")):
                self._wait_for_image(pod, here, one, text)
                return None
        if not self._processes:
            self._report(pod, here)
            return None
        try:
            folders = self._mount(pod, here)
        except NotMounted as error:
            self._storage.event(pod, "Warning", "FailedMount", str(error), "kubelet")
            self._report(pod, here, waiting="ContainerCreating")
            return 2.0
        try:
            again = self._start_containers(pod, here, folders)
        except NotCreated as error:
            self._storage.event(pod, "Warning", "Failed", f"Error: {error}", "kubelet")
            self._report(pod, here, waiting="CreateContainerConfigError", message=str(error))
            return 2.0
        self._report(pod, here)
        return again

    def _mount(self, pod: Obj, here: PodHere) -> dict[str, Path]:
        here.folder.mkdir(parents=True, exist_ok=True)
        return Volumes(self._storage, pod, here.folder, self._folder / "claims").mount()

    def _all(self, spec: Obj) -> list[Obj]:
        return [*spec.get("initContainers", ()), *spec["containers"]]

    def _start_containers(
        self, pod: Obj, here: PodHere, folders: Mapping[str, Path]
    ) -> float | None:
        """Start what is to run now. Returns seconds until more is to be started."""
        for one in pod["spec"].get("initContainers", ()):
            known = here.containers.get(one["name"])
            if known is None:
                if not self._start(pod, here, one, folders):
                    return None
                if one.get("restartPolicy") != "Always":
                    return None
            elif one.get("restartPolicy") != "Always" and known.code != 0:
                return None if known.code is None else self._again(pod, here, one, folders)
        waits = []
        for one in pod["spec"]["containers"]:
            known = here.containers.get(one["name"])
            if known is None:
                self._start(pod, here, one, folders)
            elif known.code is not None:
                waits.append(self._again(pod, here, one, folders))
        return min((wait for wait in waits if wait is not None), default=None)

    def _again(
        self, pod: Obj, here: PodHere, one: Obj, folders: Mapping[str, Path]
    ) -> float | None:
        """Start a container again that has ended, if its pod says so."""
        name = one["name"]
        ended = here.containers[name]
        policy = pod["spec"]["restartPolicy"]
        if policy == "Never" or (policy == "OnFailure" and ended.code == 0):
            return None
        count = here.restarts.get(name, 0)
        delay = min(_FIRST_BACKOFF * 2.0**count, _LONGEST_BACKOFF)
        at = here.again_at.setdefault(name, self._clock.now() + delay)
        if at > self._clock.now():
            return at - self._clock.now()
        del here.again_at[name]
        here.restarts[name] = count + 1
        here.previous[name] = ended.log
        here.last[name] = self._terminated(one, ended)
        self._start(pod, here, one, folders)
        return None

    def _start(self, pod: Obj, here: PodHere, one: Obj, folders: Mapping[str, Path]) -> bool:
        """Returns whether it has started. Raises NotCreated."""
        user = user_of(pod, one, self.image_users.get(one.get("image", ""), 0))
        variables = self._env(pod, here, one, Paths({}))
        paths = paths_of(
            one, folders, lambda text: _expand(text, variables), _write_hosts(pod, here)
        )
        here.paths[one["name"]] = paths
        command = one.get("command") or self.entrypoints.get(one.get("image", ""), [])
        env = self._env(pod, here, one, paths)
        argv = [
            paths.translate(_expand(word, env)) for word in [*command, *(one.get("args") or ())]
        ]
        key = key_of(pod)

        def ended() -> None:
            self._manager.add(self, key)

        try:
            if not argv:
                raise FileNotFoundError(f"no command specified for {one.get('image')}")
            folder = paths.mounts.get(one.get("workingDir", ""), str(here.folder))
            made = Container(argv, env, Path(folder), ended, user)
        except OSError as error:
            text = f"failed to create containerd task: {error}"
            argv = ["/bin/sh", "-c", 'echo "$0" >&2; exit 128', text]
            made = Container(argv, env, here.folder, ended, user)
            made.reason = "StartError"
        here.containers[one["name"]] = made
        probe = one.get("readinessProbe") or one.get("startupProbe")
        if probe is not None:
            here.unready.add(one["name"])
            watch = Probe(probe, made, paths, here.address, self._clock.scale)

            def changed(ready: bool) -> None:
                (here.unready.discard if ready else here.unready.add)(one["name"])
                self._manager.add(self, key)

            threading.Thread(target=watch.run, args=(changed,), daemon=True).start()
        return True

    def _env(self, pod: Obj, here: PodHere, one: Obj, paths: Paths) -> dict[str, str]:
        hostname = pod["spec"].get("hostname") or pod["metadata"]["name"]
        env = {**self.environ, "HOSTNAME": hostname, "HOME": str(here.folder)}
        namespace = pod["metadata"]["namespace"]
        for source in one.get("envFrom", ()):
            for kind, plural in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
                if kind in source:
                    obj = self._storage.get(plural, namespace, source[kind]["name"])
                    content = content_of(obj)
                    prefix = source.get("prefix", "")
                    env |= {prefix + name: value.decode() for name, value in content.items()}
        for variable in one.get("env", ()):
            if "value" in variable:
                value = paths.translate(_expand(variable["value"], env))
            else:
                value = self._value(pod, here, one, variable.get("valueFrom") or {})
            env[variable["name"]] = value
        return env

    def _value(self, pod: Obj, here: PodHere, one: Obj, source: Obj) -> str:
        if field := source.get("fieldRef"):
            return self._field(pod, here, field["fieldPath"])
        if resource := source.get("resourceFieldRef"):
            kind, _, name = resource["resource"].partition(".")
            return str((one.get("resources") or {}).get(kind, {}).get(name, "0"))
        for kind, plural in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
            if given := source.get(kind):
                obj = self._storage.find(plural, pod["metadata"]["namespace"], given["name"])
                content = {} if obj is None else content_of(obj)
                return content.get(given["key"], b"").decode()
        return ""

    def _field(self, pod: Obj, here: PodHere, path: str) -> str:
        if found := _FIELD.fullmatch(path):
            return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
        node = pod["spec"]["nodeName"]
        known = {
            "metadata.name": pod["metadata"]["name"],
            "metadata.namespace": pod["metadata"]["namespace"],
            "metadata.uid": pod["metadata"]["uid"],
            "spec.nodeName": node,
            "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
            "status.podIP": here.address,
            "status.podIPs": here.address,
            "status.hostIP": self._hosts[node],
            "status.hostIPs": self._hosts[node],
        }
        return str(known[path])

    def _wait_for_image(self, pod: Obj, here: PodHere, one: Obj, text: str) -> None:
        image = one["image"]
        message = f'Back-off pulling image "{image}": ErrImagePull: {text}'
        self._report(pod, here, waiting="ImagePullBackOff", message=message)
        failed = f'Failed to pull image "{image}": {text}'
        self._storage.event(pod, "Warning", "Failed", failed, "kubelet")

    # --- the status

    def _report(self, pod: Obj, here: PodHere, *, waiting: str = "", message: str = "") -> None:
        """Write the status of a pod."""
        spec = pod["spec"]

        def change(obj: Obj) -> None:
            status = obj["status"]
            if status.get("phase") in ("Succeeded", "Failed"):
                return
            status.setdefault("startTime", timestamp())
            status["hostIP"] = self._hosts[spec["nodeName"]]
            status["hostIPs"] = [{"ip": status["hostIP"]}]
            init = spec.get("initContainers", [])
            states = {
                one["name"]: self._state(here, one, waiting, message) for one in self._all(spec)
            }
            for field, listed in (
                ("containerStatuses", spec["containers"]),
                ("initContainerStatuses", init),
            ):
                if listed:
                    status[field] = [states[one["name"]] for one in listed]
            ready = all(one["ready"] for one in status["containerStatuses"])
            started = all(
                "waiting" not in s["state"] or s["lastState"] for s in status["containerStatuses"]
            )
            if started:
                status["podIP"], status["podIPs"] = here.address, [{"ip": here.address}]
            set_condition(obj, "PodReadyToStartContainers", not waiting)
            set_condition(obj, "Initialized", started or not init)
            status["phase"] = phase = self._phase(obj, here, started)
            over = phase in ("Succeeded", "Failed")
            why = "PodCompleted" if phase == "Succeeded" else "" if ready else "ContainersNotReady"
            set_condition(obj, "ContainersReady", ready and not over, why)
            set_condition(obj, "Ready", ready and not over, why)
            if here.eviction is not None and over:
                status["phase"] = "Failed"
                status["reason"], status["message"] = here.eviction

        try:
            self._storage.update("pods", *key_of(pod), change, subresource="*")
        except ApiError:
            pass  # it is gone

    def _phase(self, pod: Obj, here: PodHere, started: bool) -> str:
        status, policy = pod["status"], pod["spec"]["restartPolicy"]
        codes = [
            s["state"].get("terminated", {}).get("exitCode") for s in status["containerStatuses"]
        ]
        inits = [
            s["state"].get("terminated", {}).get("exitCode")
            for s in status.get("initContainerStatuses", ())
        ]
        if policy == "Never" and any(code for code in inits):
            return "Failed"
        if not started:
            return "Pending"
        if None in codes:
            return "Running"
        ending = here.ending or here.eviction is not None
        if policy == "Always" and not ending:
            return "Running"
        if policy == "OnFailure" and any(codes) and not ending:
            return "Running"
        return "Failed" if any(codes) else "Succeeded"

    def _state(self, here: PodHere, one: Obj, waiting: str, message: str) -> Obj:
        name = one["name"]
        container = here.containers.get(name)
        made: Obj = {
            "name": name,
            "image": one.get("image", ""),
            "imageID": "",
            "restartCount": here.restarts.get(name, 0),
            "ready": False,
            "started": False,
            "lastState": {"terminated": here.last[name]} if name in here.last else {},
        }
        if waiting:
            made["state"] = {
                "waiting": {"reason": waiting} | ({"message": message} if message else {})
            }
        elif container is None and not self._processes:
            made |= self._played(here, name)
        elif container is None:
            made["state"] = {"waiting": {"reason": "PodInitializing"}}
        elif container.code is None:
            made["state"] = {"running": {"startedAt": timestamp(container.started)}}
            made["ready"] = made["started"] = name not in here.unready
        elif name in here.again_at:
            made["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
            made["lastState"] = {"terminated": self._terminated(one, container)}
        else:
            made["state"] = {"terminated": self._terminated(one, container)}
        return made

    def _terminated(self, one: Obj, container: Container) -> Obj:
        assert container.code is not None
        code = container.code
        reason = container.reason or ("Completed" if code == 0 else "Error")
        made = {
            "exitCode": code,
            "reason": reason,
            "startedAt": timestamp(container.started),
            "finishedAt": timestamp(container.ended),
            "containerID": f"containerd://{container.mark}",
        }
        if code and one.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            made["message"] = container.log.tail()
        return made

    # --- without processes

    def _played(self, here: PodHere, name: str) -> Obj:
        ended = self._results.get(here.uid, {}).get(name)
        if ended is None:
            state = {"running": {"startedAt": timestamp()}}
            return {"state": state, "ready": True, "started": True}
        return {"state": {"terminated": ended}}

    def end(self, pod: Obj, code: int = 0, container: str = "", reason: str = "") -> None:
        """Without processes: end a container of a pod, or all."""
        here = self.pods[pod["metadata"]["uid"]]
        why = reason or ("Completed" if code == 0 else "Error")
        names = [container] if container else [one["name"] for one in pod["spec"]["containers"]]
        for name in names:
            made = {"exitCode": code, "reason": why, "finishedAt": timestamp()}
            self._results.setdefault(here.uid, {})[name] = made
        self._report(pod, here)

    # --- the end of pods

    def _terminate(self, pod: Obj, here: PodHere) -> float | None:
        if not self._processes:
            if not here.ending:
                here.ending = True
                for one in pod["spec"]["containers"]:
                    self._results.setdefault(here.uid, {}).setdefault(
                        one["name"], {"exitCode": 143, "reason": "Error", "finishedAt": timestamp()}
                    )
            self._report(pod, here)
            self._finalize(pod)
            return None
        running = [one for one in here.containers.values() if one.code is None]
        if not here.ending:
            here.ending = True
            for one in running:
                one.signal(signal.SIGTERM)
            seconds = pod["metadata"].get("deletionGracePeriodSeconds", 30)
            if here.eviction is not None:
                seconds = min(seconds, pod["spec"].get("terminationGracePeriodSeconds", 30))
            timer = threading.Timer(seconds * self.grace_scale, self._kill, (here,))
            timer.daemon = True
            timer.start()
        if pod["metadata"].get("deletionGracePeriodSeconds") == 0:
            self._kill(here)
        if running:
            return None
        self._report(pod, here)
        if "deletionTimestamp" in pod["metadata"]:
            self._finalize(pod)
        return None

    def _kill(self, here: PodHere) -> None:
        for one in here.containers.values():
            one.kill()

    def _finalize(self, pod: Obj) -> None:
        """The pod has ended: it may go."""
        with contextlib.suppress(ApiError):
            self._storage.delete("pods", *key_of(pod), grace=0, uid=pod["metadata"]["uid"])

    # --- what a test does

    def container(self, pod: Obj, name: str = "") -> Container:
        """A container of a pod that runs processes; by default, its first one."""
        here = self.pods[pod["metadata"]["uid"]]
        return here.containers[name or pod["spec"]["containers"][0]["name"]]

    def run_out_of_memory(self, pod: Obj, name: str = "") -> None:
        """End a container as the kernel does when its memory is used up."""
        self.container(pod, name).kill("OOMKilled")

    def evict(self, pod: Obj, message: str = "The node was low on resource: memory.") -> None:
        """End a pod because its node has too little of something."""
        here = self.pods[pod["metadata"]["uid"]]
        disrupt(self._storage, pod, "TerminationByKubelet", message)
        here.eviction = ("Evicted", message)
        self._manager.add(self, key_of(pod))

    def drain(self, node: str) -> None:
        """Cordon a node and evict its pods, as `kubectl drain` does."""
        self._change_node(node, lambda obj: obj["spec"].update(unschedulable=True))
        for pod in self._on(node):
            text = "Eviction API: evicting"
            disrupt(self._storage, pod, "EvictionByEvictionAPI", text)
            with contextlib.suppress(ApiError):
                self._storage.delete("pods", *key_of(pod))

    def lose_node(self, node: str, *, power: bool = True) -> None:
        """A node does not answer any more. power: its processes are gone; else only its network
        is. Its pods are deleted after their toleration, and stay Terminating."""
        self._silent.add(node)
        for pod in self._on(node) if power else ():
            here = self.pods.get(pod["metadata"]["uid"])
            if here is not None:
                self._kill(here)

        def change(obj: Obj) -> None:
            set_condition(
                obj, "Ready", False, "NodeStatusUnknown", "Kubelet stopped posting node status."
            )
            obj["status"]["conditions"][-1]["status"] = "Unknown"
            taints = [{"key": UNREACHABLE, "effect": one} for one in ("NoSchedule", "NoExecute")]
            obj["spec"]["taints"] = [*obj["spec"].get("taints", ()), *taints]

        for pod in self._on(node):
            self._not_ready(pod)
        self._change_node(node, change)

    def is_silent(self, node: str) -> bool:
        """Whether a node was lost."""
        return node in self._silent

    def find_node(self, node: str) -> None:
        """A node that was lost answers again; it ends what was deleted meanwhile."""
        self._silent.discard(node)

        def change(obj: Obj) -> None:
            set_condition(obj, "Ready", True, "KubeletReady", "kubelet is posting ready status")
            kept = [one for one in obj["spec"].get("taints", ()) if one["key"] != UNREACHABLE]
            obj["spec"]["taints"] = kept

        self._change_node(node, change)
        for pod in self._on(node):
            self._manager.add(self, key_of(pod))

    def remove_node(self, node: str) -> None:
        """A node is no part of the cluster any more, which ends its pods for the cluster."""
        self._silent.add(node)
        for pod in self._on(node):
            here = self.pods.get(pod["metadata"]["uid"])
            if here is not None:
                self._kill(here)
        self._storage.delete("nodes", "", node)

    def _not_ready(self, pod: Obj) -> None:
        def change(obj: Obj) -> None:
            if has_condition(obj, "Ready"):
                set_condition(obj, "Ready", False, "NodeNotReady")

        with contextlib.suppress(ApiError):
            self._storage.update("pods", *key_of(pod), change, subresource="*")

    def _change_node(self, node: str, change: Callable[[Obj], Any]) -> None:
        self._storage.update("nodes", "", node, change, subresource="*")

    def _on(self, node: str) -> list[Obj]:
        return [pod for pod in self._storage.listed("pods") if pod["spec"].get("nodeName") == node]

    def close(self) -> None:
        """End all processes of pods."""
        for here in [*self.pods.values()]:
            self._clean(here)
            for one in here.containers.values():
                one.process.wait(30)


def _expand(text: str, env: Mapping[str, str]) -> str:
    """Kubernetes: $(NAME) in commands and variables; $$ is a $."""

    def replaced(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return env.get(found[1], found[0])

    return _REFERENCE.sub(replaced, text)


def _started(pod: Obj) -> bool:
    return bool(pod["status"].get("phase", "Pending") != "Pending")
