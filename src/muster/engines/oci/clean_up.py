"""Ends the jobs of a run that nobody drives any more."""

from __future__ import annotations

import time

from muster.engines.oci.bucket import Bucket
from muster.engines.oci.client import Service
from muster.engines.oci.details import job_name
from muster.engines.oci.ending import Times, end_job
from muster.engines.oci.profile import OciProfile
from muster.engines.oci.record import RECORD, Record
from muster.engines.oci.refusals import CannotRun
from muster.engines.remote.record import read_record, write_record
from muster.errors import EngineError
from muster.storage.home import RunDir

#: Seconds until all jobs have to be gone.
_TIMEOUT = 600.0


def end_jobs(folder: RunDir, run_id: str, profile: OciProfile) -> None:
    """End the jobs of a run. Raises EngineError if that cannot be confirmed."""
    try:
        record = read_record(folder.path / RECORD, Record)
    except OSError as error:
        raise EngineError(f"the jobs of its nodes are not known: {error}") from None
    if record is None or not record.allocations:
        return
    service, now = Service(profile), time.monotonic()
    bucket = None if profile.place is None else Bucket(service, profile.place)
    times = Times(now, now + _TIMEOUT)
    for one in record.allocations:
        name = job_name(run_id, one.number)
        try:
            end_job(service, name, one.job, times, keep=profile.keep_jobs)
            if bucket is not None:
                bucket.end_links(name, bucket.place.folder(run_id))
        except CannotRun as error:
            raise EngineError(f"job {name} could not be ended in the service: {error}") from None
    if bucket is not None:
        try:
            bucket.clear(bucket.place.folder(run_id))
        except CannotRun as error:
            text = (
                f"bucket {bucket.place.bucket} could not be cleared of the run's objects: {error}"
            )
            raise EngineError(text) from None
    write_record(folder.path / RECORD, Record(next=record.next, port=record.port))


def has_jobs(folder: RunDir) -> bool:
    """Whether jobs of a run may be left in the service."""
    try:
        record = read_record(folder.path / RECORD, Record)
    except OSError:
        return True  # nobody knows
    return record is not None and bool(record.allocations)
