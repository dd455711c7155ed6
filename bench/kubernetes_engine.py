"""The engine for Kubernetes: what is compiled, what is watched, what a run costs the API server,
and how long it takes until all programs run again.

`python bench/kubernetes_engine.py watch agents` measures these alone.

* compile: 15,000 nodes to the manifest, its YAML and the ConfigMap. The floor is the plan itself as
  JSON.
* watch: each of 5,000 pods changes once, with 1 run and with 20 in the namespace. The floor is the
  same lines, decoded by `json`.
* agents: the whole supervisor with node servers that are simulated, over TLS: until all run, until
  all run again after one has failed, its memory, and until all have left.
* double: programs restart in the pods of the double of a cluster, beside the local engine and nodes
  that are reached over ssh; and the calls of a run.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from common import Measure, compare
from controller import resident
from recovery import accept
from simulated_cluster import Handle, pod_of, simulated_cluster

from muster.control.clock import SteadyClock
from muster.control.drive import Driver, RunParts
from muster.engines.base import Report, RunContext, Session
from muster.engines.kubernetes.changes import Change, PodChanged
from muster.engines.kubernetes.cluster import Cluster
from muster.engines.kubernetes.engine import KubernetesEngine
from muster.engines.kubernetes.layout import layout
from muster.engines.kubernetes.manifest import manifest
from muster.engines.kubernetes.names import jobset_name
from muster.engines.kubernetes.objects import config_map, description
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.versions import Versions
from muster.engines.kubernetes.watcher import Watcher
from muster.engines.loop import EventLoop, RunLoop
from muster.engines.node_program import node_program
from muster.engines.profiles import default_profile
from muster.lifecycle.events import CancelRequested
from muster.plan.arrange import arrange
from muster.plan.build import Identity, build_plan
from muster.plan.model import ResourcePlan, RunPlan
from muster.spec.formats.yaml_write import dump
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.override_models import RunOverrides
from muster.spec.policies import Backoff, FailurePolicy
from muster.spec.resolve import resolve
from muster.storage.home import Home
from muster.store.sqlite.store import SqliteStore

PROFILE = KubernetesProfile()
#: Kubernetes: the most bytes of a ConfigMap's data.
MOST_BYTES = 1 << 20
NODES, PODS, RUNS = 15_000, 5_000, 20
ROUNDS = 5


def plan_of(run_id: str, *groups: tuple[int, int]) -> RunPlan:
    """groups: of each, its replicas and the nodes of one."""
    made = tuple(
        NodeGroup(name=f"g{number}", nodes=nodes, replicas=replicas, command=("train",))
        for number, (replicas, nodes) in enumerate(groups)
    )
    failure = FailurePolicy(max_restarts=3, backoff=Backoff(initial=0.0))
    spec = resolve(JobSpec(node_groups=made, failure=failure), RunOverrides()).spec
    return build_plan(
        arrange(spec),
        Identity(run_id, "bench-1", "job", "bench"),
        artifact=None,
        addresses=lambda _, count: [""] * count,
        source_kind=lambda _: "directory",
        shape_of=lambda _: ResourcePlan(),
    )


# --- compile


def compiled(plan: RunPlan, slots: Sequence[int]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The objects with pods, and the ConfigMap."""
    made = manifest(plan, PROFILE, Versions(), slots)
    described = description(plan, PROFILE, layout(plan, slots), {})
    return made, config_map(plan, PROFILE, jobset_name(plan, 0), node_program(), described)


