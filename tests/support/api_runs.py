"""Start, await and end runs through `MusterAPI`."""

from __future__ import annotations

from muster.api.interface import MusterAPI
from muster.api.prepared import PreparedRun
from muster.spec.override_models import RunOverrides
from muster.spec.reader import spec_from_mapping
from muster.store.records import RunFilter, RunRecord


def prepare(api: MusterAPI, command: str, **fields: object) -> PreparedRun:
    """A prepared run of a shell command."""
    spec = spec_from_mapping({"name": "demo", "command": ["sh", "-c", command], **fields})
    job = api.prepare_job(spec)
    return api.prepare_run(job.record, RunOverrides(), new_job=job.new)


def start(api: MusterAPI, command: str, **fields: object) -> RunRecord:
    """Start a run of a shell command."""
    return api.start(prepare(api, command, **fields))


def wait(api: MusterAPI, run_id: str) -> str:
    """Wait for a run. Its state then."""
    for _ in api.watch(run_id, 60):
        pass
    return api.find_run(run_id).state


def end(api: MusterAPI, run_id: str) -> None:
    """Cancel a run, and wait until none of its processes is left."""
    api.cancel(run_id)
    wait(api, run_id)


def end_all(api: MusterAPI) -> None:
    """As `end`, all runs of the caller's project."""
    for run in api.runs(RunFilter()):
        end(api, run.id)
