"""The store contract: what Muster records of jobs and runs, whatever database keeps it.

A `Store` is sets of use cases: Jobs, runs, their event logs, and the leases of the processes that
drive runs; schedules; events for listeners; accounts (users, projects, tokens), secrets, and the
audit log. Each method is one transaction: it happens completely or not at all, and other processes
see it at once. Any thread may call it. Every implementation passes the contract tests in
`tests/store/`.

Times are epoch seconds in UTC; a store rounds them to whole microseconds. Jobs and runs belong to a
project: names, their numbers, `last` and the reuse of a Job with the same content never cross
projects. Ids are unique everywhere.

Besides the errors that a method names, each may raise StoreError: StoreBusy and StoreFull are
temporary, the others are not. Values that cannot be stored, such as an unknown field or data that
are no JSON, are bugs of the caller: they raise some other error, and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from muster.identity import Owner
from muster.store.records import (
    EventRecord,
    JobEventRecord,
    JobRecord,
    Lease,
    NodeFilter,
    NodeRecord,
    PendingRequests,
    RunFilter,
    RunRecord,
    RunStep,
    RunSummary,
)

if TYPE_CHECKING:  # most commands do not use them
    from muster.caller import Role
    from muster.lifecycle.schedule import Running
    from muster.store.account_records import (
        AuditEntry,
        AuditFilter,
        Credential,
        MemberRecord,
        ProjectRecord,
        PublicKeyRecord,
        SecretRecord,
        TokenRecord,
        UserRecord,
    )
    from muster.store.notification_records import (
        ClaimedDelivery,
        DeliveryRecord,
        DeliveryState,
        NotificationRecord,
    )
    from muster.store.object_records import (
        AccessLinkRecord,
        BucketRecord,
        BucketUse,
        Condition,
        ObjectRange,
        ObjectRecord,
        PieceRecord,
        UploadRecord,
    )
    from muster.store.outbox_records import ListenerKind, Pending
    from muster.store.resource_records import ResourceFilter, ResourceRecord
    from muster.store.schedule_records import FiringRecord, ScheduleRecord, WebhookRecord

#: Makes the records of a run from its Job, its number and its name.
RunBuilder = Callable[[JobRecord, int, str], tuple[RunRecord, Sequence[NodeRecord]]]


class Jobs(Protocol):
    """Jobs and their event logs."""

    def insert(self, job: JobRecord) -> JobRecord:
        """Add a Job under the next version of its name. Returns the stored Job: another process may
        have added the same content, or edited this Job, before. Raises InvalidInput if the Job is
        deleted, NotFound if the one with its id is of another project."""
        ...

    def by_content(self, project: str, content_hash: str) -> JobRecord | None:
        """The newest Job with this content that is not deleted; None if there is none."""
        ...

    def find(self, project: str, text: str) -> JobRecord:
        """A Job by id, name (the newest version that is not deleted, if there is one),
        `name@version`, display name, id prefix of at least 4 characters, or OCID that ends in the
        id.

        Raises NotFound, or InvalidInput if several Jobs match.
        """
        ...

    def listing(
        self,
        project: str,
        *,
        deleted: bool = False,
        tags: Mapping[str, str | None] | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[JobRecord]:
        """Jobs, newest first. deleted: include deleted ones. tags: required tags; None matches any
        value. limit: only the first ones. before: only Jobs older than the one with this id.

        A corrupt record gives a placeholder, so that it does not hide the others.
        """
        ...

    def update(
        self, before: JobRecord, job: JobRecord, *, by: str, changes: Mapping[str, Any]
    ) -> None:
        """Store the changes of a Job, and log who made them. Raises InvalidInput if the Job was
        changed or deleted since `before` was read, NotFound if it does not exist."""
        ...

    def delete(self, job_id: str, *, by: str, now: float) -> bool:
        """Mark a Job as deleted, so that no further run of it starts. False if it is deleted
        already. Raises InvalidInput if it has runs that have not ended, or schedules, NotFound."""
        ...

    def delete_unused(self, job_id: str) -> None:
        """Remove a Job and its event log unless it has runs or schedules."""
        ...

    def check_ended(self, job_ids: Sequence[str]) -> None:
        """Raises InvalidInput with every run of these Jobs that has not ended, and every schedule
        of them."""
        ...

    def artifact_in_use(self, sha256: str) -> bool:
        """Whether a Job of any project that is not deleted uses this artifact."""
        ...

    def has_artifact(self, project: str, sha256: str) -> bool:
        """Whether a Job of a project that is not deleted uses this artifact."""
        ...

    def artifacts_in_use(self) -> set[str]:
        """The artifacts of all Jobs that are not deleted. Runs that have not ended are of such
        Jobs."""
        ...

    def events(self, job_id: str, seq: int = 0) -> list[JobEventRecord]:
        """Entries of the Job's event log after number `seq`, in order."""
        ...


