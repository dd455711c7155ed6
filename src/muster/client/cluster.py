"""Persistent clusters: a run whose main program only waits until the cluster's time limit is over,
it is idle, or it is taken down."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from muster.client.client import Client
from muster.client.reach import shares_loopback
from muster.client.run import JobRun
from muster.describe.times import json_ready, minute, moment
from muster.errors import EngineError, InvalidInput, NotFound, Problem
from muster.frameworks.registry import get_framework
from muster.lifecycle.ranks import parse_ranks
from muster.lifecycle.states import NodeState, RunState
from muster.spec.values import CLUSTER_TAG, MAX_RUNTIME
from muster.spec.wording import suggestion

if TYPE_CHECKING:
    from muster.api.prepared import PreparedRun
    from muster.client.events import Event

_MAIN, _WORKERS = "main", "workers"
#: Default of max_workers: this, or four times the first size if that is more.
_MAX_WORKERS = 16
#: Restarts of the cluster after failures.
_RESTARTS = 10
#: The keeper's options (`node.cluster_lifetime`) for the end: as a time, or from the run's start.
_TIMES = ("--until", "--ttl")
#: The method of Cluster that connects to it, by framework; clients of others use `address`.
CLIENTS = {"dask": "dask_client()", "ray": "ray_init()"}


class Cluster:
    """One persistent cluster. `run` is its run."""

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
        """STARTING, UP, or the state of its run if that is not in progress."""
        if self.run.refresh().state not in (RunState.ACCEPTED, RunState.IN_PROGRESS):
            return self.run.state
        main = self.run.nodes[0]
        return "UP" if main.state == NodeState.READY else "STARTING"

    @property
    def address(self) -> str | None:
        """The address for clients; None while unknown."""
        return self.run.endpoints.get("address")

    @property
    def dashboard(self) -> str | None:
        """The URL of the dashboard; None while unknown, or if there is none."""
        return self.run.endpoints.get("dashboard")

    @property
    def serve(self) -> str | None:
        """The URL of Ray Serve; None while unknown, or if Ray Serve does not run."""
        return self.run.endpoints.get("serve")

    @property
    def token(self) -> Path | None:
        """The file with the token that clients need; None while there is none, or if they need
        none."""
        path = self.run.endpoints.get("token")
        return None if path is None else Path(path)

    @property
    def workers(self) -> int:
        """The desired number of workers."""
        return self.run.replicas[_WORKERS]

    @property
    def until(self) -> datetime | None:
        """When it ends, in UTC; None: no limit, or not started yet."""
        main = self.run.spec["node_groups"][0]
        words = [*(main["command"] or ()), *(main["args"] or ())]
        given = {name: float(words[words.index(name) + 1]) for name in _TIMES if name in words}
        if "--until" in given:
            return moment(given["--until"])
        started = self.run.started_at
        return started + timedelta(seconds=given["--ttl"]) if started and given else None

    @property
    def is_reachable(self) -> bool:
        """Whether programs on this machine reach its addresses, and not only those on its nodes."""
        if self.run.network != "shared":
            return False
        host = urlsplit(self.address or "").hostname or ""
        return not host.startswith("127.") or shares_loopback(self.run._api)

    def wait(self) -> Cluster:
        """Return when it is up.

        A cluster that fails before it is up would fail again: it is ended, and EngineError is
        raised with the cause.
        """
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
            self.run.cancel("it did not come up").wait(progress=False)
        text = why or f"{self.run.state}: {self.run.details}"
        raise EngineError(f"{self.name} did not come up: {text}")

    def scale(self, workers: int) -> Cluster:
        """Set the number of workers. Raises InvalidInput if it exceeds the maximum."""
        groups = {group["name"]: group for group in self.run.spec["node_groups"]}
        maximum = groups[_WORKERS]["max_replicas"]
        if workers > maximum:
            text = f"cannot be {workers:,}, the maximum of {self.name} is {maximum:,}"
            hint = f"take it down and start it again with --max-workers {workers}"
            raise InvalidInput(Problem(_WORKERS, text, hint))
        self.run.scale(_WORKERS, workers)
        return self

    def down(self) -> Cluster:
        """Cancel its run, and wait until that has ended."""
        self.run.cancel("taken down by user").wait(progress=False)
        return self

    def dask_client(self, **options: Any) -> Any:
        """A `distributed.Client` of the cluster. options: arguments of that class."""
        self._check_usable("dask")
        from distributed import Client as DaskClient
        from distributed.security import Security

        access = self.run.cluster_access()
        if access.ca and "security" not in options:
            options["security"] = Security(  # type: ignore[no-untyped-call]
                tls_ca_file=access.ca,
                tls_client_cert=access.certificate,
                tls_client_key=access.key,
                require_encryption=True,
            )
        return DaskClient(self.address, **options)  # type: ignore[no-untyped-call]

    def ray_init(self, **options: Any) -> Any:
        """`ray.init` with the address of the cluster. options: arguments of that function."""
        self._check_usable("ray")
        import ray

        if token := self.run.cluster_access().token:
            # Ray reads its own variables for the token only when it is imported
            header = ("authorization", f"Bearer {token}")
            options["_metadata"] = [*options.get("_metadata", ()), header]

        return ray.init(address=self.address, **options)

    def _check_usable(self, framework: str) -> None:
        if self.framework != framework:
            hint = f"connect with its {CLIENTS.get(self.framework, 'address')}"
            raise InvalidInput(Problem("", f"{self.name} is a {self.framework} cluster", hint))
        if not self.is_reachable:
            text = f"only programs on the nodes of {self.name} reach its address"
            hint = f"start the program on one of them: `muster exec {self.run.name} --rank 0`"
            raise InvalidInput(Problem("", text, hint))
        if self.address is None:
            raise InvalidInput(Problem("", f"{self.name} is {self.state}", "wait until it is UP"))

    def to_dict(self) -> dict[str, Any]:
        """The cluster as JSON-ready data; times as RFC 3339 text."""
        return json_ready(self._facts())

    def _repr_html_(self) -> str:
        from muster.client.html import card

        facts = {
            "framework": self.framework,
            "workers": str(self.workers),
            "address": self.address or "",
            "dashboard": self.dashboard or "",
            "serve": self.serve or "",
            "ends": "" if self.until is None else minute(self.until),
            "run": self.run.name,
        }
        return card(self.name, self.state, facts)

    def _facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "framework": self.framework,
            "state": self.state,
            "address": self.address,
            "dashboard": self.dashboard,
            "serve": self.serve,
            "token_file": None if self.token is None else str(self.token),
            "workers": self.workers,
            "until": self.until,
            "run": self.run.id,
            "run_name": self.run.name,
        }


def _main_is_ready(event: Event) -> bool:
    ready = event.kind == "nodes" and event.data.get("state") == NodeState.READY
    return ready and 0 in parse_ranks(event.data.get("ranks", ""))


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
) -> tuple[Cluster, PreparedRun]:
    """Start a cluster.

    ttl, idle: seconds until it ends, and until it ends unused. options: of the framework. fields:
    more fields of its spec (`env`, `mounts`, ...). Raises InvalidInput, also if a cluster with this
    name is up already.
    """
    name = name or framework
    _check_name_free(clusters(client), name)
    if max_workers is not None and max_workers < workers:
        text = f"is less than the {workers} it starts with"
        raise InvalidInput(Problem("--max-workers", text, f"use {workers} or more"))
    args = _lifetime_args(ttl, idle)
    described = {
        **_cluster_fields(name, framework, workers, max_workers, options or {}),
        **(fields or {}),
    }
    job = client.api.prepare_job(_spec(described))
    prepared = client.prepare_run(job.record, _overrides(args, ttl), new_job=job.new)
    _check_persistence(framework, prepared, needs_idle=idle is not None)
    started = Cluster(client.start(prepared))
    try:  # another process may have started one with this name meanwhile
        _check_name_free(clusters(client), name, before=started)
    except InvalidInput:
        started.down()
        raise
    return started, prepared


def _cluster_fields(
    name: str,
    framework: str,
    workers: int,
    max_workers: int | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The fields of the spec that describe the cluster."""
    return {
        "name": name,
        "command": [sys.executable, "-m", "muster.node.cluster_lifetime"],
        "framework": framework,
        "framework_options": {**get_framework(framework).staying, **options},
        "node_groups": [
            {"name": _MAIN},
            {
                "name": _WORKERS,
                "replicas": workers,
                "max_replicas": max_workers or max(4 * workers, _MAX_WORKERS),
            },
        ],
        "failure": {"max_restarts": _RESTARTS},
        "tags": {CLUSTER_TAG: framework},
    }


