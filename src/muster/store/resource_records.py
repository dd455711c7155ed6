"""Records of the resources that the OCI API shows: jobs, job runs, projects, log groups, ..."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from msgspec import Struct

from muster.store.records import Moment

#: The kinds of jobs and of job runs.
JOB, JOB_RUN = "datasciencejob", "datasciencejobrun"
#: The kinds of log groups and of logs.
LOG_GROUP, LOG = "loggroup", "log"
#: The kinds of projects, schedules and rules of events.
PROJECT, SCHEDULE, RULE = "datascienceproject", "datascienceschedule", "eventrule"


class RunFacts(Struct, frozen=True):
    """What a job run shows of Muster's run."""

    state: str
    details: str
    started_at: Moment | None
    finished_at: Moment | None
    exit_code: int | None


class ResourceRecord(Struct, frozen=True):
    """A resource of the OCI API."""

    kind: str
    """Its type, as in an OCID: `datasciencejob`."""
    id: str
    """The last part of its OCID."""
    project: str
    """Muster's project, which is the compartment."""
    name: str
    state: str
    """Its lifecycleState: that of Muster's run, while there is one."""
    created_by: str
    created_at: Moment
    updated_at: Moment
    data: Mapping[str, Any]
    """What else its kind has."""
    parent: str = ""
    """The id of the resource that it belongs to: the job of a job run; "" if there is none."""
    run_id: str | None = None
    """The id of Muster's run, whose state it has. It may be about to start, or was deleted."""
    version: int = 1
    """One more with each change."""
    run: RunFacts | None = None
    """Of `run_id`, given by the store; None if there is none."""


class ResourceFilter(Struct, frozen=True):
    """Which resources to list."""

    kind: str
    project: str | None
    """None: of all projects; only with a parent, as no index has others."""
    id: str | None = None
    parent: str | None = None
    name: str | None = None
    states: Collection[str] | None = None
    created_by: str | None = None
    sort: Literal["created_at", "name"] = "created_at"
    descending: bool = True
    after: tuple[str | float, str] | None = None
    """The sort value and the id of the last one of the page before."""
    limit: int | None = None