class Runs(Protocol):
    """Runs, their nodes, and what users request of them."""

    def insert(
        self,
        job: JobRecord,
        build: RunBuilder,
        owner: Owner | None = None,
        expires_at: float | None = None,
    ) -> RunRecord:
        """Store a run, its nodes, its lease and, if it is new, its Job in one durable transaction.

        Runs are numbered within the name of their Job, from 1; no number is given twice, not even
        that of a deleted run. The name of a run is `<job>-<number>`. owner: the process that is to
        drive the run, which has its first lease (`Lease.first`); None: nobody yet. expires_at: of
        that lease.
        """
        ...

    def get(self, run_id: str) -> RunRecord:
        """The run with this id, which must be complete. Raises NotFound, CorruptRecord."""
        ...

    def summary(self, run_id: str) -> RunSummary:
        """The summary of a run; its record may be corrupt. Raises NotFound."""
        ...

    def nodes(self, run_id: str, chosen: NodeFilter | None = None) -> list[NodeRecord]:
        """The nodes of a run, in rank order. Those of an array have no record before they start.
        chosen: None for all. Raises CorruptRecord."""
        ...

    def replica_states(self, run_id: str, group: str, nodes: int) -> dict[str, int]:
        """The number of a group's replicas by the states of their nodes, of those that have
        started: `FAILED,STOPPED` -> 3. Each state once, in alphabetical order. nodes: those of each
        replica."""
        ...

    def find(self, project: str, text: str) -> RunRecord:
        """A run by name, id, display name, id prefix of at least 4 characters, OCID that ends in
        the id, or `last` for the newest.

        Raises NotFound, InvalidInput if several runs match, CorruptRecord.
        """
        ...

    def find_id(self, project: str, text: str) -> str:
        """The id of the run that `find` finds; its record may be corrupt."""
        ...

    def listing(self, project: str | None, chosen: RunFilter) -> list[RunSummary]:
        """Summaries of runs, newest first. project: None for all."""
        ...

    def records(self, project: str | None, chosen: RunFilter) -> list[RunRecord]:
        """Records of runs, newest first. project: None for all. Raises CorruptRecord."""
        ...

    def state_counts(self) -> dict[str, int]:
        """The number of runs in each state, of all projects."""
        ...

    def first_owner(self) -> str | None:
        """Who has started the oldest run, of all projects; None if there is none."""
        ...

    def live(self) -> list[RunSummary]:
        """Runs of all projects that have not ended, in no order."""
        ...

    def needing_supervisor(self) -> list[str]:
        """Ids of the runs of all projects that a process should be driving, in no order: all that
        have not ended, except those that are suspended and not requested to be canceled."""
        ...

    def expired(self, now: float) -> list[str]:
        """Ids of the runs whose `ttl_after_finished` is over."""
        ...

    def save(self, *steps: RunStep) -> None:
        """Record steps of runs in one transaction: all of them or, if it raises, none.

        Durable if one of the runs has ended. Raises LeaseLost if another process has the lease of
        one of them, NotFound.
        """
        ...

    def end_corrupt(self, lease: Lease, why: str, now: float) -> None:
        """End a run that cannot be driven because its record is corrupt. Nothing if it has ended.
        Raises LeaseLost, NotFound."""
        ...

    def check_writable(self, run_id: str) -> None:
        """Raises StoreError if the run's record cannot be written, before its files are deleted."""
        ...

    def delete(self, run_id: str) -> None:
        """Delete a run, its nodes, its events and its lease."""
        ...

    def request(
        self, run_id: str, kind: Literal["cancel", "suspend"], why: str, now: float
    ) -> bool:
        """Record a request to cancel or to suspend a run. False if the run has ended or does not
        exist, or the request is pending already."""
        ...

    def request_scale(self, run_id: str, group: str, replicas: int, why: str, now: float) -> bool:
        """Record a request to scale a group. It replaces an earlier one for that group. False if
        the run has ended or does not exist, or the last request was for the same number."""
        ...

    def pending_requests(self, run_id: str) -> PendingRequests:
        """The pending requests of a run. Raises CorruptRecord."""
        ...

    def with_requests(self, run_ids: Collection[str]) -> list[str]:
        """Those of these runs that have pending requests, in no order."""
        ...


