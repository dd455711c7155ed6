"""Init containers, sidecars and further containers of nodes: with a Podman of the tests' own."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from engines.container.conftest import MakeSession
from muster.engines.container.containers import list_extra
from muster.engines.container.pod_output import OutputFiles
from muster.engines.container.pod_probes import why_down
from muster.plan.model import ContainerPlan, ExtraContainerPlan, MountPlan
from support.command import json_of, muster, output_of
from support.faults import until
from support.podman_service import IMAGE, PodmanService, add_engine
from support.sessions import Session

WORK = MountPlan("scratch:incarnation/work", "scratch", "/work", "MUSTER_MOUNT_WORK")


def container(name: str, role: str, script: str, **more: Any) -> ExtraContainerPlan:
    return ExtraContainerPlan(name, role, IMAGE, ("sh", "-c", script), mounts=(WORK,), **more)


def lines(one: Session, attempt: int = 0) -> list[str]:
    return sorted(one.output(0, attempt=attempt).splitlines())


def test_init_containers_and_sidecars_are_up_before_the_program(
    run: MakeSession, podman: PodmanService
) -> None:
    probe = {"period": 0.2, "timeout": 5.0, "threshold": 100, "initial_delay": 0.0}
    is_up = {**probe, "command": ["test", "-e", "/work/up"], "port": None, "http": None}
    extra = (
        container("first", "init", "echo $WHO; echo 1 >> /work/order", node_env={"WHO": "${rank}"}),
        container(
            "side",
            "sidecar",
            "trap 'echo bye; exit' TERM; echo 2 >> /work/order; touch /work/up; "
            "while :; do sleep 0.1; done",
            probe={**is_up, "file": None},
        ),
        container("second", "init", "echo 3 >> /work/order"),
    )
    one = run("cat /work/order", mounts=(WORK,), extra_containers=extra, grace_period=20.0)
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0
    assert lines(one) == ["1", "2", "3", "[first] 0", "[side] bye"]
    one.close()


def test_an_init_container_that_fails_fails_the_node_and_runs_again(run: MakeSession) -> None:
    script = "echo no disk; sleep 0.3; test $MUSTER_ATTEMPT = 1 || exit 3; touch /work/ok"
    extra = (container("check", "init", script),)
    inside = MountPlan("scratch:node/in", "scratch", "/work/in", "MUSTER_MOUNT_IN")
    program = "test -e /work/ok && touch /work/in/x && ls /work/in"
    more = {"mounts": (WORK, inside), "container": ContainerPlan(user="1234")}
    one = run(program, keep=True, extra_containers=extra, **more)
    one.start(0)
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["reason"]) == (3, "exit")
    assert ended["message"] == "init container check exited with 3: no disk"
    assert lines(one) == ["[check] no disk"]
    one.start(0, incarnation=1, attempt=1)
    assert one.ended(0, incarnation=1)[0]["exit_code"] == 0
    assert lines(one, 1) == ["[check] no disk", "x"]
    one.release(0, incarnation=1)
    one.close()


@pytest.mark.parametrize(
    ("program", "other", "code", "message"),
    [
        pytest.param(
            *("touch /work/x", "while ! test -e /work/x; do sleep 0.05; done", 0, ""),
            marks=pytest.mark.slow,
        ),
        ("sleep 1000", "echo bad; exit 4", 4, "container other exited with 4: bad"),
        pytest.param(
            "touch /work/x",
            "while ! test -e /work/x; do sleep 0.05; done; exit 5",
            5,
            "container other exited with 5",
            marks=pytest.mark.slow,
        ),
        pytest.param("exit 6", "sleep 1000", 6, "", marks=pytest.mark.slow),
    ],
)
def test_a_node_succeeds_when_all_its_programs_have(
    run: MakeSession, program: str, other: str, code: int, message: str
) -> None:
    extra = (container("other", "main", other),)
    one = run(program, mounts=(WORK,), extra_containers=extra)
    one.start(0)
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["message"]) == (code, message)
    one.close()


@pytest.mark.slow
def test_a_sidecar_is_started_again_and_stays_in_a_restart_in_place(run: MakeSession) -> None:
    script = """
        echo up >> /kept/log; test $(wc -l < /kept/log) -ge 2 || exit 1
        while :; do if test -e /kept/ask; then echo here; rm /kept/ask; fi; sleep 0.05; done
    """
    kept = MountPlan("scratch:node/kept", "scratch", "/kept", "MUSTER_MOUNT_KEPT")
    side = ExtraContainerPlan("side", "sidecar", IMAGE, ("sh", "-c", script), mounts=(kept,))
    program = """
        while test "$(cat /kept/log 2>/dev/null | wc -l)" != 2; do sleep 0.05; done
        touch /kept/ask; while test -e /kept/ask; do sleep 0.05; done
        cat /kept/log; sleep 0.5; exit 1
    """
    one = run(program, keep=True, mounts=(kept,), extra_containers=(side,), grace_period=0.5)
    for attempt in (0, 1):
        one.start(0, incarnation=attempt, attempt=attempt)
        assert one.ended(0, incarnation=attempt)[0]["exit_code"] == 1
        assert lines(one, attempt) == ["[side] here", "up", "up"]
    one.release(0, incarnation=1)
    one.close()


def probe_of(*command: str, timeout: float, threshold: int = 1000) -> dict[str, Any]:
    found = dict.fromkeys(("port", "http", "file"))
    numbers = {"period": 0.1, "timeout": timeout, "threshold": threshold, "initial_delay": 0.0}
    return {**found, **numbers, "command": list(command)}


def running(word: str) -> list[str]:
    """Processes of this machine that run `yes` with this word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == f"yes\0{word}\0".encode():
                found.append(path.parent.name)
    return found


