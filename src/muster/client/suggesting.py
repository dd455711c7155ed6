"""The statements that a job needs, by the file that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.errors import Forbidden, InvalidInput, Problem
from muster.iam.policies.suggesting import (
    Suggestion,
    Uses,
    suggest,
    uses_of_oci,
    uses_of_spec,
    with_ads,
)
from muster.identity import DEFAULT_PROJECT
from muster.spec.files import read_text, shown_name
from muster.spec.reader import ADS_KINDS, is_manifest, job_name_from
from muster.spec.wording import short, suggestion

#: Fields that only jobs of OCI have (OCI: CreateJobDetails).
_OF_OCI = frozenset(
    {
        "jobConfigurationDetails",
        "jobInfrastructureConfigurationDetails",
        "jobEnvironmentConfigurationDetails",
        "jobNodeConfigurationDetails",
    }
)


def suggest_policy(
    target: str | Path,
    *,
    group: str | None = None,
    dynamic_group: str | None = None,
    project: str | None = None,
) -> Suggestion:
    """The statements that a job needs: those who start its runs, and its runs.

    target: what `muster run` runs, or a job of OCI as JSON (`oci data-science job create
    --from-json`). group, dynamic_group: default: `JOB-users` and `JOB-runs`. project: where it
    runs; default: the context's. Raises InvalidInput, also if the server of the context has no such
    project that the caller sees.
    """
    from muster.client.contexts import current_address

    address = current_address()
    if project is None:
        project = (None if address is None else address.project) or DEFAULT_PROJECT
    elif project.lower() == "tenancy":
        project = DEFAULT_PROJECT
    elif address is not None and project != DEFAULT_PROJECT:
        _check_project(project)
    name, uses = uses_of_target(target)
    return suggest(uses, name, project, group=group, dynamic_group=dynamic_group)


def _check_project(project: str) -> None:
    """project: a name, or a path from the tenancy."""
    from muster.client.connect import connect_policies

    api = connect_policies()
    try:
        every = {one.name.lower(): one for one in api.compartments()}
    except Forbidden:  # the suggestion itself asks nothing
        return
    finally:
        api.close()
    names = project.lower().split(":")
    if names[0] == DEFAULT_PROJECT:
        names = names[1:]
    parents = [DEFAULT_PROJECT, *names] if len(names) > 1 else [None]
    for parent, name in zip(parents, names, strict=False):
        found = every.get(name)
        if found is None or parent not in (None, found.parent.lower() or DEFAULT_PROJECT):
            hint = suggestion(project, [one.name for one in every.values()])
            raise InvalidInput(Problem("--project", f"there is no project {short(project)}", hint))


def uses_of_target(target: str | Path) -> tuple[str, Uses]:
    """The name of the job that a target describes, and what it uses. Raises InvalidInput."""
    from muster.client.target import is_address, spec_for, split_target

    path, chosen = split_target(target)
    text = read_text(path) if _may_describe(target, path) else ""
    if (of_oci := _job_of_oci(text, path)) is not None:
        return of_oci
    spec = spec_for(target, None, {})
    assert spec.name is not None
    uses = uses_of_spec(spec)
    if not is_address(target) and is_manifest(text):
        for data in _documents_of_ads(text, path):
            if chosen is None or spec.name == _name_of(data):
                return spec.name, with_ads(uses, data)
    return spec.name, uses


def _may_describe(target: str | Path, path: Path) -> bool:
    from muster.client.target import is_spec_target

    return is_spec_target(target) and not path.is_dir()


def _job_of_oci(text: str, path: Path) -> tuple[str, Uses] | None:
    """None if the text is no job of OCI's API. Raises InvalidInput."""
    from muster.spec.formats.oci.decoding import decode_partial
    from muster.spec.formats.oci.model import JobDetails
    from muster.spec.yaml import load

    if not any(field in text for field in _OF_OCI):
        return None
    data, _ = load(text, shown_name(path))
    if not isinstance(data, Mapping) or _OF_OCI.isdisjoint(data):
        return None
    job, found = decode_partial(JobDetails, data)
    if found or job is None:
        raise InvalidInput(*(Problem("", one, source=shown_name(path)) for one in found))
    return job_name_from(job.display_name or path.stem), uses_of_oci(job)


def _documents_of_ads(text: str, path: Path) -> list[Mapping[str, Any]]:
    from muster.spec.formats.documents import documents

    found = (one.data for one in documents(text, shown_name(path)))
    return [one for one in found if isinstance(one, Mapping) and one.get("kind") in ADS_KINDS]


def _name_of(data: Mapping[str, Any]) -> str:
    from muster.spec.formats.ads.read import ads_name

    return ads_name(data)
