"""The public Python API: jobs and runs as objects, usable in a script or a notebook."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from muster.client.logs import Selection, chunks
from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import RunState
from muster.service import Draft, Service
from muster.storage.home import Home
from muster.storage.log_reader import LogChunk, LogRecord, records
from muster.store.records import JobRecord, NodeRecord, RunRecord, RunSummary

if TYPE_CHECKING:
    from muster.control.launcher import Launcher
    from muster.plan.model import RunPlan
    from muster.spec.models import RunOverrides


class Setting(Struct, frozen=True):
    """One effective setting of a run. origin: `job`, `override` or `default`."""

    path: str
    value: Any
    origin: str


class Node(Struct, frozen=True):
    """One node of a run. Times are timezone-aware; None = not yet."""

    rank: int
    group: str
    replica: int
    index: int
    node_id: str
    fqdn: str
    address: str
    state: str
    exit_code: int | None
    started_at: datetime | None
    finished_at: datetime | None

    def to_dict(self) -> dict[str, Any]:
        """The node as JSON-ready data; times as RFC 3339 text."""
        data = {name: getattr(self, name) for name in self.__struct_fields__}
        return data | {k: _text(data[k]) for k in ("started_at", "finished_at")}


class JobRun:
    """One execution of a Job. What it shows is from the last `refresh` (or `wait`)."""

    def __init__(self, client: Client, record: RunRecord) -> None:
        self._client = client
        self._record = record

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def name(self) -> str:
        """`<job name>-<number>`."""
        return self._record.name

    @property
    def job_id(self) -> str:
        return self._record.job_id

    @property
    def job_name(self) -> str:
        return self._record.job_name

    @property
    def state(self) -> str:
        """ACCEPTED, IN_PROGRESS, SUCCEEDED, FAILED, CANCELING or CANCELED."""
        return str(self._record.state)

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return RunState(self._record.state).terminal

    @property
    def details(self) -> str:
        """Why it is in this state, where the state alone does not say."""
        return self._record.details

    @property
    def exit_code(self) -> int | None:
        """0, or that of the first node that failed; None where there is none."""
        return self._record.exit_code

    @property
    def seconds(self) -> float | None:
        """How long it has run, or ran; None before it has started."""
        started, finished = self._record.started_at, self._record.finished_at
        return None if started is None else (finished or time.time()) - started

    @property
    def notes(self) -> list[str]:
        """What the engine does not do as asked, and why."""
        return list(self._record.notes)

    @property
    def nodes(self) -> list[Node]:
        """In rank order."""
        return [_node(record) for record in self._client.service.nodes(self.id)]

    def refresh(self) -> JobRun:
        """Look again. Returns itself."""
        self._record = self._client.service.run(self.id)
        return self

    def wait(self, timeout: float | None = None) -> JobRun:
        """Wait until the run has ended. Returns itself.

        Raises TimeoutError after `timeout` seconds (default: never).
        """
        self._record = self._client.service.wait(self.id, timeout)
        return self

    def cancel(self, why: str = "canceled by its owner") -> JobRun:
        """End the run; `wait` tells when nothing of it is left. Nothing if it has ended."""
        self._record = self._client.service.cancel(self.id, why)
        return self

    def logs(
        self,
        *,
        follow: bool = False,
        ranks: Collection[int] | None = None,
        groups: Collection[str] | None = None,
        streams: Collection[str] | None = None,
        tail: int | None = None,
    ) -> Iterator[LogRecord]:
        """Lines of output, merged by time over the nodes. follow: until the run has ended."""
        selection = Selection(ranks, groups, streams, tail)
        for chunk in self.log_chunks(selection, follow=follow):
            yield from records(chunk, self._record.attempt)

    def log_chunks(self, selection: Selection, *, follow: bool = False) -> Iterator[LogChunk]:
        """As `logs`, but many lines of one stream at a time: for those in a hurry."""
        return chunks(self._client.service, self._record, selection, follow=follow)

    def why(self) -> list[str]:
        """Why it is in the state it is in; the most important sentence first."""
        from muster.client.explain import why

        return why(self._record, self._client.service.nodes(self.id))

    def settings(self) -> list[Setting]:
        """Every effective setting, and where it came from."""
        from muster.spec.resolve import setting_value

        # what the spec leaves to the framework was settled by the plan
        spec = {**self._record.spec, "network": self._record.plan["network"]}
        return [Setting(p, setting_value(spec, p), o) for p, o in self._record.origins.items()]

    @property
    def attempt(self) -> int:
        """How often it was started again as a whole; 0 the first time."""
        return self._record.attempt

    @property
    def processes_per_node(self) -> int:
        return int(self._record.plan["processes_per_node"])

    def group_sizes(self) -> dict[str, int]:
        """Group -> number of nodes, in rank order."""
        groups = self._record.plan["groups"]
        return {g["name"]: g["replicas"] * g["nodes"] for g in groups}

    def checked_ranks(self, ranks: Collection[int]) -> Collection[int]:
        """These ranks. Raises InvalidInput where the run has no such node."""
        count = sum(self.group_sizes().values())
        wrong = [rank for rank in ranks if not 0 <= rank < count]
        if wrong:
            text = f"{self.name} has no rank {', '.join(map(str, wrong))}"
            raise InvalidInput(Problem("--rank", text, f"ranks are 0 to {count - 1}"))
        return ranks

    def checked_groups(self, groups: Collection[str]) -> Collection[str]:
        """These groups. Raises InvalidInput where the run has no such group."""
        known = self.group_sizes()
        wrong = [group for group in groups if group not in known]
        if wrong:
            text = f"{self.name} has no group {', '.join(wrong)}"
            raise InvalidInput(Problem("--group", text, f"there are: {', '.join(known)}"))
        return groups

    def log_folder(self) -> Path:
        """Where the plain log files are."""
        return self._client.service.home.run_dir(self.id).logs(self._record.attempt)

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON-ready data; times as RFC 3339 text."""
        record = self._record
        return {
            "id": record.id,
            "name": record.name,
            "job_id": record.job_id,
            "job_name": record.job_name,
            "state": str(record.state),
            "details": record.details,
            "engine": record.engine,
            "attempt": record.attempt,
            "created_at": _text(_time(record.created_at)),
            "started_at": _text(_time(record.started_at)),
            "finished_at": _text(_time(record.finished_at)),
            "exit_code": record.exit_code,
            "notes": list(record.notes),
            "nodes": [node.to_dict() for node in self.nodes],
        }

    def __repr__(self) -> str:
        return f"<JobRun {self.name} {self.id} {self.state}>"