def test_a_probe_that_prints_without_end_holds_up_nothing(
    run: MakeSession, podman: PodmanService
) -> None:
    word = os.urandom(6).hex()
    side = container("side", "sidecar", "sleep 1000", probe=probe_of("yes", word, timeout=1000.0))
    one = run("true", mounts=(WORK,), extra_containers=(side,), grace_period=0.2)
    one.start(0)
    until(lambda: bool(running(word)), "the probe is tried")
    other = os.urandom(6).hex()
    why = why_down(
        podman.daemon, f"muster-{one.plan.run_id}-0", ("", ""), probe_of("yes", other, timeout=0.5)
    )
    assert why == f"command `yes {other}`: it took longer than 0.5 s"
    until(lambda: not running(other), "what has taken too long is killed")
    one.stop(0)
    assert one.ended_after_all(0)
    one.close()


@pytest.mark.slow
def test_a_sidecar_whose_probe_fails_is_started_again_and_says_so(run: MakeSession) -> None:
    probe = probe_of("sh", "-c", "test -e /work/2", timeout=20.0, threshold=2)
    script = "test -e /work/1 && touch /work/2; touch /work/1; exec sleep 1000"
    side = container("side", "sidecar", script, probe=probe)
    one = run("echo up", mounts=(WORK,), extra_containers=(side,), grace_period=0.2)
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0
    text = "its startup probe failed 2 times, so it is started again: command"
    end = "`sh -c 'test -e /work/2'`: it exited with 1"
    assert one.output(0, "err") == f"[side] muster: {text} {end}\n"
    one.close()


def test_output_does_not_follow_links_of_programs(tmp_path: Path) -> None:
    node, secret = tmp_path / "node", tmp_path / "secret"
    (node / "logs").mkdir(parents=True)
    secret.mkdir()
    (secret / "out").touch()
    (node / "logs/0").symlink_to(secret)
    (node / "out").symlink_to(secret / "out")
    os.mkfifo(node / "fifo")
    for path in ("logs/0/out", "out", "fifo"):
        with pytest.raises(OSError, match=path.rpartition("/")[2] if "/" not in path else "0"):
            OutputFiles(str(node), path, path).open(1)
    assert OutputFiles(str(node), "/dev/null", "/dev/null").open(2) is None
    (node / "file").touch()
    descriptor = OutputFiles(str(node), "x", "file").open(2)
    assert descriptor is not None
    os.close(descriptor)