def _check_persistence(framework: str, prepared: PreparedRun, *, needs_idle: bool) -> None:
    """Raises InvalidInput if the framework does not support persistent clusters, or does not report
    whether its cluster is idle."""
    problems = []
    if not prepared.plan.endpoints:
        text = f"{framework} cannot run as a persistent cluster"
        problems.append(Problem("framework", text, "run a job with it: muster run"))
    if needs_idle and prepared.plan.quiet is None:
        text = f"{framework} does not report whether it is in use"
        problems.append(Problem("--idle-timeout", text, "use --ttl"))
    if problems:
        raise InvalidInput(*problems)


def _check_name_free(existing: Sequence[Cluster], name: str, before: Cluster | None = None) -> None:
    """Raises InvalidInput if a cluster has this name. before: only if it is older than this one."""
    for other in existing:
        if other.name == name and (before is None or other.run.number < before.run.number):
            hint = f"`muster cluster down {name}` ends it; or give this one another --name"
            text = f"{name} is {_state_text(other)} already, as {other.run.name}"
            raise InvalidInput(Problem("name", text, hint))


def _state_text(cluster: Cluster) -> str:
    return "up" if cluster.state in ("UP", "STARTING") else cluster.state


def _lifetime_args(ttl: float | None, idle: float | None) -> list[str]:
    words = [] if ttl is None else ["--until", f"{time.time() + ttl:.3f}"]
    return words if idle is None else [*words, "--idle", f"{idle:g}"]


def _spec(data: Mapping[str, Any]) -> Any:
    from muster.spec.reader import spec_from_mapping

    return spec_from_mapping(data)


def _overrides(args: Sequence[str], ttl: float | None) -> Any:
    from muster.spec.overrides import overrides_from_mapping

    # ends the run if the program that watches the time is killed
    longest = MAX_RUNTIME if ttl is None else min(ttl + 900, MAX_RUNTIME)
    return overrides_from_mapping({"args": list(args), "max_runtime": longest})


def clusters(client: Client) -> list[Cluster]:
    """The clusters that have not ended, newest first."""
    runs = client.runs(states=[state for state in RunState if not state.terminal])
    return [Cluster(run) for run in runs if CLUSTER_TAG in run.spec["tags"]]


def find(client: Client, name: str) -> Cluster:
    """The cluster with this name or run, or the newest for `last`. Raises NotFound."""
    found = clusters(client)
    for cluster in found:
        if name in (cluster.name, cluster.run.name, cluster.run.id, "last"):
            return cluster
    names = [cluster.name for cluster in found]
    hint = suggestion(name, names) if names else "`muster cluster up dask` starts one"
    raise NotFound(Problem("", f"no cluster named {name!r} is up", hint))
