"""What a question about policies is about: a type, or one resource of either API, which is looked
up for its compartment and its variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from muster.caller import NO_VARIABLES, Variables
from muster.errors import InvalidInput, NotFound, Problem
from muster.iam.policies.statements import Location
from muster.iam.policies.vocabulary import FAMILIES, TYPES, Verb, types_of
from muster.iam.resources import (
    ids_of,
    ocid_of,
    resource_of_job,
    resource_of_run,
    resource_of_schedule,
    variables_of,
    variables_of_bucket,
    variables_of_repository,
    variables_of_secret,
)
from muster.permissions import Permission
from muster.service.resources import job_runs, oci_jobs
from muster.spec.ocids import split_ocid
from muster.spec.wording import alternatives, short, suggestion
from muster.store.resource_records import (
    JOB,
    JOB_RUN,
    LOG_GROUP,
    PROJECT,
    SCHEDULE,
    ResourceFilter,
    ResourceRecord,
)

if TYPE_CHECKING:
    from muster.iam.current_policies import CompiledPolicies
    from muster.store.base import Store


class May(Protocol):
    """Whether the caller has a permission in a compartment, for a resource of which something is
    known."""

    def __call__(
        self, compartment: str, permission: Permission, on: Variables = NO_VARIABLES
    ) -> bool: ...


class Target(Struct, frozen=True):
    """What a question is about."""

    resource: str
    """A type or a family."""
    compartment: str
    attributes: Variables


class _Search(Struct, frozen=True):
    """Where resources are looked for."""

    store: Store
    policies: CompiledPolicies
    may: May


def target_of(
    store: Store,
    policies: CompiledPolicies,
    on: str,
    compartment: str,
    may: May,
    problems: list[Problem],
) -> Target | None:
    """What a question is about; None if that is none. on: see `Question`. compartment: of a type,
    and of a resource that is given by name. One with an OCID is also looked for in the others in
    which the caller may read policies: of all others it gets the answer for what does not exist.
    problems: gets what is wrong."""
    kind, colon, name = on.partition(":")
    if not colon:
        if on.lower() in TYPES or on.lower() in FAMILIES:
            return Target(on.lower(), compartment, {})
        hint = suggestion(on, (*TYPES, *FAMILIES)) or f"or one resource: {_KINDS_TEXT}"
        problems.append(Problem("on", f"there is no type of resources {short(on)}", hint))
        return None
    find = _FINDERS.get(kind)
    if find is None:
        hint = suggestion(kind, _FINDERS) or f"write {_KINDS_TEXT}"
        problems.append(Problem("on", f"{short(on)}: there is no kind {short(kind)}", hint))
        return None
    search = _Search(store, policies, may)
    for place in _places(search, name, compartment):
        try:
            found = find(search, name, place)
        except NotFound:
            continue
        except InvalidInput as error:  # several have the name
            problems.extend(one._replace(path="on") for one in error.problems)
            return None
        if found is not None and (kind == "repo" or _is_seen(found, may)):
            return found
    problems.append(Problem("on", *_none(kind, name, compartment)))
    return None


def _is_seen(target: Target, may: May) -> bool:
    """Whether the caller may know that a resource is there."""
    least = (one for kind in types_of(target.resource) for one in kind.adds.get(Verb.INSPECT, ()))
    return any(may(target.compartment, one, target.attributes) for one in least)


def _places(search: _Search, name: str, compartment: str) -> Iterator[str]:
    """The compartments in which a resource is looked for."""
    yield compartment
    if split_ocid(name) is not None:
        for one in search.store.accounts.projects():
            if one.name != compartment and search.may(one.name, Permission.POLICY_READ):
                yield one.name


def _none(kind: str, name: str, compartment: str) -> tuple[str, str]:
    """That there is no such resource, and a hint: the same words for one that the caller may not
    ask about."""
    if split_ocid(name) is not None:
        return f"no {kind} has the OCID {short(name)}, or you may not ask about it", ""
    if kind == "compartment":
        text = f"there is no compartment {short(name)}, or you may not ask about it"
        return text, "`muster iam compartments list` lists them"
    listed = _LISTED.get(kind)
    elsewhere = "" if kind in ("secret", "bucket") else "; the OCID finds it in others, too"
    hint = f"`{listed}` lists them{elsewhere}" if listed else elsewhere.removeprefix("; ")
    if kind == "project":
        hint = f"a project of Muster is a compartment: compartment:NAME{elsewhere}"
    text = f"compartment {compartment} has no {kind} {short(name)}, or you may not see it"
    return text, hint


_LISTED = {
    "job": "muster jobs list",
    "run": "muster ps",
    "node": "muster ps",
    "schedule": "muster schedules list",
    "secret": "muster secrets list",
}


# One resource. Each raises NotFound, or returns None, if there is none in the compartment.


def _job(search: _Search, name: str, compartment: str) -> Target | None:
    found = _of_oci(search, JOB, name, compartment)
    if found is not None and split_ocid(name) is not None:
        return _target("data-science-jobs", found)
    try:
        job = search.store.jobs.find(compartment, _checked(JOB, name))
    except NotFound:
        return _target("data-science-jobs", found)
    of_oci = oci_jobs(search.store, (job,)).get(job.oci_job)
    return Target("data-science-jobs", compartment, resource_of_job(job, of_oci).variables)


def _run(search: _Search, name: str, compartment: str) -> Target | None:
    found = _of_oci(search, JOB_RUN, name, compartment)
    if found is not None and split_ocid(name) is not None:
        return _target("data-science-job-runs", found)
    runs = search.store.runs
    try:
        run = runs.summary(runs.find_id(compartment, _checked(JOB_RUN, name)))
    except NotFound:
        return _target("data-science-job-runs", found)
    job_run = job_runs(search.store, (run,)).get(run.id)
    return Target("data-science-job-runs", compartment, resource_of_run(run, job_run).variables)


def _node(search: _Search, name: str, compartment: str) -> Target | None:
    found = _run(search, name, compartment)
    return None if found is None else replace(found, resource="data-science-job-run-nodes")


def _schedule(search: _Search, name: str, compartment: str) -> Target | None:
    found = _of_oci(search, SCHEDULE, name, compartment)
    if found is not None and split_ocid(name) is not None:
        return _target("data-science-schedules", found)
    try:
        schedule = search.store.schedules.find(compartment, _checked(SCHEDULE, name))
    except NotFound:
        return _target("data-science-schedules", found)
    return Target("data-science-schedules", compartment, resource_of_schedule(schedule).variables)


def _project(search: _Search, name: str, compartment: str) -> Target | None:
    return _target("data-science-projects", _of_oci(search, PROJECT, name, compartment))


def _log_group(search: _Search, name: str, compartment: str) -> Target | None:
    return _target("log-groups", _of_oci(search, LOG_GROUP, name, compartment))


def _compartment(search: _Search, name: str, _: str) -> Target | None:
    """A compartment, by its name, its path from the tenancy, or its OCID; it is its own place."""
    policies = search.policies.policies
    by_id = (one.name for one in policies.compartments.values() if name in one.ids)
    path = tuple(name.split(":"))
    found = next(by_id, None) or policies.resolve(Location(path), policies.root)
    if found is None and len(path) == 1:
        found = search.policies.name_of(name)
        found = policies.root if name.lower() == "tenancy" else found
    if found not in policies.compartments or not search.may(found, Permission.POLICY_READ):
        return None
    return Target("compartments", found, {})


def _bucket(search: _Search, name: str, compartment: str) -> Target | None:
    """A bucket with its objects or, as BUCKET/NAME, one object, which need not exist."""
    name, slash, object_name = name.partition("/")
    bucket = search.store.buckets.get(name)
    if bucket.project != compartment:
        return None
    if slash:
        return Target("objects", compartment, variables_of_bucket(bucket, object_name))
    return Target("object-family", compartment, variables_of_bucket(bucket))


def _secret(search: _Search, name: str, compartment: str) -> Target | None:
    if all(one.name != name for one in search.store.secrets.listing(compartment)):
        return None
    return Target("secret-family", compartment, variables_of_secret(compartment, name))


def _repository(_search: _Search, name: str, compartment: str) -> Target:
    return Target("repos", compartment, variables_of_repository(name))


def _of_oci(search: _Search, kind: str, name: str, compartment: str) -> ResourceRecord | None:
    """The resource of the OCI API with this OCID or name in a compartment, the newest of several
    with a name; None if there is none."""
    resources = search.store.resources
    if split_ocid(name) is not None:
        found = resources.some(kind, ids_of(_checked(kind, name))).values()
        here = (one for one in found if one.project == compartment and ocid_of(one) == name)
        return next(here, None)
    if not name.isprintable():  # no database has it
        return None
    chosen = ResourceFilter(kind, compartment, name=name)
    kept = [one for one in resources.listing(chosen) if one.state != "DELETED"]
    return kept[0] if kept else None


def _checked(kind: str, name: str) -> str:
    """A name, or an OCID of this kind. Raises NotFound for that of another kind: its last part
    alone would be looked for."""
    parts = split_ocid(name)
    if parts is not None and parts[0] != kind:
        raise NotFound(f"not of a {kind}: {name}")
    return name


def _target(resource: str, record: ResourceRecord | None) -> Target | None:
    return None if record is None else Target(resource, record.project, variables_of(record))


_FINDERS: Mapping[str, Callable[[_Search, str, str], Target | None]] = {
    "job": _job,
    "run": _run,
    "node": _node,
    "project": _project,
    "compartment": _compartment,
    "schedule": _schedule,
    "log-group": _log_group,
    "bucket": _bucket,
    "secret": _secret,
    "repo": _repository,
}
_KINDS_TEXT = alternatives([f"{kind}:NAME" for kind in _FINDERS])
