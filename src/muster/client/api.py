"""The public functions: what `import muster` gives beside the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.client.client import Client
from muster.client.job import Job
from muster.client.run import JobRun
from muster.lifecycle.states import RunState

if TYPE_CHECKING:
    from muster.client.cluster import Cluster

_clients: dict[str, Client] = {}


def client_of(home: str | Path | None) -> Client:
    """The client of a MUSTER_HOME (default: the environment's), one for all who ask."""
    from muster.storage.home import default_home

    key = str(Path(home).absolute() if home else default_home().root)
    return _clients.setdefault(key, Client(home))


def run(
    target: str | Path | None = None,
    *,
    command: str | Sequence[str] | None = None,
    name: str | None = None,
    entrypoint: str | None = None,
    framework: str | None = None,
    framework_options: Mapping[str, Any] | None = None,
    processes_per_node: int | None = None,
    network: str | None = None,
    requirements: str | Sequence[str] | None = None,
    conda: str | None = None,
    display_name: str | None = None,
    new: bool = False,
    home: str | Path | None = None,
    **overrides: Any,
) -> JobRun:
    """Start a run and return at once; `wait()` on what comes back.

    target: a spec file, a script, a notebook, a folder, an archive or a repository
    (`git+https://...`), or a Job that is there; or give a `command`. name, entrypoint, framework
    (default `generic`), processes_per_node (default 1), network, framework_options, requirements,
    conda and display_name describe the Job; where there is one, or a spec file, the run may have
    other processes_per_node, network and framework_options. new: run a Job of its own, with an id
    of its own, although there is one with the same content. overrides: env, args, nodes,
    resources, node_groups, run_name, tags and all else that a run may change (docs/spec.md,
    RunOverrides).

    Raises InvalidInput with every problem found, before anything starts.
    """
    client = client_of(home)
    fields = {
        "name": name,
        "entrypoint": entrypoint,
        "framework": framework,
        "framework_options": framework_options,
        "processes_per_node": processes_per_node,
        "network": network,
        "requirements": requirements,
        "conda": conda,
        "display_name": display_name,
    }
    from muster.spec.overrides import changes_from_mapping

    overrides |= {
        "processes_per_node": processes_per_node,
        "network": network,
        "framework_options": framework_options,
    }
    changes = changes_from_mapping({k: v for k, v in overrides.items() if v is not None})
    return client.start(client.draft_for(target, changes, command=command, new=new, **fields))


def get_run(run: str = "last", *, home: str | Path | None = None) -> JobRun:
    """The run of that name, id (or unambiguous beginning of one), or the newest."""
    return client_of(home).run(run)


def runs(
    *,
    state: str | None = None,
    job: str | None = None,
    since: float | None = None,
    tags: Mapping[str, str | None] | None = None,
    limit: int | None = None,
    home: str | Path | None = None,
) -> list[JobRun]:
    """Runs, newest first. job: a name (all its versions) or id; since: epoch seconds; tags: that
    they have, None for any value."""
    states = None if state is None else [RunState(state.upper())]
    return client_of(home).runs(states=states, job=job, since=since, tags=tags, limit=limit)


def cluster(name: str = "last", *, home: str | Path | None = None) -> Cluster:
    """The cluster of that name that is up (`muster cluster up`), or the newest."""
    from muster.client.cluster import find

    return find(client_of(home), name)


def create_job(
    target: str | Path | None = None,
    *,
    command: str | Sequence[str] | None = None,
    new: bool = False,
    home: str | Path | None = None,
    **fields: Any,
) -> Job:
    """The Job for a spec file, code, a repository or a command, recorded; nothing starts.

    target and command as for `run`. fields: fields of the spec, for targets that are no spec file.
    new: a Job of its own, with an id of its own, although there is one with the same content.

    Raises InvalidInput with everything that a run of it would be refused for.
    """
    client = client_of(home)
    draft = client.draft_job_for(target, command=command, new=new, **fields)
    return Job(client, client.create(draft))


def get_job(job: str, *, home: str | Path | None = None) -> Job:
    """The Job of that name (its newest version), `name@version`, display name or id."""
    client = client_of(home)
    return Job(client, client.service.job(job))


def jobs(
    *,
    deleted: bool = False,
    tags: Mapping[str, str | None] | None = None,
    home: str | Path | None = None,
) -> list[Job]:
    """Jobs, newest first. deleted: those that are, too; tags: that they have, None for any
    value."""
    client = client_of(home)
    return [Job(client, record) for record in client.service.jobs(deleted=deleted, tags=tags)]