class Events(Protocol):
    """The event logs of runs. Entries are numbered from 1 within their run, without gaps."""

    def since(self, run_id: str, seq: int = 0, limit: int | None = None) -> list[EventRecord]:
        """Entries after number `seq`, in order. limit: only the first ones. Raises
        CorruptRecord."""
        ...

    def count(self, run_id: str, kind: str) -> int:
        """The number of entries of a kind."""
        ...

    def count_since_last_node_entry(self, run_id: str, kind: str, after: float = 0.0) -> int:
        """The number of entries of a kind after the last entry about nodes. after: without those
        that were recorded by then (epoch seconds)."""
        ...

    def last(self, run_id: str) -> int:
        """The number of the newest entry; 0 if there is none."""
        ...

    def last_time(self, run_id: str, kind: str | None = None) -> float:
        """When the newest entry was recorded, or the newest of a kind (epoch seconds); 0 if there
        is none."""
        ...


class Leases(Protocol):
    """Who drives which run. A lease has an owner, a token that grows with each owner, and perhaps
    an expiry.

    Leases expire where processes of any host may drive a run: a process renews its leases well
    within their term, and stops to drive a run whose lease it could not renew. Otherwise, a lease
    lasts while its owner lives.

    A process that drives a run passes its lease with everything that it records of it. Once another
    process has taken the lease, the former owner can record nothing more.
    """

    @property
    def term(self) -> float | None:
        """Seconds that a lease lasts after it was taken or renewed; None: while its owner lives."""
        ...

    def now(self) -> float:
        """The time by which leases expire (epoch seconds): that of the server of the database, so
        that the clocks of hosts may differ, or that of this host if there is no server."""
        ...

    def take(
        self,
        run_id: str,
        owner: Owner,
        now: float,
        *,
        expires_at: float | None = None,
        alone: bool = False,
        force: bool = False,
    ) -> Lease:
        """Take the lease of a run that nobody has: it was never taken, was released, or has
        expired. Its owner may take it again, with the next token.

        expires_at: None for a lease that its owner keeps while it lives. alone: the caller holds
        the lock on the run's folder, so that an owner on the same host is gone. force: take it from
        any owner, which a user says is gone. Raises LeaseHeld if another process has the lease,
        NotFound.
        """
        ...

    def renew(self, leases: Collection[Lease], expires_at: float) -> None:
        """Extend those of these leases that their owners still have."""
        ...

    def lost(self, leases: Collection[Lease]) -> list[Lease]:
        """Those of these leases that their owners do not have any more, in no order: another
        process has taken them, or the run was deleted."""
        ...

    def release(self, lease: Lease) -> None:
        """Give a lease up, so that any process may take it. Nothing if another process has it."""
        ...

    def get(self, run_id: str) -> Lease | None:
        """The lease of a run; None if nobody has it."""
        ...