class Job:
    """A named template. Its code never changes; a new version of it is another Job."""

    def __init__(self, client: Client, record: JobRecord) -> None:
        self._client = client
        self._record = record

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def version(self) -> int:
        """1, 2, ... among the Jobs of this name."""
        return self._record.version

    @property
    def spec(self) -> dict[str, Any]:
        """What was asked for, as data."""
        return dict(self._record.spec)

    def run(self, **overrides: Any) -> JobRun:
        """Start a run of it. overrides: fields of `muster.spec.models.RunOverrides`."""
        return self._client.start(self._client.draft(self._record, _overrides(overrides)))

    def runs(self) -> list[JobRun]:
        """Its runs, newest first."""
        return self._client.runs(job=self.id)

    def edit(self, *changes: str) -> Job:
        """Change resources, mounts, description or tags: `edit("resources.cpus=2")`. Runs keep
        what they started with. Returns itself."""
        self._record = self._client.service.edit_job(self.id, changes)
        return self

    def to_dict(self) -> dict[str, Any]:
        """The Job as JSON-ready data."""
        record = self._record
        return {
            "id": record.id,
            "name": record.name,
            "version": record.version,
            "description": record.description,
            "artifact": record.artifact_name,
            "artifact_sha256": record.artifact_sha256,
            "tags": dict(record.tags),
            "created_at": _text(_time(record.created_at)),
            "updated_at": _text(_time(record.updated_at)),
            "spec": self.spec,
        }

    def __repr__(self) -> str:
        return f"<Job {self.name}@{self.version} {self.id}>"


