"""Settings that both formats have survive a round trip; the others are listed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from muster.spec.formats.documents import documents
from muster.spec.formats.jobset import kubernetes as k8s
from muster.spec.formats.jobset.config_objects import ConfigObjects
from muster.spec.formats.jobset.failures_read import AT_ONCE, LIMIT
from muster.spec.formats.jobset.probes import hook_command
from muster.spec.formats.jobset.read import read_jobset
from muster.spec.formats.jobset.volumes_read import OWN_TMP
from muster.spec.formats.jobset.write import write_jobset
from muster.spec.formats.spec_write import write_spec
from muster.spec.formats.yaml_write import dump
from muster.spec.models import (
    Checkpoint,
    Container,
    JobSpec,
    Kubernetes,
    Kueue,
    LivenessProbe,
    Logging,
    Metadata,
    Mount,
    NodeGroup,
    Resources,
    StartupProbe,
    Topology,
)
from muster.spec.override_models import RunOverrides
from muster.spec.policies import DependsOn, FailurePolicy, FailureRule, SuccessPolicy
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve
from muster.spec.values import MAX_RUNTIME
from muster.spec.yaml import load

HTTP_HOOK = hook_command(
    k8s.LifecycleHandler(http_get=k8s.HTTPGetAction(port=80)), k8s.Container(), "", problems=[]
)
NAMES = ("driver", "workers", "eval")
INDEX = {"JOB_COMPLETION_INDEX": "${index}"}

texts = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")) | st.sampled_from("$()${}\n"),
    max_size=12,
).filter(lambda text: not re.search(r"\{\{|\{%|^<.*>$|\$\{[a-z0-9_.-]+\}", text, re.DOTALL))
words = st.lists(texts, max_size=3).map(tuple)
commands = st.tuples(st.sampled_from(("echo", "bash")), texts).map(tuple)
seconds = st.integers(1, 10**6).map(float)
env = st.dictionaries(st.sampled_from(("A", "B", "HOME", "PATH")), texts, max_size=3)
templates = st.sampled_from(
    (
        "${index}",
        "${replica}",
        "${group}",
        "${run.restarts}",
        "${address}",
        "${hostname}",
        "${run.id}",
        "${run.id}-${rank}",
        "w-${replica}-${index}.$(A)$$",
        "${HOME}/${address}",
    )
)
#: Texts that differ between the pods of a group.
differing = st.sampled_from(("--at=${address}", "${run.restarts}", "$(A)$$${address}$${rank}$"))
node_args = st.none() | st.tuples(differing, st.lists(texts | differing, max_size=2)).map(
    lambda drawn: (drawn[0], *drawn[1])
)
annotations = st.dictionaries(
    st.sampled_from(("alpha.jobset.sigs.k8s.io/node-selector", "kueue.x-k8s.io/x", "note")),
    texts,
    max_size=2,
)
labels = st.dictionaries(
    st.sampled_from(("kueue.x-k8s.io/queue-name", "team")), st.sampled_from(("", "a", "1.0"))
)
metadata = st.builds(Metadata, labels=labels, annotations=annotations)
node_env = st.dictionaries(st.sampled_from(("R", "S", "T")), templates, max_size=2)
probes = st.builds(
    StartupProbe,
    file=st.just("/up"),
    period=seconds,
    timeout=seconds,
    threshold=st.integers(1, 99) | st.just(2**31 - 1),
    initial_delay=seconds | st.just(0.0),
) | st.builds(
    StartupProbe,
    tcp=st.integers(1, 65535),
    http=st.sampled_from((None, "/", "/up?x=1")),
    period=seconds,
    timeout=seconds,
)
liveness = probes.map(lambda probe: LivenessProbe(**asdict(probe)))
hooks = st.sampled_from((("sleep", "5"), ("sleep", "1.5"), ("touch", "/up"), HTTP_HOOK))
resources = st.builds(
    Resources,
    cpus=st.integers(1, 64_000).map(lambda milli: milli / 1000),
    memory=st.none() | st.integers(1, 1 << 50),
    gpus=st.integers(0, 8),
)
sources = st.sampled_from(
    (
        "scratch:node/tmp",
        "scratch:run/model",
        "volume:model-demo",
        "volume:kept-demo",
        "volume:mine",
        "nfs://box/export",
    )
)
mounts = st.lists(sources, max_size=4, unique=True).flatmap(
    lambda chosen: st.tuples(
        *(
            st.builds(Mount, source=st.just(s), path=st.just(f"/m/{i}"), read_only=st.booleans())
            for i, s in enumerate(chosen)
        )
    )
)


labels_of_machines = st.dictionaries(st.sampled_from(("disk", "a.b/c")), st.just("x"))
topologies = st.sampled_from(
    (
        Topology(required="rack"),
        Topology(preferred="a.b/rack", group="both"),
        Topology(unconstrained=True, slice="host", slice_size=2),
    )
)
#: Fields of pods that only a patch can have.
fields_of_pods = st.fixed_dictionaries(
    {},
    optional={
        "hostNetwork": st.booleans(),
        "dnsPolicy": st.just("None"),
        "topologySpreadConstraints": st.just(
            [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
        ),
        "securityContext": st.just({"fsGroupChangePolicy": "Always"}),
    },
)
#: The same of containers.
fields_of_containers = st.fixed_dictionaries(
    {},
    optional={
        "ports": st.just([{"containerPort": 80, "name": "web", "hostPort": 8080}]),
        "env": st.just(
            [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}]
        ),
        "envFrom": st.just([{"configMapRef": {"name": "settings"}}]),
        "resources": st.just({"requests": {"ephemeral-storage": "1Mi"}}),
        "securityContext": st.just({"procMount": "Unmasked"}),
    },
)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Kubernetes | None, tuple[Mount, ...]]:
    """What a group asks of its cluster, and the mounts for which other engines have a folder."""
    spec, node, volumes = draw(fields_of_pods), draw(fields_of_containers), []
    seen, own = [], []
    for number, path in enumerate(draw(st.lists(st.sampled_from(("/data", "/more")), unique=True))):
        name, mount = f"disk-{number}", {"mountPath": f"/h/{number}"}
        volumes.append({"name": name, "hostPath": {"path": path, "type": "Directory"}})
        seen.append({"name": name, **mount})
        own.append(Mount(source=path, path=f"/h/{number}"))
    if draw(st.booleans()):
        volumes.append({"name": "files", "csi": {"driver": "files.test"}})
        seen.append({"name": "files", "mountPath": "/files", "mountPropagation": "None"})
    if seen:
        node, spec = {**node, "volumeMounts": seen}, {**spec, "volumes": volumes}
    if node:
        spec = {**spec, "containers": [{"name": "node", **node}]}
    made = Kubernetes(
        service_account=draw(st.sampled_from((None, "trainer"))),
        priority_class=draw(st.sampled_from((None, "high"))),
        runtime_class=draw(st.sampled_from((None, "kata"))),
        scheduler=draw(st.sampled_from((None, "volcano"))),
        image_pull_secrets=draw(st.sampled_from(((), ("login", "other")))),
        node_selector=draw(labels_of_machines),
        tolerations=draw(st.sampled_from(((), ({"key": "gpu", "operator": "Exists"},)))),
        affinity=draw(st.sampled_from(({}, {"podAffinity": {}}))),
        exclusive=draw(st.sampled_from((None, "cloud.test/pool"))),
        topology=draw(st.none() | topologies),
        resources=draw(st.sampled_from(({}, {"rdma/ib": "1", "hugepages-2Mi": "64Mi"}))),
        pod={"spec": spec} if spec else {},
    )
    return None if made == Kubernetes() else made, tuple(own)


@st.composite
def rules(draw: st.DrawFn, groups: tuple[str, ...]) -> FailureRule:
    action = draw(st.sampled_from(("fail", "restart_run", "restart_replica")))
    some = st.lists(st.sampled_from(groups), unique=True, max_size=len(groups) - 1)
    return FailureRule(
        action=action,
        count=action == "fail" or draw(st.booleans()),
        groups=tuple(sorted(draw(some), key=groups.index)),
    )


@st.composite
def policies(draw: st.DrawFn, groups: tuple[str, ...]) -> FailurePolicy:
    """Rules that JobSet supports, of which none makes another unreachable."""
    made: list[FailureRule] = []
    for rule in draw(st.lists(rules(groups), max_size=3)):
        suffix, reasons = draw(st.sampled_from((("deadline", ("deadline",)), ("limit", LIMIT))))
        if any(set(reasons) <= set(o.reasons) for o in made):
            continue
        name = f"r{len(made)}.{suffix}"
        made.append(replace(rule, name=name, reasons=reasons))
    made += [
        replace(rule, name=f"last{rule.count}")
        for rule in draw(st.lists(rules(groups), max_size=1))
    ]
    return FailurePolicy(
        max_restarts=draw(st.integers(0, 5)),
        strategy=draw(st.sampled_from(("recreate", "blocking_recreate"))),
        rules=tuple(made),
        backoff=AT_ONCE,
    )


@st.composite
def groups(draw: st.DrawFn) -> tuple[NodeGroup, ...]:
    made: list[NodeGroup] = []
    claims: dict[str, str] = {}
    for name in NAMES[: draw(st.integers(1, 3))]:
        earlier = [group.name for group in made]
        needs = draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else []
        own, (kubernetes, of_machines) = draw(node_env), draw(clusters())
        own_mounts = []
        for mount in draw(mounts):
            # the JobSet's claims have one namespace
            key = mount.source.rpartition("/")[2].removeprefix("volume:").removesuffix("-demo")
            if claims.setdefault(key, mount.source) == mount.source:
                own_mounts.append(mount)
        made.append(
            NodeGroup(
                name=name,
                nodes=draw(st.integers(1, 4)),
                replicas=draw(st.integers(1, 3)),
                command=draw(commands),
                args=draw(words) or None,
                node_args=draw(node_args),
                env=draw(env),
                node_env=own | INDEX,
                image=draw(st.none() | st.just("registry/image:1")),
                resources=draw(st.none() | resources),
                mounts=(*own_mounts, *of_machines, OWN_TMP),
                kubernetes=kubernetes,
                container=draw(st.none() | st.just(Container(shm_size=1 << 30, groups=(7,)))),
                working_dir=draw(st.sampled_from((None, "/opt", "/m/0/new"))),
                startup_probe=draw(st.none() | probes),
                liveness_probe=draw(st.none() | liveness),
                after_start=draw(st.none() | hooks),
                before_stop=draw(st.none() | hooks),
                depends_on=tuple(
                    DependsOn(group=n, status=draw(st.sampled_from(("ready", "complete"))))
                    for n in needs
                ),
                retries=draw(st.integers(0, 9)),
                timeout=draw(st.none() | seconds),
                hostname=f"demo-{name}-${{replica}}-${{index}}",
                job_metadata=draw(metadata),
                pod_metadata=draw(metadata),
            )
        )
    return tuple(made)


@st.composite
def representable(draw: st.DrawFn) -> JobSpec:
    """Jobs that a JobSet can represent."""
    made = draw(groups())
    names = tuple(group.name for group in made)
    targets = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
    kueue = draw(st.sampled_from((None, Kueue(queue="a", priority="b"), Kueue(priority="b"))))
    limits = st.sampled_from((MAX_RUNTIME, 3600.0, 1.0))
    ordered = not any(group.depends_on for group in made) and draw(st.booleans())
    return JobSpec(
        name="demo",
        description=draw(st.sampled_from(("", "For people.\nTwo lines."))),
        node_groups=made,
        startup="in_order" if ordered else "parallel",
        success=SuccessPolicy(when=draw(st.sampled_from(("all", "any"))), groups=tuple(targets)),
        failure=draw(st.just(FailurePolicy()) | policies(names)),
        grace_period=float(draw(st.integers(0, 600))),
        ttl_after_finished=draw(st.none() | seconds),
        suspend=draw(st.booleans()),
        subdomain=draw(st.sampled_from(("demo", "example", None))),
        namespace=draw(st.sampled_from(("default", "team"))),
        clean_env=True,
        tags=draw(st.just({}) | st.just({"example.com/team": "a", "x": "1"})),
        annotations=draw(annotations),
        kueue=kueue,
        max_runtime=draw(limits) if kueue is not None and kueue.queue else MAX_RUNTIME,
    )


def again(data: Mapping[str, Any]) -> JobSpec:
    """The job of a manifest that was written as text and read again, for a cluster."""
    (document,) = documents(dump(data), "x.yaml")
    return read_jobset(document, ConfigObjects(in_cluster=True)).spec


def normal(spec: JobSpec) -> JobSpec:
    return resolve(spec, RunOverrides()).spec


def harmless(path: str) -> bool:
    """Losses that every job for Kubernetes has."""
    return path.endswith(".image") or path == "failure.strategy"


@settings(deadline=None)
@given(representable())
def test_jobs_survive_writing_and_reading(spec: JobSpec) -> None:
    written = write_jobset(spec)
    assert again(written.data) == spec
    assert [loss for loss in written.losses if not harmless(loss.path)] == []


@settings(deadline=None)
@given(representable())
def test_manifests_survive_reading_and_writing(spec: JobSpec) -> None:
    data = write_jobset(spec).data
    assert write_jobset(again(data)).data == data


NAMED = ("${rank}", "${run.name}")
PER_INCARNATION = Mount(source="scratch:incarnation/x", path="/x")


@st.composite
def unrepresentable(draw: st.DrawFn) -> JobSpec:
    """Jobs with settings that no JobSet can represent."""
    spec = draw(representable())
    group, *rest = spec.node_groups
    group = replace(
        group,
        hostname=draw(st.sampled_from((None, group.hostname, "n${rank}"))),
        node_env=draw(st.sampled_from(({}, {"R": "${rank}"}, {"R": "x${run.name}"}))),
        node_args=draw(st.sampled_from((None, *((f"{n}${{address}}",) for n in NAMED)))),
        min_success=draw(st.sampled_from((None, 0))),
        max_restarts=draw(st.sampled_from((None, 1))),
        ready_timeout=draw(st.sampled_from((None, 0.5))),
        hang_timeout=draw(st.sampled_from((None, 60.0))),
        timeout=draw(st.sampled_from((None, 1.5))),
        shape=draw(st.sampled_from((None, "lab"))) if group.resources is None else None,
        mounts=(
            *draw(st.sampled_from((group.mounts, group.mounts[:-1], (PER_INCARNATION,)))),
            Mount(source="s3://b/c", path="/s3"),
        ),
        working_dir=draw(st.sampled_from((None, "/opt", "deep"))),
    )
    odd = (
        FailureRule(action="restart_group", name="a", exit_codes=(9,)),
        FailureRule(action="restart_node", name="a.b", count=False, exit_codes=(7,)),
        FailureRule(action="restart_run", name="c-d", exit_codes=(3,)),
        FailureRule(action="fail", name="e", exit_codes=(4,), before_retries=True),
        FailureRule(action="fail", name="driver.at-once.x", groups=("driver",), exit_codes=(5,)),
        FailureRule(action="restart_run", signals=("SIGKILL",)),
        FailureRule(action="restart_run", reasons=("hang",), max_restarts=1),
        FailureRule(action="restart_node", name="x", reasons=("node_lost",), groups=("driver",)),
    )
    strategy = draw(st.sampled_from((None, "recreate", "in_place")))
    return replace(
        spec,
        name=draw(st.sampled_from(("demo", "Demo_1"))),
        node_groups=(*rest, group) if draw(st.booleans()) and not rest else (group, *rest),
        framework=draw(st.sampled_from(("generic", "pytorch"))),
        engine=draw(st.sampled_from(("local", "mine"))),
        processes_per_node=draw(st.integers(1, 2)),
        network=draw(st.sampled_from((None, "shared", "cluster", "isolated"))),
        clean_env=draw(st.booleans()),
        max_runtime=draw(st.sampled_from((30 * 86400.0, 2e6))),
        attempt_timeout=draw(st.sampled_from((None, 5.0))),
        keep_attempts=draw(st.sampled_from((None, 2))),
        checkpoint=draw(st.sampled_from((None, Checkpoint()))),
        logging=draw(st.sampled_from((Logging(), Logging(directory="/logs")))),
        tags={"team": "a", "no label": "b"},
        success=spec.success if rest else SuccessPolicy(others="wait"),
        failure=FailurePolicy(
            max_restarts=draw(st.integers(0, 2)),
            rules=tuple(draw(st.lists(st.sampled_from(odd), unique=True, max_size=2))),
            strategy=strategy,
            action=draw(st.sampled_from(("restart_run", "restart_group"))),
        ),
    )


@settings(deadline=None)
@given(unrepresentable())
def test_losses_are_listed(spec: JobSpec) -> None:
    written = write_jobset(spec)
    listed = [loss.path for loss in written.losses]
    for path in _differences(normal(spec), normal(again(written.data))):
        # a variable that was a node's may become one of the group
        same = path.replace("].env", "].node_env")
        assert any(path.startswith(s) or s.startswith((path, same)) for s in listed), path


def _differences(before: JobSpec, after: JobSpec) -> Iterator[str]:
    one, two = msgspec.to_builtins(before), msgspec.to_builtins(after)
    ours = {group["name"]: group for group in one.pop("node_groups")}
    theirs = {group["name"]: group for group in two.pop("node_groups")}
    for data, members in ((one, ours), (two, theirs)):
        needed = [name for name, group in members.items() if group["min_success"] != 0]
        data["success"]["groups"] = list(data["success"]["groups"]) or needed
    for name, before_it in ours.items():
        theirs[name]["mounts"] = tuple(m for m in theirs[name]["mounts"] if m["path"] != "/tmp")
        before_it["mounts"] = tuple(m for m in before_it["mounts"] if m["path"] != "/tmp")
        for group in (before_it, theirs[name]):
            group["node_env"].pop("JOB_COMPLETION_INDEX", None)  # Jobs add it
            if len(ours) == group["replicas"] == 1:  # then the rank is the index
                words = group["node_args"] or ()
                group["node_args"] = [word.replace("${rank}", "${index}") for word in words]
                for variable, value in group["node_env"].items():
                    group["node_env"][variable] = value.replace("${rank}", "${index}")
        for field, value in before_it.items():
            if value != theirs[name][field]:
                yield f"node_groups[{name}].{field}"
    for field, value in one.items():
        if value != two[field]:
            yield field


codes = st.lists(st.integers(1, 255), min_size=1, max_size=4, unique=True)
pod_rules = st.one_of(
    st.builds(
        lambda action, operator, values: {
            "action": action,
            "onExitCodes": {"operator": operator, "values": values},
        },
        st.sampled_from(("FailJob", "Ignore", "Count")),
        st.sampled_from(("In", "NotIn")),
        codes,
    ),
    st.builds(
        lambda action: {"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]},
        st.sampled_from(("FailJob", "Ignore", "Count")),
    ),
)
job_reasons = st.lists(
    st.sampled_from(
        ("BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "FailedIndexes")
    ),
    unique=True,
)


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    """Manifests with unusual failure policies."""
    names = NAMES[: draw(st.integers(1, 3))]
    jobs = []
    for name in names:
        job: dict[str, Any] = {
            "backoffLimit": draw(st.sampled_from((0, 0, 2))),
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i", "command": ["true"]}],
                }
            },
        }
        theirs = draw(st.lists(pod_rules, max_size=3))
        if theirs:
            job["podFailurePolicy"] = {"rules": theirs}
        jobs.append({"name": name, "template": {"spec": job}})
    output = [
        {
            "action": draw(
                st.sampled_from(("FailJobSet", "RestartJob", "RestartJobSetAndIgnoreMaxRestarts"))
            ),
            "targetReplicatedJobs": draw(st.lists(st.sampled_from(names), unique=True)),
            "onJobFailureReasons": draw(job_reasons),
        }
        for _ in range(draw(st.integers(0, 3)))
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "demo"},
        "spec": {
            "replicatedJobs": jobs,
            "failurePolicy": {"maxRestarts": draw(st.integers(0, 3)), "rules": output},
        },
    }


@settings(deadline=None)
@given(manifests())
def test_failure_policies_survive_a_round_trip(data: dict[str, Any]) -> None:
    spec = again(data)
    written = write_jobset(spec)
    assert _decisions(again(written.data)) == _decisions(spec)
    assert [loss for loss in written.losses if not harmless(loss.path)] == []


def _decisions(spec: JobSpec) -> dict[tuple[str, str, int], Any]:
    """The decision about each possible failure, and whether retries come before it."""
    failures = [("exit", code) for code in range(1, 256)]
    failures += [("node_lost", 0), ("deadline", 143), ("startup_timeout", 143)]
    return {
        (group.name, reason, code): next(
            (
                (
                    rule.action,
                    rule.count,
                    (rule.name or "").partition(".")[0],
                    group.retries > 0 and not rule.before_retries,
                )
                for rule in sorted(spec.failure.rules, key=lambda rule: not rule.before_retries)
                if (not rule.groups or group.name in rule.groups)
                and (not rule.reasons or reason in rule.reasons)
                and (not rule.exit_codes or code in rule.exit_codes)
            ),
            None,
        )
        for group in spec.node_groups
        for reason, code in failures
    }


@settings(deadline=None)
@given(st.one_of(representable(), unrepresentable()))
def test_specs_survive_writing_as_yaml(spec: JobSpec) -> None:
    data, _ = load(dump(write_spec(spec)), "job.yaml")
    assert spec_from_mapping(data) == spec