class Accounts(Protocol):
    """Users, projects, their members, and tokens. Names are case-insensitive."""

    def create_first(self, user: UserRecord, token: TokenRecord, digest: bytes) -> bool:
        """Add the first user, with a token. False if there is a user already: of several processes
        that start at once, one adds it."""
        ...

    def create_user(self, user: UserRecord) -> None:
        """Add a user. Raises InvalidInput if its name, or its subject at its issuer, is taken."""
        ...

    def change_user(self, name: str, changes: Mapping[str, Any]) -> UserRecord:
        """Change `display_name`, `admin`, `disabled`, or `issuer` and `subject`. Raises NotFound,
        and InvalidInput if no person would be left who administers the server and is not disabled,
        or the subject is another user's."""
        ...

    def user(self, name: str) -> UserRecord:
        """The user with this name. Raises NotFound."""
        ...

    def user_of_subject(self, issuer: str, subject: str) -> UserRecord | None:
        """The user whom an issuer knows by this subject; None if there is none."""
        ...

    def users(self) -> list[UserRecord]:
        """All users, by name."""
        ...

    def create_project(self, project: ProjectRecord) -> None:
        """Add a project. Raises InvalidInput if there is one with this name."""
        ...

    def change_project(self, name: str, description: str) -> ProjectRecord:
        """Describe a project. Raises NotFound."""
        ...

    def delete_project(self, name: str) -> None:
        """Delete a project with its members, tokens and secrets. Raises NotFound, and InvalidInput
        if it has Jobs or runs, also deleted ones, or is the default one."""
        ...

    def project(self, name: str) -> ProjectRecord:
        """The project with this name. Raises NotFound."""
        ...

    def projects(self) -> list[ProjectRecord]:
        """All projects, by name. `default` is there from the start."""
        ...

    def set_member(self, member: MemberRecord) -> None:
        """Add a member, or change its role. Raises NotFound if there is no such project or user."""
        ...

    def set_group_roles(self, user: str, roles: Mapping[str, Role]) -> None:
        """Replace what follows from a user's groups (`MemberRecord.from_groups`) by these roles,
        by project. Where the user is a member in another way, that stays; projects that do not
        exist are left out."""
        ...

    def remove_member(self, project: str, user: str) -> bool:
        """Remove a member, and revoke nothing: its tokens give no rights in the project any more.
        False if it is none."""
        ...

    def members(self, *, project: str | None = None, user: str | None = None) -> list[MemberRecord]:
        """The members of a project, or the projects of a user, by name."""
        ...

    def create_token(self, token: TokenRecord, digest: bytes) -> None:
        """Add a token. digest: of its secret. Raises NotFound if there is no such user or
        project."""
        ...

    def token(self, token_id: str) -> TokenRecord:
        """The token with this id. Raises NotFound."""
        ...

    def tokens(self, *, user: str | None = None, project: str | None = None) -> list[TokenRecord]:
        """Tokens, newest first, with those that are expired or revoked. project: those that can be
        used in this project only."""
        ...

    def revoke_token(self, token_id: str, now: float) -> bool:
        """Revoke a token. False if it is revoked already. Raises NotFound."""
        ...

    def use_token(self, token_id: str, now: float) -> None:
        """Note when a token was used last."""
        ...

    def credential(self, token_id: str) -> Credential | None:
        """What is known of who shows this token; None if there is no such token."""
        ...


class Keys(Protocol):
    """The public keys of users."""

    def insert(self, key: PublicKeyRecord) -> None:
        """Add a key. Raises InvalidInput if it is there already, of whomever, NotFound if there is
        no such user."""
        ...

    def delete(self, fingerprint: str) -> bool:
        """Delete a key. False if there is none."""
        ...

    def get(self, fingerprint: str) -> PublicKeyRecord:
        """The key with this fingerprint. Raises NotFound."""
        ...

    def listing(self, user: str) -> list[PublicKeyRecord]:
        """The keys of a user, the oldest first."""
        ...


