"""The public functions of the Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.client.client import Client
from muster.client.connect import place_of
from muster.client.filters import epoch_seconds
from muster.client.job import Job
from muster.client.run import JobRun

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from muster.api.answers import Pruned
    from muster.api.prepared import PreparedRun
    from muster.client.cluster import Cluster
    from muster.client.notification import Notification
    from muster.client.schedule import Schedule
    from muster.client.table import Table

_clients: dict[str, Client] = {}


def client_of(home: str | Path | None) -> Client:
    """The client of a MUSTER_HOME (default: the environment's), one for each in this process."""
    return _clients.setdefault(place_of(home), Client(home))


def run(
    target: str | Path | None = None,
    *,
    command: str | Sequence[str] | None = None,
    name: str | None = None,
    entrypoint: str | None = None,
    framework: str | None = None,
    framework_options: Mapping[str, Any] | None = None,
    engine: str | None = None,
    processes_per_node: int | None = None,
    network: str | None = None,
    requirements: str | Sequence[str] | None = None,
    conda: str | None = None,
    display_name: str | None = None,
    copy: bool = False,
    new: bool = False,
    large_array: bool = False,
    queue: bool = True,
    home: str | Path | None = None,
    **overrides: Any,
) -> JobRun:
    """Start a run and return at once; call `wait()` on the result.

    target: a spec file, a script, a notebook, a folder, an archive, a repository
    (`git+https://...`) or the name of a Job.
    command: a command to run. Without a target, it runs in the current directory itself or, with
    `copy`, in a copy of it.
    name, entrypoint, framework (default `generic`), framework_options, engine (default `local`),
    processes_per_node (default 1), network, requirements, conda, display_name: describe the Job. If
    target is a Job or a spec file, only framework_options, engine, processes_per_node and network
    can be given; they override its settings in this run.
    new: create a new Job, even if one with the same content exists.
    large_array: allow an array of more than 100,000 parameter sets.
    queue: if other runs hold the GPUs, memory or CPUs that this run needs, wait for them in state
    QUEUED. With False, raise InvalidInput instead.
    overrides: env, args, nodes, resources, node_groups, run_name, tags and the other settings that
    a run may change: RunOverrides in docs/reference/spec.md. An array runs the program for each
    combination of values: `array={"lr": [0.1, 0.01], "seed": range(100)}, parallelism=4`.

    Raises InvalidInput with every problem found, before anything starts.
    """
    client = client_of(home)
    fields = {
        "name": name,
        "entrypoint": entrypoint,
        "framework": framework,
        "framework_options": framework_options,
        "engine": engine,
        "processes_per_node": processes_per_node,
        "network": network,
        "requirements": requirements,
        "conda": conda,
        "display_name": display_name,
    }
    options = {"copy": copy, "new": new, "large_array": large_array}
    prepared = _prepared(client, target, command, fields, overrides, **options)
    return client.start(prepared, queue=queue)


#: Parameters of `run` that describe the Job.
_OF_JOBS = (
    *("name", "entrypoint", "framework", "framework_options", "engine", "processes_per_node"),
    *("network", "requirements", "conda", "display_name"),
)


def _prepared(
    client: Client,
    target: str | Path | None,
    command: str | Sequence[str] | None,
    fields: dict[str, Any],
    overrides: dict[str, Any],
    *,
    copy: bool = False,
    new: bool = False,
    large_array: bool = False,
) -> PreparedRun:
    """A run as `run` describes it. fields: of the Job. Raises InvalidInput."""
    from muster.client.target import place_of_command
    from muster.spec.overrides import changes_from_mapping

    also = ("engine", "processes_per_node", "network", "framework_options")
    overrides = {**overrides, **{name: fields.get(name) for name in also}}
    if command or copy:
        fields = {**fields, **place_of_command(target, copy=copy)}
    changes = changes_from_mapping({k: v for k, v in overrides.items() if v is not None})
    return client.prepare(
        target, changes, command=command, new=new, large_array=large_array, **fields
    )


def create_schedule(
    schedule: str,
    target: str | Path | None = None,
    *,
    command: str | Sequence[str] | None = None,
    cron: str | None = None,
    every: float | str | None = None,
    ical: str | None = None,
    after: str | None = None,
    on: str | None = None,
    webhook: bool = False,
    on_object: str | None = None,
    time_zone: str | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    jitter: float | str | None = None,
    overlap: str | None = None,
    missed: str | None = None,
    start_within: float | str | None = None,
    home: str | Path | None = None,
    **options: Any,
) -> Schedule:
    """Create a schedule, which starts runs at times or after events while a server runs.

    schedule: its name. target, command, options: as for `run`; they are checked, and the code is
    stored, now. The others say when, as for `Client.create_schedule`.

    Raises InvalidInput with every problem found.
    """
    client = client_of(home)
    fields = {name: options.pop(name, None) for name in _OF_JOBS}
    how = {name: options.pop(name, False) for name in ("copy", "new", "large_array")}
    prepared = _prepared(client, target, command, fields, options, **how)
    return client.create_schedule(
        schedule,
        prepared,
        cron=cron,
        every=every,
        ical=ical,
        after=after,
        on=on,
        webhook=webhook,
        on_object=on_object,
        time_zone=time_zone,
        start=start,
        end=end,
        jitter=jitter,
        overlap=overlap,
        missed=missed,
        start_within=start_within,
    )


def get_schedule(name: str, *, home: str | Path | None = None) -> Schedule:
    """The schedule with this name or id. Raises NotFound."""
    return client_of(home).schedule(name)


def schedules(*, home: str | Path | None = None) -> Table[Schedule]:
    """All schedules, by name."""
    return client_of(home).schedules()


def create_notification(
    name: str,
    target: str,
    *,
    on: str | Sequence[str] | None = None,
    job: str = "",
    tags: Mapping[str, str | None] | None = None,
    format: str | None = None,
    home: str | Path | None = None,
) -> Notification:
    """Have events sent to a target while a server runs: as `Client.create_notification`. Raises
    InvalidInput with every problem."""
    client = client_of(home)
    return client.create_notification(name, target, on=on, job=job, tags=tags, format=format)


def get_notification(name: str, *, home: str | Path | None = None) -> Notification:
    """The notification with this name or id. Raises NotFound."""
    return client_of(home).notification(name)


def notifications(*, home: str | Path | None = None) -> Table[Notification]:
    """All notifications, by name."""
    return client_of(home).notifications()


def get_run(run: str = "last", *, home: str | Path | None = None) -> JobRun:
    """The run with this name, id or id prefix, or `last`."""
    return client_of(home).run(run)


def runs(
    *,
    state: str | None = None,
    job: str | None = None,
    since: datetime | timedelta | None = None,
    tags: Mapping[str, str | None] | None = None,
    limit: int | None = None,
    before: str | JobRun | None = None,
    home: str | Path | None = None,
) -> Table[JobRun]:
    """Runs, newest first.

    job: a name (all versions) or id. since: an aware time, or how long ago; runs created before
    then are left out. tags: tags of the run, with None for any value. limit: 0 and None mean all.
    before: only runs older than this one; with `limit`, that is the next page:
    `runs(limit=50, before=page[-1])`. Raises InvalidInput.
    """
    from muster.client.filters import states_named

    states = None if state is None else states_named("state", [state])
    after = None if since is None else epoch_seconds(since)
    return client_of(home).runs(
        states=states, job=job, since=after, tags=tags, limit=limit, before=before
    )


def cluster(name: str = "last", *, home: str | Path | None = None) -> Cluster:
    """The persistent cluster with this name (`muster cluster up`), or the newest."""
    from muster.client.cluster import find

    return find(client_of(home), name)


def create_job(
    target: str | Path | None = None,
    *,
    command: str | Sequence[str] | None = None,
    copy: bool = False,
    new: bool = False,
    large_array: bool = False,
    home: str | Path | None = None,
    **fields: Any,
) -> Job:
    """Create the Job of a spec file, code, a repository or a command; nothing starts.

    target, command and copy as for `run`. fields: fields of the spec, unless the target is a spec
    file. new: create a new Job, even if one with the same content exists. large_array: as for
    `run`.

    Raises InvalidInput with every problem that a run of the Job would have.
    """
    from muster.client.target import place_of_command

    client = client_of(home)
    if command or copy:
        fields = {**place_of_command(target, copy=copy), **fields}
    prepared = client.prepare_job(
        target, command=command, new=new, large_array=large_array, **fields
    )
    return Job(client, client.create(prepared))


def prune(
    *,
    keep: int | None = None,
    older_than: float | str | None = None,
    dry_run: bool = False,
    home: str | Path | None = None,
) -> Pruned:
    """Delete ended runs, code that no Job has, unused environments, and what killed processes left.

    A run stays if it is among the newest `keep` ended runs, or if it ended within `older_than`
    (seconds or text such as `7d`). If neither is given: the retention in MUSTER_HOME/config.toml,
    else 7 days. dry_run: delete nothing. The result says what was deleted, and the bytes freed.
    """
    return client_of(home).prune(keep=keep, older_than=older_than, dry_run=dry_run)


def get_job(job: str, *, home: str | Path | None = None) -> Job:
    """The Job with this name (the newest version), `name@version`, display name or id."""
    client = client_of(home)
    return Job(client, client.api.job(job))


def jobs(
    *,
    deleted: bool = False,
    tags: Mapping[str, str | None] | None = None,
    home: str | Path | None = None,
) -> Table[Job]:
    """Jobs, newest first. deleted: include deleted ones; tags: tags of the Job, with None for any
    value."""
    from muster.client.table import Table

    client = client_of(home)
    found = client.api.jobs(deleted=deleted, tags=tags)
    return Table(Job(client, record) for record in found)
