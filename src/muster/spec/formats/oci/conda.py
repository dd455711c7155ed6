"""The conda environment that a job names (OCI: CONDA_ENV_TYPE and its companions). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster.spec.formats.oci.model import Configuration, DefaultConfiguration, JobDetails

#: In the settings, for every environment that is not named there.
ANY = "*"
_SLUG, _OBJECT = "CONDA_ENV_SLUG", "CONDA_ENV_OBJECT_NAME"
_PACKED = "packs in object storage are not unpacked: unpack it once with `conda-unpack`"
_HINT = 'name a Python for it in server.toml: [oci.conda], "{}" = "/PATH/bin/python"'


def conda_python(job: JobDetails, pythons: Mapping[str, str]) -> tuple[str, str] | None:
    """The name of a job's conda environment and the Python that stands for it; None if the job has
    none. Raises ValueError if there is none for it, or if node groups have several."""
    names = sorted(set(_names(job)))
    if not names:
        return None
    if len(names) > 1:
        raise ValueError(
            f"the node groups have several conda environments, {', '.join(names)}: all nodes of a "
            "job run have one"
        )
    (name,) = names
    # packs are published below a folder, and known by their last name
    known = (name, name.rstrip("/").rpartition("/")[2], ANY)
    python = next((pythons[one] for one in known if one in pythons), None)
    if python is None:
        packed = f"; {_PACKED}" if _is_published(job, name) else ""
        raise ValueError(
            f"there is no conda environment {name!r} here{packed}; {_HINT.format(name)}"
        )
    return name, python


def _is_published(job: JobDetails, name: str) -> bool:
    return any(one.get(_OBJECT) == name for one in _variables(job))


def _names(job: JobDetails) -> Iterator[str]:
    for variables in _variables(job):
        if name := variables.get(_SLUG) or variables.get(_OBJECT):
            yield name


def _variables(job: JobDetails) -> Iterator[Mapping[str, str]]:
    nodes = job.job_node_configuration_details
    groups = () if nodes is None else nodes.job_node_group_configuration_details_list or ()
    given: list[Configuration | None] = [
        job.job_configuration_details,
        *(group.job_configuration_details for group in groups),
    ]
    for one in given:
        if isinstance(one, DefaultConfiguration):
            yield one.environment_variables or {}