class Resources(Protocol):
    """What the OCI API shows: jobs, job runs, projects, log groups and so on, by kind and id."""

    def insert(self, resource: ResourceRecord) -> bool:
        """Add a resource. False if there is one of this kind with this id."""
        ...

    def get(self, kind: str, resource_id: str) -> ResourceRecord:
        """The resource of this kind with this id. Raises NotFound, CorruptRecord."""
        ...

    def listing(self, chosen: ResourceFilter) -> list[ResourceRecord]:
        """Resources of a project and kind, in the order of the filter, then of their ids."""
        ...

    def update(self, before: ResourceRecord, after: ResourceRecord) -> ResourceRecord:
        """Change the project, name, state, run or data. Raises Conflict if it was changed since
        `before` was read, NotFound."""
        ...

    def delete(self, kind: str, resource_id: str) -> bool:
        """Delete a resource. False if there is none."""
        ...

    def in_state(
        self, kind: str, state: str, created_by_then: float | None = None
    ) -> list[ResourceRecord]:
        """Resources of a kind in all projects that have a state of their own, which is not that of
        a run, the oldest first. created_by_then: only those (epoch seconds)."""
        ...

    def forget_deleted(self, until: float) -> int:
        """Delete resources whose state is DELETED and that were changed last by this time (epoch
        seconds). Returns their number."""
        ...


class Buckets(Protocol):
    """Buckets of object storage, and the links that give access to them. Names of buckets are
    unique in all projects."""

    def insert(self, bucket: BucketRecord) -> bool:
        """Add a bucket. False if there is one with this name, of whatever project."""
        ...

    def get(self, name: str) -> BucketRecord:
        """The bucket with this name, of whatever project. Raises NotFound, CorruptRecord."""
        ...

    def by_id(self, bucket_id: str) -> BucketRecord:
        """The bucket with this id. Raises NotFound, CorruptRecord."""
        ...

    def listing(
        self, project: str, *, limit: int | None = None, after: str | None = None
    ) -> list[BucketRecord]:
        """The buckets of a project, by name. limit: only the first ones. after: only those after
        this name."""
        ...

    def use(self, bucket_id: str) -> BucketUse:
        """What the objects of a bucket take."""
        ...

    def update(self, before: BucketRecord, after: BucketRecord) -> BucketRecord:
        """Change the name, the project or the settings. Raises Conflict if it was changed since
        `before` was read, or the name is taken; NotFound."""
        ...

    def delete(self, bucket_id: str) -> bool:
        """Delete a bucket. False if there is none. Raises Conflict if it has objects, uploads or
        links."""
        ...

    def insert_link(self, link: AccessLinkRecord) -> None:
        """Add a link. Raises NotFound if there is no such bucket."""
        ...

    def link(self, bucket_id: str, link_id: str) -> AccessLinkRecord:
        """The link of a bucket with this id. Raises NotFound, CorruptRecord."""
        ...

    def link_by_digest(self, digest: str) -> AccessLinkRecord:
        """The link whose secret has this digest. Raises NotFound, CorruptRecord."""
        ...

    def links(
        self, bucket_id: str, *, limit: int | None = None, after: str | None = None
    ) -> list[AccessLinkRecord]:
        """The links of a bucket, by id. limit: only the first ones. after: only those after this
        id."""
        ...

    def delete_link(self, bucket_id: str, link_id: str) -> bool:
        """Delete a link. False if there is none."""
        ...