class Client:
    """Muster on this machine. home: MUSTER_HOME (default: the environment's)."""

    def __init__(self, home: str | Path | None = None, *, launcher: Launcher | None = None) -> None:
        self.service = Service(Home(Path(home).absolute()) if home else None, launcher)

    def job(
        self,
        target: str | Path | None = None,
        *,
        command: Sequence[str] | None = None,
        **fields: Any,
    ) -> tuple[JobRecord, bool]:
        """The Job for a spec file, some code or a command, and whether it is new."""
        from muster.client.target import spec_for

        return self.service.draft_job(spec_for(target, command, fields))

    def draft(
        self, job: JobRecord, overrides: RunOverrides | None = None, *, new_job: bool = False
    ) -> Draft:
        """A checked and planned run that has not started."""
        return self.service.draft_run(job, overrides or _overrides({}), new_job=new_job)

    def plan(self, draft: Draft) -> RunPlan:
        """What would run."""
        return draft.plan

    def start(self, draft: Draft, environ: Mapping[str, str] | None = None) -> JobRun:
        """Start a drafted run."""
        return JobRun(self, self.service.start(draft, environ))

    def run(self, text: str) -> JobRun:
        """The run of that name, id (prefix), or `last`."""
        return JobRun(self, self.service.run(text))

    def runs(self, **filters: Any) -> list[JobRun]:
        """Runs, newest first. filters: states, job, since (epoch seconds), limit."""
        return [self.run(summary.id) for summary in self.service.runs(**filters)]

    def summaries(self, **filters: Any) -> list[RunSummary]:
        """As `runs`, but only what a list shows: fast for thousands."""
        return self.service.runs(**filters)


_clients: dict[str, Client] = {}


def _client(home: str | Path | None) -> Client:
    from muster.storage.home import default_home

    key = str(Path(home).absolute() if home else default_home().root)
    return _clients.setdefault(key, Client(home))


def run(
    target: str | Path | None = None,
    *,
    command: Sequence[str] | None = None,
    name: str | None = None,
    entrypoint: str | None = None,
    framework: str | None = None,
    processes_per_node: int | None = None,
    network: str | None = None,
    home: str | Path | None = None,
    **overrides: Any,
) -> JobRun:
    """Start a run and return at once; `wait()` on what comes back.

    target: a spec file, a script, a folder or an archive; or give a `command`. name, entrypoint,
    framework (default `generic`), processes_per_node (default 1) and network describe the Job and
    belong in the spec file where there is one. overrides: env, args, nodes, resources, shape,
    image, max_runtime, mounts, logging, node_groups (see docs/spec.md).

    Raises InvalidInput with every problem found, before anything starts.
    """
    client = _client(home)
    fields = {
        "name": name,
        "entrypoint": entrypoint,
        "framework": framework,
        "processes_per_node": processes_per_node,
        "network": network,
    }
    record, new = client.job(target, command=command, **fields)
    return client.start(client.draft(record, _overrides(overrides), new_job=new))


def get_run(run: str = "last", *, home: str | Path | None = None) -> JobRun:
    """The run of that name, id (or unambiguous beginning of one), or the newest."""
    return _client(home).run(run)


def runs(*, home: str | Path | None = None, **filters: Any) -> list[JobRun]:
    """Runs, newest first. filters: states, job, since (epoch seconds), limit."""
    return _client(home).runs(**filters)


def get_job(job: str, *, home: str | Path | None = None) -> Job:
    """The Job of that name (its newest version), `name@version`, or id."""
    client = _client(home)
    return Job(client, client.service.job(job))


def jobs(*, home: str | Path | None = None) -> list[Job]:
    """All Jobs, newest first."""
    client = _client(home)
    return [Job(client, record) for record in client.service.jobs()]


def _overrides(fields: Mapping[str, Any]) -> RunOverrides:
    from muster.spec.overrides import overrides_from_mapping

    return overrides_from_mapping({k: v for k, v in fields.items() if v is not None})


def _node(record: NodeRecord) -> Node:
    return Node(
        rank=record.rank,
        group=record.group,
        replica=record.replica,
        index=record.index,
        node_id=record.node_id,
        fqdn=record.fqdn,
        address=record.address,
        state=str(record.state),
        exit_code=record.exit_code,
        started_at=_time(record.started_at),
        finished_at=_time(record.finished_at),
    )


def record_dict(record: LogRecord) -> dict[str, Any]:
    """A log record as JSON-ready data."""
    return {
        "time": time_text(record.time),
        "rank": record.rank,
        "group": record.group,
        "node_id": record.node_id,
        "attempt": record.attempt,
        "stream": record.stream,
        "message": record.message,
        "local_rank": record.local_rank,
    }


def time_text(seconds: float | None) -> str | None:
    """Epoch seconds as RFC 3339 text in UTC."""
    return _text(_time(seconds))


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="microseconds").replace("+00:00", "Z")