def size_of(configured: Mapping[str, Any]) -> int:
    """Bytes that the API server counts."""
    encoded = sum(len(text) * 3 // 4 for text in configured["binaryData"].values())
    return encoded + sum(len(text) for text in configured["data"].values())


def compile_nodes() -> None:
    replicas = NODES // 4
    shapes = {
        "1 group": plan_of("r1", (replicas, 4)),
        "1 gang": plan_of("r1", (1, NODES)),
        "15 groups": plan_of("r1", *[(replicas // 15, 4)] * 15),
    }
    entrants: dict[str, Measure] = {}
    for name, plan in shapes.items():
        slots = range(len(plan.nodes))

        def floor(plan: RunPlan = plan) -> None:
            msgspec.json.encode(plan.to_json())

        def every(plan: RunPlan = plan, slots: Sequence[int] = slots) -> None:
            made, configured = compiled(plan, slots)
            for one in made:
                dump(one)
            msgspec.json.encode([*made, configured])

        entrants |= {f"floor: the plan, {name}": seconds(floor), name: seconds(every)}
    compare(f"{NODES:,} nodes: manifest, YAML and ConfigMap", entrants, rounds=ROUNDS)
    for name, plan in shapes.items():
        every_second = range(0, len(plan.nodes), 2)
        whole = size_of(compiled(plan, range(len(plan.nodes)))[1])
        parts = size_of(compiled(plan, every_second)[1])
        print(
            f"ConfigMap, {name}: {whole / 1024:,.0f} KiB, {whole / MOST_BYTES:.0%} of the limit; "
            f"if every second node has another pod, {parts / 1024:,.0f} KiB"
        )


def seconds(work: Callable[[], object]) -> Measure:
    def measure() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return measure


# --- watch


class Run:
    """A run that notes the changes of its pods."""

    def __init__(self, loop: EventLoop, watcher: Watcher, run_id: str) -> None:
        self.failures: list[Exception] = []
        self.pods = 0
        self.changed = 0
        self._subscription = watcher.subscribe(
            run_id, RunLoop(loop, self.failures.append), self._seen
        )

    def _seen(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, PodChanged):
                self.pods += change.pod.addresses[0].startswith("10.1.")
                self.changed += change.pod.addresses[0].startswith("10.2.")

    def close(self) -> None:
        self._subscription.close()


def watch(runs: int) -> None:
    """Print a row, in a process of its own."""
    with (
        tempfile.TemporaryDirectory() as name,
        closing(EventLoop()) as loop,
        simulated_cluster(Path(name)) as cluster,
    ):
        for number in range(runs):
            cluster.tell("pods", _jobset(number, PODS // runs))
        cluster.tell("calls")
        cluster.answer()  # the pods are there
        before = resident()
        watcher = Watcher(Cluster(KubernetesProfile(kubeconfig=str(cluster.kubeconfig))))
        every = [Run(loop, watcher, f"r{number}") for number in range(runs)]
        start, cpu = time.perf_counter(), time.process_time()
        _until(loop, every, lambda one: one.pods == PODS // runs)
        listed = time.perf_counter() - start, time.process_time() - cpu
        time.sleep(0.5)  # until the stream is open
        start, cpu = time.perf_counter(), time.process_time()
        cluster.tell("change", "again")
        _until(loop, every, lambda one: one.changed == PODS // runs)
        changed = time.perf_counter() - start, time.process_time() - cpu
        grown = (resident() - before) / 1e6
        for one in every:
            one.close()
        cluster.tell("calls")
        calls = Counter(cluster.answer())
    floor = _floor(runs)
    streams = sum(count for call, count in calls.items() if call.startswith("WATCH"))
    print(
        f"{runs:4} {grown:8.1f} MB {listed[0]:8.2f} s {changed[0]:8.2f} s {changed[1]:8.2f} s CPU "
        f"{changed[1] / floor:6.2f} x floor, {streams} streams, {len(calls)} kinds of calls",
        flush=True,
    )


def _until(loop: EventLoop, every: Sequence[Run], done: Callable[[Run], bool]) -> None:
    while not all(map(done, every)):
        loop.run_once()
        for one in every:
            if one.failures:
                raise one.failures[0]


def _jobset(number: int, pods: int) -> dict[str, Any]:
    (made,) = manifest(plan_of(f"r{number}", (1, pods)), PROFILE, Versions())
    return made


def _floor(runs: int) -> float:
    """Seconds of CPU to decode the same changes."""
    line = {"type": "MODIFIED", "object": None}
    lines = []
    for number in range(runs):
        jobset = _jobset(number, PODS // runs)
        template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        for index in range(PODS // runs):
            pod = pod_of(template, jobset["metadata"]["name"], "g0", 0, index)
            lines.append(json.dumps({**line, "object": pod}))
    start = time.process_time()
    for one in lines:
        json.loads(one)
    return time.process_time() - start


# --- agents


class Supervisor:
    """The process that drives a run: controller, store, session and streams are real."""

    def __init__(self, folder: Path, cluster: Handle, nodes: int) -> None:
        self.loop = EventLoop()
        self._cluster = cluster
        self._heard: list[Any] = []
        self._participant = self.loop.add(lambda _: self._heard.append(cluster.answer()))
        self._participant.watch(cluster.fileno())
        self._store = SqliteStore.open(folder / "muster.db")
        self._requested: list[CancelRequested] = []
        plan = plan_of("r1", (1, nodes))
        home = Home(folder)
        home.run_dir(plan.run_id).path.mkdir(parents=True)
        settings = {"kubeconfig": str(cluster.kubeconfig)}
        profile = replace(default_profile(home, "kubernetes"), settings=settings)
        self._engine = KubernetesEngine(profile, home)
        self._context = RunContext(plan, home, dict(os.environ), sys.executable, keep=True)
        self._driver = Driver(self.loop)
        ledger = accept(self._store, plan)
        self._run = self._driver.add(
            RunParts(
                *(plan.policy, ledger, SteadyClock(), self._open),
                requests=lambda: self._requested,
                detached=True,
            )
        )

    def _open(self, loop: RunLoop, report: Report) -> Session:
        return self._engine.open(self._context, loop, report)

    def answer(self) -> Any:
        """What the cluster says next."""
        while not self._heard:
            self.loop.run_once()
            assert self._driver.runs, self._run.outcome
        return self._heard.pop()

    def cancel(self) -> float:
        """Cancel the run. Returns the seconds until nothing is left of it."""
        start = time.perf_counter()
        self._requested.append(CancelRequested("measured"))
        self._run.wake()
        while self._driver.runs:
            self.loop.run_once()
        assert self._run.outcome is not None
        assert self._run.outcome.error is None, self._run.outcome.error
        return time.perf_counter() - start

    def settle(self, pause: float) -> None:
        """Run the loop for a while."""
        end = time.monotonic() + pause
        timer = self.loop.add(lambda _: None)
        while time.monotonic() < end:
            timer.wake_at(end)
            self.loop.run_once()
        timer.close()


def agents(nodes: int) -> None:
    """Print a row, in a process of its own."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as name,
        simulated_cluster(Path(name)) as cluster,
    ):
        start, cpu = time.perf_counter(), time.process_time()
        one = Supervisor(Path(name), cluster, nodes)
        one.answer()
        first = time.perf_counter() - start, time.process_time() - cpu
        one.settle(2.0)
        again, used = [], []
        for _ in range(3):
            cpu = time.process_time()
            cluster.tell("fail", 7 % nodes)
            again.append(one.answer())
            used.append(time.process_time() - cpu)
            one.settle(1.0)
        total = resident() / 1e6
        left = one.cancel()
        cluster.tell("calls")
        calls = Counter(cluster.answer())
    calls_text = ", ".join(f"{count} {call}" for call, count in sorted(calls.items()))
    print(
        f"{nodes:6,} {first[0]:8.2f} s {first[1]:6.2f} s CPU {statistics.median(again):8.3f} s "
        f"{statistics.median(used):6.2f} s CPU {total:8.1f} MB {left:6.2f} s  {calls_text}",
        flush=True,
    )


def in_process(target: Callable[..., None], *args: Any) -> None:
    """In a fresh process: this one has memory that it does not use any more."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=args)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


# --- double


def in_double() -> None:
    from restart import floor, restart

    from support import ssh_hosts
    from support.kube import Cluster as Double
    from support.kube_engine import add_engine

    names = ("floor: bash", "local", "ssh", "kubernetes")
    taken: dict[str, list[float]] = {name: [] for name in names}
    with (
        tempfile.TemporaryDirectory(prefix="kube-") as name,
        tempfile.TemporaryDirectory(prefix="sshd-") as folder,
        ExitStack() as ends,
        Double(Path(name), nodes=4) as double,
    ):
        sshd = ssh_hosts.Sshd(Path(folder))
        ends.callback(sshd.stop)
        over_ssh = partial(ssh_hosts.add_engine, sshd=sshd, slots=4)
        for _ in range(ROUNDS + 1):
            taken["floor: bash"].append(floor(4))
            taken["local"].append(restart(4, "in_place"))
            taken["ssh"].append(restart(4, "in_place", "hosts", over_ssh))
            double.calls.clear()
            add = partial(add_engine, cluster=double)
            taken["kubernetes"].append(restart(4, "in_place", "kubernetes", add))
        double.until(lambda: not double.left(), "nothing is left")
        calls = Counter(
            f"{one.verb} {one.resource}{f'/{one.subresource}' if one.subresource else ''}"
            for one in double.calls
            if one.user == "admin"
        )
    least = statistics.median(taken["floor: bash"][1:])
    print("\n4 nodes, from a failure until all programs run again")
    for entrant, times in taken.items():
        middle = statistics.median(times[1:])
        over = (middle - least) * 1000
        print(f"{entrant:14} {middle * 1000:7.1f}ms {over:+7.1f}ms over the floor")
    print(f"calls of a run: {', '.join(f'{count} {call}' for call, count in calls.items())}")


def main(names: Sequence[str]) -> None:
    if "compile" in names:
        compile_nodes()
    if "watch" in names:
        print(f"\n{PODS:,} pods\n{'runs':>4} {'memory':>11} {'known':>10} {'changed':>10}")
        for runs in (1, RUNS):
            in_process(watch, runs)
    if "agents" in names:
        print("\nsimulated node servers")
        print(
            f"{'nodes':>6} {'run':>10} {'':10} {'run again':>10} {'':10} {'memory':>11} {'left':>8}"
        )
        for nodes in (100, 1_000, 5_000):
            in_process(agents, nodes)
    if "double" in names:
        in_double()


if __name__ == "__main__":
    main(sys.argv[1:] or ("compile", "watch", "agents", "double"))