class Objects(Protocol):
    """Objects in buckets, and uploads of objects in parts. Their bytes are in files
    (`storage.objects`): a file is there before its piece is recorded, and what a method returns as
    a list of texts are files that no record names any more.

    Each change is recorded as an event (`Outbox`) in the same transaction.

    Of several changes of one name at once, each sees what the one before has made of it: of those
    on the condition that there is no object yet, one succeeds.
    """

    def put(
        self,
        record: ObjectRecord,
        pieces: Sequence[PieceRecord],
        condition: Condition = ...,
    ) -> list[str]:
        """Give a name an object, in place of the one that it has. Returns the files of that one.
        Raises ConditionFailed, or NotFound if there is no such bucket."""
        ...

    def complete(
        self,
        upload: UploadRecord,
        record: ObjectRecord,
        pieces: Sequence[PieceRecord],
        condition: Condition = ...,
    ) -> list[str]:
        """End an upload: give its name the object of these parts, whose `content` is the id of the
        upload. Returns the files of other parts, and of the object before. Raises ConditionFailed,
        Conflict if one of the parts was replaced meanwhile, NotFound if there is no such upload."""
        ...

    def get(self, bucket_id: str, name: str) -> ObjectRecord:
        """The object with this name. Raises NotFound, CorruptRecord."""
        ...

    def pieces(self, content: str) -> list[PieceRecord]:
        """The pieces of an object, or the parts of an upload, by their numbers."""
        ...

    def listing(self, chosen: ObjectRange) -> list[ObjectRecord]:
        """Objects by name."""
        ...

    def delete(
        self, bucket_id: str, name: str, now: float, condition: Condition = ...
    ) -> list[str]:
        """Delete an object. Returns its files. now: epoch seconds. Raises ConditionFailed,
        NotFound."""
        ...

    def rename(
        self,
        record: ObjectRecord,
        new_name: str,
        modified_at: float,
        *,
        source: Condition = ...,
        target: Condition = ...,
    ) -> tuple[ObjectRecord, list[str]]:
        """Give an object another name of its bucket, in place of the object that this name has.
        Returns the object as it is then, and the files of the replaced one. source, target: what
        is to be under the old and the new name. Raises ConditionFailed, or NotFound if the object
        was replaced or deleted."""
        ...

    def used_files(self, files: Sequence[str]) -> set[str]:
        """Those of these files that a record names."""
        ...

    def begin_upload(self, upload: UploadRecord, condition: Condition = ...) -> None:
        """Add an upload without parts. condition: of the object that has the name now. Raises
        ConditionFailed, or NotFound if there is no such bucket."""
        ...

    def upload(self, bucket_id: str, name: str, upload_id: str) -> UploadRecord:
        """The upload of an object with this id. Raises NotFound, CorruptRecord."""
        ...

    def uploads(
        self, bucket_id: str, *, limit: int | None = None, after: str | None = None
    ) -> list[UploadRecord]:
        """The uploads of a bucket, by id. limit: only the first ones. after: only those after this
        id."""
        ...

    def put_part(self, part: PieceRecord) -> list[str]:
        """Add a part to an upload, in place of the one with its number. Returns the file of that
        one. Raises NotFound if the upload was completed or aborted."""
        ...

    def abort_upload(self, upload: UploadRecord) -> list[str]:
        """Delete an upload and its parts. Returns their files. Raises NotFound."""
        ...


class Secrets(Protocol):
    """The projects' secrets. Values are encrypted by who stores them."""

    def set(self, project: str, name: str, sealed: str, *, by: str, now: float) -> SecretRecord:
        """Add a secret, or replace its value. Raises NotFound if there is no such project."""
        ...

    def delete(self, project: str, name: str) -> bool:
        """Delete a secret and its value. False if there is none."""
        ...

    def listing(self, project: str) -> list[SecretRecord]:
        """The secrets of a project, by name."""
        ...

    def values(self, project: str, names: Collection[str]) -> dict[str, str]:
        """The encrypted values of these secrets, of those that there are."""
        ...


class Audit(Protocol):
    """The audit log. Entries are never changed; the database refuses that, and their deletion
    outside of `delete_before`."""

    def append(self, *entries: AuditEntry) -> None:
        """Record entries; their `seq` is given here. They are durable when anything that is
        recorded after them is: what a caller does is recorded before it is done."""
        ...

    def listing(self, chosen: AuditFilter) -> list[AuditEntry]:
        """Entries, newest first; with `after`, oldest first."""
        ...

    def delete_before(self, time: float) -> int:
        """Delete entries that were recorded before a time. Returns their number."""
        ...