@pytest.mark.parametrize("stage", ["init", pytest.param("running", marks=pytest.mark.slow)])
def test_a_later_supervisor_finds_them_again(
    run: MakeSession, podman: PodmanService, stage: str
) -> None:
    waits = "echo once >> /work/init; while ! test -e /work/go; do sleep 0.05; done"
    extra = (
        container("wait", "init", waits if stage == "init" else "echo once >> /work/init"),
        container("side", "sidecar", "echo up; sleep 1000"),
    )
    program = "cat /work/init; while ! test -e /work/go; do sleep 0.05; done"
    one = run(program, mounts=(WORK,), extra_containers=extra, grace_period=0.5)
    one.start(0)
    folder = one.folder / "containers/0-own/scratch/incarnation/work"
    if stage == "init":
        until((folder / "init").exists, "the init container runs")
    else:
        one.ready(0)
    one = one.replaced()
    (folder / "go").touch()
    assert one.ended_after_all(0)[0]["exit_code"] == 0
    assert lines(one) == ["[side] up", "once"]
    one.close()


@pytest.mark.slow
def test_nothing_is_left_of_a_node_that_is_killed(run: MakeSession, podman: PodmanService) -> None:
    extra = (container("wait", "init", "sleep 1000"),)
    one = run("true", mounts=(WORK,), extra_containers=extra)
    one.start(0)
    until(lambda: bool(list_extra(podman.daemon, one.plan.run_id)), "the init container runs")
    one.kill(0)
    assert one.ended(0)[0]["exit_code"] != 0
    one.close()
    assert not list_extra(podman.daemon, one.plan.run_id)


@pytest.mark.slow
def test_what_runs_with_a_program_that_has_succeeded_is_found_again(run: MakeSession) -> None:
    waits = "while ! test -e /work/go; do sleep 0.05; done; exit 7"
    extra = (container("other", "main", waits), container("side", "sidecar", "sleep 1000"))
    one = run("echo done", mounts=(WORK,), extra_containers=extra, grace_period=0.5)
    one.start(0)
    one.ready(0)
    journal = one.folder / "containers/0/node/journal"
    until(lambda: '"ended"' in journal.read_text(), "the program has ended")
    one = one.replaced()
    (one.folder / "containers/0-own/scratch/incarnation/work/go").touch()
    ended = one.ended_after_all(0)[0]
    assert (ended["exit_code"], ended["message"]) == (7, "container other exited with 7")
    one.close()


@pytest.mark.slow
def test_the_engine_is_away_while_an_init_container_ends(
    run: MakeSession, podman: PodmanService
) -> None:
    waits = "echo up > /work/init; while ! test -e /work/go; do sleep 0.05; done; exit 5"
    extra = (container("wait", "init", waits),)
    one = run("true", mounts=(WORK,), extra_containers=extra)
    one.start(0)
    folder = one.folder / "containers/0-own/scratch/incarnation/work"
    until((folder / "init").exists, "the init container runs")
    podman.stop()
    (folder / "go").touch()
    podman.start()
    assert one.ended_after_all(0)[0]["message"] == "init container wait exited with 5"
    one.close()


@pytest.mark.slow
def test_output_is_followed_again_when_the_engine_was_restarted(
    run: MakeSession, podman: PodmanService
) -> None:
    waits = "while ! test -e /work/go; do sleep 0.05; done; echo later; exec sleep 1000"
    side = container("side", "sidecar", f"echo up; touch /work/up; {waits}")
    one = run("exec sleep 1000", mounts=(WORK,), extra_containers=(side,), grace_period=0.2)
    one.start(0)
    one.ready(0)
    one.wait_for_output("[side] up")
    podman.stop()
    podman.start()
    (one.folder / "containers/0-own/scratch/incarnation/work/go").touch()
    one.wait_for_output("[side] later")
    one.kill(0)
    one.ended_after_all(0)
    assert lines(one) == ["[side] later", "[side] up"]
    one.close()


@pytest.mark.slow
@pytest.mark.parametrize("supervised", [True, False])
def test_they_end_with_the_container_of_their_node(
    run: MakeSession, podman: PodmanService, supervised: bool
) -> None:
    extra = (container("side", "sidecar", "sleep 1000"),)
    one = run("sleep 1000", mounts=(WORK,), extra_containers=extra)
    one.start(0)
    one.ready(0)
    if not supervised:
        os.kill(one.pid, signal.SIGKILL)
        one.process.wait()
    podman.podman("kill", f"muster-{one.plan.run_id}-0")
    if not supervised:
        one = one.replaced()
    assert one.ended_after_all(0)[0]["message"].startswith("its container was killed (137)")
    one.close()
    assert not list_extra(podman.daemon, one.plan.run_id)


