"""Jobs and runs that are checked and not recorded yet."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.errors import Problem
from muster.plan.model import RunPlan
from muster.spec.models import JobSpec
from muster.spec.override_models import RunOverrides
from muster.store.records import JobRecord


class PreparedJob(Struct, frozen=True):
    """The Job of some content. If it is new, only its code is stored yet."""

    record: JobRecord
    #: The record's spec, decoded.
    spec: JobSpec
    #: Whether the Job will be recorded (`create_job`, or with its first run) or discarded.
    new: bool


class PreparedRun(Struct, frozen=True):
    """A run that passed every check and can be started. Nothing of it is recorded yet."""

    job: JobRecord
    #: Whether the Job is not recorded yet either.
    new_job: bool
    #: The Job's spec, as it was written.
    job_spec: JobSpec
    #: The run's spec in normal form: the Job's with the overrides, as the framework arranged it.
    spec: JobSpec
    overrides: RunOverrides
    #: Where each setting comes from, by path: `job`, `override` or `default`.
    origins: Mapping[str, str]
    plan: RunPlan
    #: What the user should know about the run.
    notes: tuple[str, ...]
    #: What the nodes lack, which refuses the start.
    missing: tuple[Problem, ...] = ()


class FrameworkCheck(Struct, frozen=True):
    """What is known of the framework's packages on the nodes."""

    problems: tuple[Problem, ...] = ()
    #: About programs whose Python is not known.
    notes: tuple[str, ...] = ()
    #: Each Python that has the packages.
    pythons: tuple[str, ...] = ()
