"""Variables of a job run that an archive has in a file (OCI: "Preparing Job Artifacts"). Pure.

CONDA_ENV_TYPE: service
CONDA_ENV_SLUG: generalml_p38_cpu_v1
JOB_RUN_ENTRYPOINT: main.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.spec.formats.oci.model import Configuration, DefaultConfiguration, JobDetails
from muster.spec.yaml import load

#: In the archive, or in the one folder that has everything else.
NAME = "jobruntime.yaml"
#: Bytes of the file.
LONGEST = 65_536


def runtime_file(names: Iterable[str]) -> str | None:
    """The file with variables. names: of all files in an archive."""
    found = [name for name in names if re.fullmatch(rf"([^/]+/)?{re.escape(NAME)}", name)]
    return min(found, key=len, default=None)


def variables_in(name: str, content: bytes) -> dict[str, str]:
    """The variables of a file. Values are texts as they are written. Raises InvalidInput."""
    if len(content) > LONGEST:
        raise InvalidInput(Problem("", f"has more than {LONGEST:,} bytes", "", name))
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise InvalidInput(Problem("", "is not UTF-8", "", name)) from None
    if not text.strip():
        return {}
    read, lines = load(text, name, "env")
    if not isinstance(read, Mapping):
        raise InvalidInput(Problem("", "has to be lines of NAME: value", "", name))
    wrong = [
        Problem(key, "has to be text", source=f"{name}:{lines[f'env.{key}']}")
        for key, value in read.items()
        if not isinstance(value, str)
    ]
    if wrong:
        raise InvalidInput(*wrong)
    return dict(read)


def with_variables(job: JobDetails, variables: Mapping[str, str]) -> JobDetails:
    """A job with variables, unless it or one of its node groups sets them itself."""
    if not variables:
        return job
    nodes = job.job_node_configuration_details
    if nodes is None or not nodes.job_node_group_configuration_details_list:
        given = _added(job.job_configuration_details, variables)
        return replace(job, job_configuration_details=given)
    groups = [
        replace(one, job_configuration_details=_added(one.job_configuration_details, variables))
        for one in nodes.job_node_group_configuration_details_list
    ]
    changed = replace(nodes, job_node_group_configuration_details_list=groups)
    return replace(job, job_node_configuration_details=changed)


def _added(given: Configuration | None, variables: Mapping[str, str]) -> Configuration:
    known = given if isinstance(given, DefaultConfiguration) else DefaultConfiguration()
    own = known.environment_variables or {}
    return replace(known, environment_variables={**variables, **own})