class Schedules(Protocol):
    """Schedules, and what was done at their times. Several servers may act on them at once: what
    is done at a time is decided once (`decide`), and what was decided is carried out by whoever
    decided it or, if that server was killed, by another one (`unsettled`)."""

    def insert(self, schedule: ScheduleRecord, job: JobRecord) -> ScheduleRecord:
        """Add a schedule and, if it is new, its Job. Raises InvalidInput if the name is taken, or
        the Job is deleted."""
        ...

    def get(self, schedule_id: str) -> ScheduleRecord:
        """The schedule with this id. Raises NotFound, CorruptRecord."""
        ...

    def find(self, project: str, text: str) -> ScheduleRecord:
        """The schedule with this name or id. Raises NotFound, CorruptRecord."""
        ...

    def listing(
        self, project: str, *, limit: int | None = None, after: str | None = None
    ) -> list[ScheduleRecord]:
        """The schedules of a project, by name. limit: only the first ones. after: only those after
        this name."""
        ...

    def update(self, before: ScheduleRecord, after: ScheduleRecord) -> ScheduleRecord:
        """Change the Job, the timing, the next time, or whether it is paused. Raises Conflict if
        the schedule was changed since `before` was read, InvalidInput if the Job is deleted,
        NotFound."""
        ...

    def delete(self, schedule_id: str) -> bool:
        """Delete a schedule and what is known of its times. False if there is none."""
        ...

    def due(self, now: float) -> list[ScheduleRecord]:
        """The schedules of all projects whose next time is now or was before, the earliest
        first."""
        ...

    def next_at(self) -> float | None:
        """The earliest next time of all schedules; None if there is none."""
        ...

    def decide(
        self,
        schedule: ScheduleRecord,
        next_at: float | None,
        firing: FiringRecord,
        *entries: AuditEntry,
    ) -> bool:
        """Record what is to be done at a time of a schedule, and the next time to look at, with
        entries of the audit log about it. False if that was decided already, or the schedule was
        changed or deleted since it was read."""
        ...

    def decide_event(
        self,
        schedule: ScheduleRecord,
        firing: FiringRecord,
        *entries: AuditEntry,
        seq: int | None = None,
    ) -> bool:
        """Record what is to be done about `firing.event`, with entries of the audit log about it.
        seq: of an entry of the outbox, which is handled with that; None: it is a request to the
        webhook. If something else was done at its time, it is recorded at the next free one. False
        if that event is handled already or is known (`delivered`), if something was decided about
        another event since the schedule was read, or if that was changed or deleted."""
        ...

    def pass_over(self, schedule_id: str, seq: int) -> None:
        """Do nothing about an entry of the outbox."""
        ...

    def delivered(self, schedule_id: str, delivery: str) -> tuple[bool, str | None]:
        """Whether a request to the webhook of a schedule is known, and the id of its run; None if
        it has none. Requests of the last `KNOWN_DELIVERIES` seconds are."""
        ...

    def webhook(self, schedule_id: str) -> WebhookRecord | None:
        """The webhook of a schedule; None if it has none."""
        ...

    def set_webhook(self, webhook: WebhookRecord) -> None:
        """Give a schedule a webhook, or change its secret. Raises NotFound."""
        ...

    def settle(self, firing: FiringRecord) -> bool:
        """Record what has become of a run that was to be started. False if that is recorded."""
        ...

    def note(self, firing: FiringRecord) -> None:
        """Record what was done besides the times of the schedule."""
        ...

    def unsettled(self, until: float) -> list[FiringRecord]:
        """Runs of all schedules that were to be started, and of which nothing more is recorded;
        those that were decided by then, the earliest first."""
        ...

    def firings(
        self, schedule_id: str, *, limit: int | None = None, before: float | None = None
    ) -> list[FiringRecord]:
        """What was done at the times of a schedule, newest first. limit: only the first ones.
        before: only earlier times."""
        ...

    def running(self, schedule_id: str) -> list[Running]:
        """The runs of a schedule that have not ended, the newest first, with those that are about
        to be recorded."""
        ...


