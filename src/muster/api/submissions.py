"""What is sent to a server to create Jobs and to start runs.

The code of a Job is uploaded before (`server.uploads`), and named here by its digest. What the
server plans is made there, from this, when the run starts: a client cannot send a plan of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from muster.api.answers import PlanLimits
from muster.api.prepared import FrameworkCheck, PreparedRun
from muster.api.retry import Retry
from muster.engines.findings import Finding
from muster.spec.overrides import Changes
from muster.storage.artifacts import ArtifactRef


class SpecSource(Struct, frozen=True, tag="spec"):
    """The Job of a spec: the project's with this content, or a new one."""

    #: As in a file; see docs/reference/spec.md. `artifact` is the name of the code, for people.
    spec: Mapping[str, Any]
    #: The code, which was uploaded before; None if the spec has none.
    code: ArtifactRef | None = None
    #: A new Job, even if one has the same content.
    new: bool = False


class JobSource(Struct, frozen=True, tag="job"):
    """A Job of the project."""

    #: Its id or name, or whatever `MusterAPI.job` finds it by.
    job: str
    #: A new Job with the same content.
    copy: bool = False


class PresentCode(Struct, frozen=True):
    """The code of a Job as it is now where the Job's was read; it was uploaded before."""

    code: ArtifactRef
    entrypoint: str | None = None
    #: Of a repository.
    commit: str | None = None


class RetrySource(Struct, frozen=True, tag="retry"):
    """Replicas of the array of an earlier run; see `MusterAPI.prepare_retry`."""

    run: str
    retry: Retry = Retry()
    #: Required with `Retry.update_code`.
    present_code: PresentCode | None = None


class RerunSource(Struct, frozen=True, tag="rerun"):
    """The Job of an earlier run, with its overrides; see `MusterAPI.prepare_rerun`."""

    run: str
    changes: Changes = Changes()
    #: Run this code instead of the Job's.
    present_code: PresentCode | None = None


#: A Job to create, unless the project has it.
JobRequest = SpecSource | JobSource
Source = JobRequest | RetrySource | RerunSource


class RunRequest(Struct, frozen=True):
    """A run to prepare, or to start."""

    source: Source
    #: As RunOverrides in docs/reference/spec.md. With an earlier run, its own come first.
    overrides: Mapping[str, Any] = {}
    #: Notes that are shown with the run.
    notes: tuple[str, ...] = ()
    #: The variables that the nodes' environment starts from, besides those of their machine.
    environ: Mapping[str, str] = {}


class StartRequest(Struct, frozen=True):
    """A run to start."""

    run: RunRequest
    #: See `MusterAPI.start`.
    queue: bool = True
    #: The pickled arguments of a function; None for other programs.
    arguments: bytes | None = None


class PreviewRequest(Struct, frozen=True):
    """A run to prepare, and what else to find out about it."""

    run: RunRequest
    #: See `MusterAPI.plan_limits`.
    limits: bool = False
    #: See `MusterAPI.check_framework`.
    framework: bool = False
    #: See `MusterAPI.dry_run`.
    dry_run: bool = False
    #: See `MusterAPI.packed_files`.
    files: bool = False


class Preview(Struct, frozen=True):
    """A run as it would start now. Secrets are hidden."""

    prepared: PreparedRun
    limits: PlanLimits | None = None
    framework: FrameworkCheck | None = None
    findings: tuple[Finding, ...] = ()
    files: tuple[str, ...] = ()