@pytest.mark.slow
def test_an_image_that_is_missing_and_a_program_that_is(
    run: MakeSession, podman: PodmanService
) -> None:
    extra = (ExtraContainerPlan("bad", "init", IMAGE, ("/absent",), mounts=()),)
    one = run("true", extra_containers=extra)
    one.start(0)
    ended = one.ended(0)[0]
    assert ended["reason"] == "not_started"
    assert ended["message"].startswith("init container bad: it cannot be started: ")
    one.close()


MANIFEST = """\
apiVersion: v1
kind: Secret
metadata: {name: db}
stringData: {PASS: correct-horse}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: pods}
spec:
  replicatedJobs:
  - name: w
    template:
      spec:
        parallelism: 2
        completions: 2
        template:
          spec:
            restartPolicy: Never
            volumes:
            - {name: data, emptyDir: {}}
            - {name: db, secret: {secretName: db, defaultMode: 0400}}
            initContainers:
            - name: fetch
              image: localhost/base:1
              command: [sh, -c, 'wc -c < /db/PASS > /data/size; echo $HOSTNAME > /data/name']
              volumeMounts: [{name: data, mountPath: /data}, {name: db, mountPath: /db}]
            - name: proxy
              image: localhost/base:1
              restartPolicy: Always
              command: [sh, -c, 'trap exit TERM; echo proxy $JOB_COMPLETION_INDEX; sleep 9 & wait']
            securityContext: {runAsUser: 1234}
            containers:
            - name: w
              image: localhost/base:1
              command:
              - sh
              - -c
              - |
                cat /data/size; test "$(cat /data/name)" = $HOSTNAME
                until getent hosts pods-w-0-0.pods pods-w-0-1; do sleep 0.1; done
                while test ! -e /data/found; do sleep 0.1; done
              volumeMounts: [{name: data, mountPath: /data}]
            - name: check
              image: localhost/base:1
              command:
              - sh
              - -c
              - |
                until getent hosts pods-w-0-0.pods pods-w-0-1; do sleep 0.1; done
                touch /data/found; test -e /data/size && echo checked
              volumeMounts: [{name: data, mountPath: /data}]
"""


def test_a_jobset_with_all_kinds_of_containers(
    podman: PodmanService, own_home: Path, tmp_path: Path
) -> None:
    add_engine(own_home, podman)
    path = tmp_path / "jobset.yaml"
    path.write_text(MANIFEST)
    done = muster("run", str(path), "--engine", "container", "--network", "cluster", code=0)
    found = sorted(line.partition(" | ")[2] for line in done.stdout.splitlines())
    text = done.stdout
    assert found.count("13") == 2, found  # whole lines: addresses are random
    assert [text.count(one) for one in ("[check] checked", "[proxy] proxy 0", "proxy 1")] == [
        *(2, 1, 1)
    ], found
    assert "restart" not in done.stderr, output_of("events", "last")
    assert podman.left(json_of("runs", "show", "last", "--json")["id"]) == []
    done = muster("run", str(path), "--engine", "local")
    assert "engine local cannot run other containers beside the program" in done.stderr
    assert "use engine container" in done.stderr


ARRAY = """\
apiVersion: batch/v1
kind: Job
metadata: {name: items}
spec:
  completions: 3
  parallelism: 1
  completionMode: Indexed
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      volumes: [{name: input, emptyDir: {}}]
      initContainers:
      - name: fetch
        image: localhost/base:1
        command: [sh, -c, 'ls /input; echo item $JOB_COMPLETION_INDEX > /input/data']
        volumeMounts: [{name: input, mountPath: /input}]
      - name: side
        image: localhost/base:1
        restartPolicy: Always
        command: [sh, -c, 'trap exit TERM; while :; do sleep 0.1; done']
      containers:
      - name: w
        image: localhost/base:1
        command: [cat, /input/data]
        volumeMounts: [{name: input, mountPath: /input}]
"""


@pytest.mark.slow
def test_replicas_of_an_array_take_turns_with_their_containers(
    podman: PodmanService, own_home: Path, tmp_path: Path
) -> None:
    add_engine(own_home, podman)
    path = tmp_path / "job.yaml"
    path.write_text(ARRAY)
    done = muster("run", str(path), "--engine", "container", code=0)
    lines = [line.partition(" | ")[2] for line in done.stdout.splitlines()]
    assert sorted(lines) == ["item 0", "item 1", "item 2"]
    assert podman.left(json_of("runs", "show", "last", "--json")["id"]) == []
