"""Runs in the double of a cluster, for tests of faults."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import muster
from muster.client.run import JobRun
from muster.control import run_lock
from muster.engines.kubernetes.names import POD_INDEX, RUN
from muster.lifecycle.states import NodeState
from muster.storage.home import Home
from support.faults import until
from support.kube import Cluster
from support.kube.objects import Obj

#: Seconds for what takes a moment on a machine that is not busy.
PATIENCE = 120.0
#: What Muster writes to start a run.
APPLIED = [("patch", "jobsets"), ("patch", "configmaps")]


class Job:
    """A run whose nodes write `up N` when they begin, N counting starts on that host, and run
    until they are told to end, or fail with `code` if `failing` has the name of their pod's index.
    first: what they do before."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 2,
        *,
        name: str = "demo",
        first: str = ":",
        code: int = 3,
        **more: Any,
    ) -> None:
        self.flag, self.failing = folder / f"flag-{name}", folder / f"failing-{name}-"
        script = (
            f"{first}; fails={self.failing}$NODE_RANK; echo up $NODE_RANK;"
            f" until [ -e {self.flag} ]; do"
            f" if [ -e $fails ]; then rm $fails; exit {code}; fi; sleep 0.1; done"
        )
        command = ["sh", "-c", script]
        self.run: JobRun = muster.run(
            command=command, engine="kubernetes", name=name, nodes=nodes, **more
        )

    def ups(self, rank: int) -> int:
        return self.lines("up ").count(f"up {rank}")

    def until_up(self, *counts: int) -> None:
        """Wait until the nodes have begun this often."""
        until(
            lambda: [self.ups(rank) for rank in range(len(counts))] == [*counts],
            f"nodes begin {counts} times",
            PATIENCE,
            pause=0.2,
        )

    def until_ready(self) -> None:
        """Wait until it is recorded that all nodes are ready: they may have written something
        before that. For a supervisor that takes over earlier, they have not begun, and one whose
        pod was replaced begins there without the others."""

        def is_recorded() -> bool:
            return all(node.state == NodeState.READY for node in self.run.refresh().nodes)

        until(is_recorded, "all nodes are ready", PATIENCE, pause=0.2)

    def end(self) -> str:
        self.flag.touch()
        return str(self.run.wait(PATIENCE).state)

    def cancel(self) -> str:
        return str(self.run.cancel("enough").wait(PATIENCE).state)

    def lines(self, start: str) -> list[str]:
        """What its nodes have written that begins so."""
        return [
            line.message for line in self.run.logs(attempt="all") if line.message.startswith(start)
        ]

    def story(self) -> str:
        """All that has happened to it."""
        return "\n".join(str(entry) for entry in self.run.events())

    def until_said(self, *texts: str) -> None:
        try:
            until(lambda: all(text in self.story() for text in texts), "", PATIENCE, pause=0.2)
        except AssertionError:
            raise AssertionError(f"{texts} is not said:\n{self.story()}") from None

    def waits_for(self) -> str:
        """What its nodes wait for."""
        return " ".join(node.waits_for for node in self.run.refresh().nodes)

    def until_it_waits_for(self, text: str) -> None:
        until(lambda: text in self.waits_for(), f"it waits for: {text}", PATIENCE, pause=0.2)

    def kill_supervisor(self, home: Path) -> None:
        """Nobody drives the run until the next command about it."""
        lock = Home(home).run_dir(self.run.id).lock
        pid = run_lock.holder_pid(lock)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: not run_lock.is_held(lock), "its supervisor has ended", PATIENCE)


def pod_of(cluster: Cluster, job: Job, index: int) -> Obj:
    """The pod of an index that has not ended."""
    (found,) = [
        one
        for one in cluster.pods(**{RUN: job.run.id, POD_INDEX: str(index)})
        if one["status"].get("phase") in ("Pending", "Running")
    ]
    return found


def names(cluster: Cluster, job: Job) -> set[str]:
    """Of all pods that there are."""
    return {one["metadata"]["name"] for one in cluster.pods(**{RUN: job.run.id})}


def writes(cluster: Cluster) -> list[tuple[str, str]]:
    """The calls of Muster that change something."""
    return [
        (one.verb, one.resource)
        for one in cluster.calls
        if one.user == "admin" and one.verb in ("patch", "create", "update", "delete")
        if one.resource not in ("selfsubjectaccessreviews",) and one.subresource != "exec"
    ]


def until_nothing_is_left(cluster: Cluster) -> None:
    until(lambda: cluster.left() == [], "nothing is left in the cluster", PATIENCE)
