"""Clusters that stay: a run whose program only keeps it, until its time is over, nobody uses it, or
it is taken down."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.client.client import Client
from muster.client.run import JobRun
from muster.client.times import time_text
from muster.errors import EngineError, InvalidInput, NotFound, Problem
from muster.frameworks.registry import get_framework
from muster.lifecycle.census import expand
from muster.lifecycle.states import NodeState, RunState
from muster.node.files import read_regular
from muster.spec.values import CLUSTER_TAG, MAX_RUNTIME

if TYPE_CHECKING:
    from muster.drafting import Draft
    from muster.store.records import EventRecord

_MAIN, _WORKERS = "main", "workers"
#: Without a limit of one's own, a cluster can grow to this, or to four times its first size.
_ROOM = 16
_RESTARTS = 10
#: The keeper's options (`node.keeper`) for the end: as a time, or from the run's start.
_TIMES = ("--until", "--ttl")
#: What of a Cluster connects to it, by framework; to any other, its `address`.
CLIENTS = {"dask": "dask_client()", "ray": "ray_init()"}


class Cluster:
    """One cluster that stays. `run` is the run that it is."""

    def __init__(self, run: JobRun) -> None:
        self.run = run

    def __repr__(self) -> str:
        return f"<Cluster {self.name}: {self.framework}, {self.state}>"

    @property
    def name(self) -> str:
        return self.run.job_name

    @property
    def framework(self) -> str:
        return str(self.run.spec["framework"])

    @property
    def state(self) -> str:
        """STARTING, UP, or the state its run has ended in."""
        if self.run.refresh().state not in (RunState.ACCEPTED, RunState.IN_PROGRESS):
            return self.run.state
        main = self.run.nodes[0]
        return "UP" if main.state == NodeState.READY else "STARTING"

    @property
    def address(self) -> str | None:
        """What clients connect to; None while it is not known."""
        return self.run.endpoints.get("address")

    @property
    def dashboard(self) -> str | None:
        """A link; None while it is not known, or if there is none."""
        return self.run.endpoints.get("dashboard")

    @property
    def serve(self) -> str | None:
        """Where Ray Serve takes requests; None while it is not known, or if it does not run."""
        return self.run.endpoints.get("serve")

    @property
    def token(self) -> Path | None:
        """The file with the secret that clients show; None while there is none, or if there never
        is."""
        path = self.run.endpoints.get("token")
        return None if path is None else Path(path)

    @property
    def workers(self) -> int:
        """How many there are to be."""
        return self.run.replicas[_WORKERS]

    @property
    def until(self) -> float | None:
        """Epoch seconds at which it ends; None = it stays, or has not started yet."""
        main = self.run.spec["node_groups"][0]
        words = [*(main["command"] or ()), *(main["args"] or ())]
        given = {name: float(words[words.index(name) + 1]) for name in _TIMES if name in words}
        if "--until" in given or not given:
            return given.get("--until")
        started = self.run.started
        return None if started is None else started + given["--ttl"]

    def wait(self) -> Cluster:
        """Return when it is up. What fails before it ever was will fail again: the cluster is taken
        down then, and EngineError raised."""
        was_up = False
        for event in self.run.events(follow=True):
            if self.state == "UP":
                return self
            was_up = was_up or _main_is_ready(event)
            if event.kind == "restart" and not was_up:
                break
        self.run.refresh()
        cause = (self.run.cause or {}).get("message", "")
        why = f"node-{self.run.cause['rank']} failed: {cause}" if self.run.cause else ""
        if not self.run.done:
            self.run.cancel("it did not come up").wait()
        text = why or f"{self.run.state}: {self.run.details}"
        raise EngineError(f"{self.name} did not come up: {text}")

    def scale(self, workers: int) -> Cluster:
        """Have so many workers. Raises InvalidInput if there cannot be."""
        groups = {group["name"]: group for group in self.run.spec["node_groups"]}
        room = groups[_WORKERS]["max_replicas"]
        if workers > room:
            text = f"cannot be {workers:,}, {self.name} has room for {room:,}"
            hint = f"take it down and start it anew with --max-workers {workers}"
            raise InvalidInput(Problem(_WORKERS, text, hint))
        self.run.scale(_WORKERS, workers)
        return self

    def down(self) -> Cluster:
        """End it, and wait until it has."""
        self.run.cancel("taken down by its owner").wait()
        return self

    def dask_client(self, **options: Any) -> Any:
        """A `distributed.Client` of it. options: for that class."""
        self._needs("dask")
        from distributed import Client as DaskClient
        from distributed.security import Security

        folder = self.run.tls_folder
        if folder is not None and "security" not in options:
            certificate, key = str(folder / "cert.pem"), str(folder / "key.pem")
            options["security"] = Security(  # type: ignore[no-untyped-call]
                tls_ca_file=str(folder / "ca.pem"),
                tls_client_cert=certificate,
                tls_client_key=key,
                require_encryption=True,
            )
        return DaskClient(self.address, **options)  # type: ignore[no-untyped-call]

    def ray_init(self, **options: Any) -> Any:
        """`ray.init` with its address. options: for that function."""
        self._needs("ray")
        import ray

        if self.token is not None:
            # Ray has read its own variables for this when it was imported
            shown = ("authorization", f"Bearer {read_regular(self.token).decode()}")
            options["_metadata"] = [*options.get("_metadata", ()), shown]

        return ray.init(address=self.address, **options)

    def _needs(self, framework: str) -> None:
        if self.framework != framework:
            hint = f"connect with its {CLIENTS.get(self.framework, 'address')}"
            raise InvalidInput(Problem("", f"{self.name} is a {self.framework} cluster", hint))
        if self.run.network != "shared":
            text = f"{self.name} has network: {self.run.network}: only its own nodes reach it"
            hint = "use it from a program on its nodes, or give it network: shared"
            raise InvalidInput(Problem("", text, hint))
        if self.address is None:
            raise InvalidInput(Problem("", f"{self.name} is {self.state}", "wait until it is UP"))

    def to_dict(self) -> dict[str, Any]:
        """The cluster as JSON-ready data; times as RFC 3339 text."""
        return {
            "name": self.name,
            "framework": self.framework,
            "state": self.state,
            "address": self.address,
            "dashboard": self.dashboard,
            "serve": self.serve,
            "token_file": None if self.token is None else str(self.token),
            "workers": self.workers,
            "until": time_text(self.until),
            "run": self.run.id,
            "run_name": self.run.name,
        }


def _main_is_ready(event: EventRecord) -> bool:
    ready = event.kind == "nodes" and event.data.get("state") == NodeState.READY
    return ready and 0 in expand(event.data.get("ranks", ""))


def up(
    client: Client,
    framework: str,
    workers: int,
    *,
    name: str | None = None,
    max_workers: int | None = None,
    ttl: float | None = None,
    idle: float | None = None,
    options: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
) -> tuple[Cluster, Draft]:
    """Start a cluster. ttl, idle: seconds; fields: more of its spec (`env`, `mounts`, ...).

    Raises InvalidInput, also if one of that name is up already.
    """
    name = name or framework
    _only_one(clusters(client), name)
    if max_workers is not None and max_workers < workers:
        text = f"is less than the {workers} it starts with"
        raise InvalidInput(Problem("--max-workers", text, f"say {workers} or more"))
    args = _keeping(ttl, idle)
    spec = {
        "name": name,
        "command": [sys.executable, "-m", "muster.node.keeper"],
        "framework": framework,
        "framework_options": {**get_framework(framework).staying, **(options or {})},
        "node_groups": [
            {"name": _MAIN},
            {
                "name": _WORKERS,
                "replicas": workers,
                "max_replicas": max_workers or max(4 * workers, _ROOM),
            },
        ],
        "failure": {"max_restarts": _RESTARTS},
        "tags": {CLUSTER_TAG: framework},
        **(fields or {}),
    }
    job, new = client.service.draft_job(_spec(spec))
    draft = client.draft(job, _overrides(args, ttl), new_job=new)
    problems = []
    if not draft.plan.endpoints:
        text = f"{framework} is no cluster that clients connect to"
        problems.append(Problem("framework", text, "run a job with it: muster run"))
    if idle is not None and draft.plan.quiet is None:
        text = f"{framework} does not tell whether anybody uses it"
        problems.append(Problem("--idle-timeout", text, "use --ttl"))
    if problems:
        raise InvalidInput(*problems)
    started = Cluster(client.start(draft))
    try:  # somebody may have started one of that name while we looked
        _only_one(clusters(client), name, before=started)
    except InvalidInput:
        started.down()
        raise
    return started, draft


def _only_one(there: Sequence[Cluster], name: str, before: Cluster | None = None) -> None:
    """Raises InvalidInput if a cluster has that name. before: and is older than this one."""
    for other in there:
        if other.name == name and (before is None or other.run.number < before.run.number):
            hint = f"`muster cluster down {name}` ends it; or give this one another --name"
            text = f"{name} is {_there(other)} already ({other.run.name})"
            raise InvalidInput(Problem("name", text, hint))


def _there(cluster: Cluster) -> str:
    return "up" if cluster.state in ("UP", "STARTING") else cluster.state


def _keeping(ttl: float | None, idle: float | None) -> list[str]:
    words = [] if ttl is None else ["--until", f"{time.time() + ttl:.3f}"]
    return words if idle is None else [*words, "--idle", f"{idle:g}"]


def _spec(data: Mapping[str, Any]) -> Any:
    from muster.spec.reader import spec_from_mapping

    return spec_from_mapping(data)


def _overrides(args: Sequence[str], ttl: float | None) -> Any:
    from muster.spec.overrides import overrides_from_mapping

    # should its keeper be gone, the run's own limit ends it
    longest = MAX_RUNTIME if ttl is None else min(ttl + 900, MAX_RUNTIME)
    return overrides_from_mapping({"args": list(args), "max_runtime": longest})


def clusters(client: Client) -> list[Cluster]:
    """Those that have not ended; newest first."""
    runs = client.runs(states=[state for state in RunState if not state.terminal])
    return [Cluster(run) for run in runs if CLUSTER_TAG in run.spec["tags"]]


def find(client: Client, name: str) -> Cluster:
    """The cluster of that name, of its run, or the newest for `last`. Raises NotFound."""
    found = clusters(client)
    for cluster in found:
        if name in (cluster.name, cluster.run.name, cluster.run.id, "last"):
            return cluster
    there = ", ".join(cluster.name for cluster in found)
    hint = f"there are: {there}" if there else "`muster cluster up dask` starts one"
    raise NotFound(Problem("", f"no cluster named {json.dumps(name)} is up", hint))