class Outbox(Protocol):
    """What has happened, for listeners. An event is recorded in the transaction of what it reports,
    if somebody listens to its type in its project. Who handles it for a listener records that in
    the transaction of what is done about it."""

    def pending(self, kind: ListenerKind, *, limit: int) -> list[Pending]:
        """Events that listeners of this kind have not handled, the earliest first."""
        ...

    def forget(self, until: float) -> None:
        """Delete what no listener will handle any more, and deliveries that were given up by this
        time (epoch seconds)."""
        ...


class Notifications(Protocol):
    """Notifications, which are listeners, and the deliveries of their events. Several servers may
    deliver at once: each delivery is claimed by one of them and, if that was killed, by another one
    when the claim has expired."""

    def insert(self, notification: NotificationRecord) -> NotificationRecord:
        """Add a notification. Raises InvalidInput if the name is taken."""
        ...

    def get(self, notification_id: str) -> NotificationRecord:
        """The notification with this id. Raises NotFound, CorruptRecord."""
        ...

    def find(self, project: str, text: str) -> NotificationRecord:
        """The notification with this name or id. Raises NotFound, CorruptRecord."""
        ...

    def listing(
        self, project: str, *, limit: int | None = None, after: str | None = None
    ) -> list[NotificationRecord]:
        """The notifications of a project, by name. limit: only the first ones. after: only those
        after this name."""
        ...

    def update(self, before: NotificationRecord, after: NotificationRecord) -> NotificationRecord:
        """Change a notification, but not its name and who created it. Raises Conflict if it was
        changed since `before` was read, NotFound."""
        ...

    def delete(self, notification_id: str) -> bool:
        """Delete a notification and its deliveries. False if there is none."""
        ...

    def claim(self, now: float, until: float, *, limit: int) -> list[ClaimedDelivery]:
        """Claim deliveries that are due, so that no other server attempts them before `until`. Of
        those about one subject, only the first: the next ones wait for it. now: `Leases.now`."""
        ...

    def settle(
        self,
        delivery: ClaimedDelivery,
        state: DeliveryState,
        answer: str,
        now: float,
        due_at: float | None = None,
    ) -> bool:
        """Record what has become of an attempt. due_at: when the next one is, if it stays pending.
        False if the claim has expired, and another server has it."""
        ...

    def drop(self, delivery: ClaimedDelivery) -> None:
        """Forget a delivery: the notification does not want this event."""
        ...

    def deliveries(
        self,
        project: str,
        *,
        notification_id: str | None = None,
        state: DeliveryState | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[DeliveryRecord]:
        """Deliveries, those of the newest events first. limit: only the first ones. before: only
        those of events before the one with this `seq`."""
        ...

    def retry(self, project: str, now: float, *, notification_id: str | None = None) -> int:
        """Have deliveries that were given up attempted again, as if for the first time. Returns
        their number."""
        ...


class Store(Protocol):
    """See the module."""

    @property
    def jobs(self) -> Jobs: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def events(self) -> Events: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def accounts(self) -> Accounts: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def resources(self) -> Resources: ...
    @property
    def buckets(self) -> Buckets: ...
    @property
    def objects(self) -> Objects: ...
    @property
    def secrets(self) -> Secrets: ...
    @property
    def audit(self) -> Audit: ...
    @property
    def schedules(self) -> Schedules: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def notifications(self) -> Notifications: ...

    @property
    def replaced(self) -> bool:
        """Whether the open database was deleted or replaced: nothing can be recorded in it any
        more."""
        ...

    @property
    def reads_at_once(self) -> bool:
        """Whether to read a few rows waits neither for another process nor for a network, so that
        an event loop may do it."""
        ...

    def close(self) -> None:
        """Close what is open. The store opens it again when it is used."""
        ...
