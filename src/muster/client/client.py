"""Muster on this machine: the way in for everything that is not the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.service import Service
from muster.storage.home import Home
from muster.store.lookup import NoSuchVersion, SameName
from muster.store.records import JobRecord, RunSummary

if TYPE_CHECKING:
    from muster.control.launcher import Launcher
    from muster.drafting import Draft
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes
    from muster.spec.reader import Written


class Client:
    """Muster on this machine. home: MUSTER_HOME (default: the environment's)."""

    def __init__(self, home: str | Path | None = None, *, launcher: Launcher | None = None) -> None:
        self.service = Service(Home(Path(home).absolute()) if home else None, launcher)

    def job(
        self,
        target: str | Path | None = None,
        *,
        command: str | Sequence[str] | None = None,
        **fields: Any,
    ) -> tuple[JobRecord, bool]:
        """The Job for a spec file, some code, a git repository or a command, and whether it is new.

        target: may also name a Job that is there, where there is no file of that name.
        """
        from muster.client.target import spec_for

        known = self._named(target)
        if known is not None:
            return known, False
        return self.service.draft_job(spec_for(target, command, fields))

    def draft_for(
        self,
        target: str | Path | None,
        changes: Changes,
        *,
        command: str | Sequence[str] | None = None,
        new: bool = False,
        **fields: Any,
    ) -> Draft:
        """`job` and `draft` in one. new: of a Job of its own, whatever there is already. Raises
        InvalidInput with the problems of every stage."""
        from muster.client.target import notes_for, of_the_job, written_for
        from muster.spec.items import with_items
        from muster.spec.reader import Written
        from muster.spec.resolve import spec_from_json

        known = self._named(target)
        if known is not None and (taken := of_the_job(known.name, fields)):
            raise InvalidInput(*taken, *changes.problems)
        try:
            written = (
                Written(spec_from_json(known.spec))
                if known is not None
                else written_for(target, command, fields)
            )
        except InvalidInput as error:
            raise type(error)(*changes.problems, *error.problems) from None
        unknown: tuple[str, ...] = ()
        if written.origins and written.spec.shape is not None:  # of a manifest
            from muster.spec.shapes import without_unknown

            spec, unknown = without_unknown(written.spec, self.service.home.shapes)
            written = replace(written, spec=spec)
        changes = with_items(changes, written.spec)
        if known is None:
            written = _with_entrypoint(written, changes.overrides)
        if written.problems or changes.problems:
            raise InvalidInput(*self.service.review(written, changes))
        notes = (*notes_for(target, fields.get("entrypoint")), *unknown)
        try:
            if known is None:
                job, is_new = self.service.draft_job(written.spec, own=new)
            else:
                job, is_new = (self.service.draft_copy(known), True) if new else (known, False)
            return self.draft(job, changes.overrides, new_job=is_new, notes=notes)
        except InvalidInput as error:
            problems = self.service.review(written, changes, error.problems)
            raise type(error)(*problems) from None

    def draft_job_for(
        self,
        target: str | Path | None,
        *,
        command: str | Sequence[str] | None = None,
        new: bool = False,
        changes: Changes | None = None,
        **fields: Any,
    ) -> Draft:
        """What `create` records of a spec file, some code, a git repository or a command. fields:
        what describes it. changes: more of that, in the flags of a run. Raises InvalidInput with
        everything that a run of it would be refused for."""
        from muster.client.target import describes_already, describes_itself
        from muster.spec.job_fields import job_fields
        from muster.spec.overrides import Changes

        changes = changes or Changes()
        given, problems = job_fields(changes)
        known = self._named(target)
        if known is not None or describes_itself(target):
            what = str(target) if known is None else f"job {known.handle}"
            if described := describes_already(what, {**given, **fields}):
                raise InvalidInput(*changes.problems, *problems, *described)
        wrong = Changes(
            problems=(*changes.problems, *problems), broken=changes.broken, said=changes.said
        )
        fields = {name: value for name, value in fields.items() if value is not None}
        return self.draft_for(target, wrong, command=command, new=new, **given, **fields)

    def create(self, draft: Draft) -> JobRecord:
        """Record the Job of a draft, and start nothing."""
        return self.service.create_job(draft.job)

    def _named(self, target: str | Path | None) -> JobRecord | None:
        """The Job of that name, where there is no file of that name."""
        from muster.client.target import is_address

        if isinstance(target, str) and not is_address(target) and not os.path.exists(target):
            try:
                return self.service.job(target)
            except (NoSuchVersion, SameName):
                raise
            except InvalidInput:
                return None  # it is looked for as a file, and said to be none
        return None

    def draft(
        self,
        job: JobRecord,
        overrides: RunOverrides | None = None,
        *,
        new_job: bool = False,
        notes: Sequence[str] = (),
    ) -> Draft:
        """A checked and planned run that has not started. notes: what is to be said of it besides
        (`client.target.notes_for`)."""
        overrides = overrides or overrides_from({})
        return self.service.draft_run(job, overrides, new_job=new_job, notes=notes)

    def start(self, draft: Draft, environ: Mapping[str, str] | None = None) -> JobRun:
        """Start a drafted run."""
        return JobRun(self.service, self.service.start(draft, environ))

    def run(self, text: str) -> JobRun:
        """The run of that name, id (prefix), or `last`."""
        return JobRun(self.service, self.service.run(text))

    def runs(self, **filters: Any) -> list[JobRun]:
        """Runs, newest first. filters: states, job, since (epoch seconds), tags, limit."""
        return [self.run(summary.id) for summary in self.service.runs(**filters)]

    def summaries(self, **filters: Any) -> list[RunSummary]:
        """As `runs`, but only what a list shows: fast for thousands."""
        return self.service.runs(**filters)


def _with_entrypoint(written: Written, overrides: RunOverrides) -> Written:
    """A new Job has the entry point that its first run chooses by a variable, where it says
    none."""
    from muster.spec.oci_variables import ENTRYPOINT, entrypoint_in

    chosen = overrides.env.get(ENTRYPOINT)
    spec = written.spec
    if not chosen or spec.entrypoint is not None or entrypoint_in(spec) is not None:
        return written
    from msgspec.structs import replace

    from muster.storage.sources import holds_files

    if not holds_files(spec):
        return written
    return replace(written, spec=replace(spec, env={**spec.env, ENTRYPOINT: chosen}))


def overrides_from(fields: Mapping[str, Any]) -> RunOverrides:
    """Overrides from keyword arguments, less those that are None. Raises InvalidInput."""
    from muster.spec.overrides import overrides_from_mapping

    return overrides_from_mapping({k: v for k, v in fields.items() if v is not None})
