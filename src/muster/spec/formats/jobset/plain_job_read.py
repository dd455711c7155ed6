"""Read a Job's manifest (`batch/v1`) as a `JobSpec`."""

from __future__ import annotations

from muster.spec.formats.documents import Document, Manifest
from muster.spec.formats.jobset.config_objects import ConfigObjects
from muster.spec.formats.jobset.plain_job import JobManifest, as_jobset
from muster.spec.formats.jobset.plain_job_fields import TABLES
from muster.spec.formats.jobset.read import decoded, manifest_of
from muster.spec.formats.jobset.schema import check_job_structure
from muster.spec.formats.jobset.single_job import path_in_jobset
from muster.spec.formats.jobset.unread_fields import in_cluster
from muster.spec.formats.notes import Notes


def read_job(document: Document, objects: ConfigObjects | None = None) -> Manifest:
    """The job of the manifest of a Job. objects: see `read_jobset`. Raises
    InvalidInput with every problem and its line."""
    notes = Notes()
    tables = in_cluster(TABLES) if objects is not None and objects.in_cluster else TABLES
    job, problems = decoded(document, JobManifest, tables, check_job_structure, notes)
    problems = [problem._replace(path=path_in_jobset(problem.path)) for problem in problems]
    return manifest_of(document, as_jobset(job), problems, notes, objects)
