"""Policies, groups and dynamic groups. What they have in common is written once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from muster.caller import Role
from muster.errors import AlreadyExists, Conflict, InvalidInput, NotFound, Problem
from muster.spec.wording import close_to
from muster.store.policy_records import (
    DynamicGroupRecord,
    GroupMember,
    GroupRecord,
    PolicyRecord,
    PolicyRevision,
    PolicyState,
)
from muster.store.records import CorruptRecord, decoded, read_record
from muster.store.sql.accounts import SqlAccounts, lock_accounts, project_in, user_in
from muster.store.sql.database import Connection, Database, Row
from muster.store.times import micros, seconds

T = TypeVar("T", bound=Struct)
R = TypeVar("R", PolicyRecord, GroupRecord, DynamicGroupRecord)

#: The group of those who administer the server.
ADMINISTRATORS = "Administrators"
_MEMBER = 'group_id AS "group", user_name AS "user", added_at, added_by'
_TIMES = ("created_at", "updated_at", "changed_at", "added_at")
_HINT = "delete it, and create it again"


class _Table(Struct, Generic[R], frozen=True):
    """Where records of a kind are."""

    name: str
    record: type[R]
    #: In messages.
    kind: str
    #: The fields that change, besides the version, when and by whom.
    changes: tuple[str, ...]

    @property
    def columns(self) -> str:
        return ", ".join(self.record.__struct_fields__)

    def read(self, row: Row) -> R:
        return _record(self.record, row, f"the record of {self.kind} {row['name']}")


_POLICIES = _Table("policies", PolicyRecord, "policy", ("description", "statements"))
_GROUPS = _Table("user_groups", GroupRecord, "group", ("description",))
_DYNAMIC_GROUPS = _Table(
    "dynamic_groups", DynamicGroupRecord, "dynamic group", ("description", "rule")
)


class SqlPolicies:
    """See `store.protocols.policies.Policies`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    # Policies

    def create_policy(self, policy: PolicyRecord) -> None:
        """See `Policies.create_policy`."""

        def check(connection: Connection) -> PolicyRecord:
            where = project_in(connection, policy.compartment).name
            sql = "SELECT 1 FROM policies WHERE compartment = ? AND lower(name) = lower(?)"
            if connection.execute(sql, (where, policy.name)).fetchone() is not None:
                text = f"compartment {where} has a policy {policy.name!r} already"
                raise AlreadyExists(Problem("", text, "choose another name, or change that one"))
            return replace(policy, compartment=where)

        self._create(_POLICIES, policy, check, _keep_revision)

    def change_policy(self, before: PolicyRecord, after: PolicyRecord) -> PolicyRecord:
        """See `Policies.change_policy`."""
        return self._change(_POLICIES, before, after, _keep_revision)

    def delete_policy(self, policy: PolicyRecord) -> None:
        """See `Policies.delete_policy`."""
        self._delete(_POLICIES, policy)

    def policy(self, policy_id: str) -> PolicyRecord:
        """See `Policies.policy`."""
        return self._by_id(_POLICIES, policy_id)

    def policy_named(self, compartment: str, name: str) -> PolicyRecord:
        """See `Policies.policy_named`."""
        return _named(_POLICIES, name, self.policies(compartment))

    def policies(self, compartment: str | None = None) -> list[PolicyRecord]:
        """See `Policies.policies`."""
        if compartment is None:
            return self._all(_POLICIES)
        return self._all(_POLICIES, "lower(compartment) = lower(?)", compartment)

    def revisions(self, policy_id: str) -> list[PolicyRevision]:
        """See `Policies.revisions`."""
        sql = (
            'SELECT policy_id AS "policy", version, description, statements, changed_at, '
            "changed_by FROM policy_revisions WHERE policy_id = ? ORDER BY version DESC"
        )
        rows = self._db.read(sql, (policy_id,))
        if not rows:
            self.policy(policy_id)  # raises NotFound
        what = f"a revision of policy {policy_id}"
        return [_record(PolicyRevision, row, what) for row in rows]

    # Groups

    def create_group(self, group: GroupRecord) -> None:
        """See `Policies.create_group`."""
        self._create_group(_GROUPS, group)

    def change_group(self, before: GroupRecord, after: GroupRecord) -> GroupRecord:
        """See `Policies.change_group`."""
        return self._change(_GROUPS, before, after)

    def delete_group(self, group: GroupRecord) -> None:
        """See `Policies.delete_group`."""

        def check(connection: Connection) -> None:
            sql = "SELECT user_name FROM group_members WHERE group_id = ? ORDER BY user_name"
            if users := [str(row[0]) for row in connection.execute(sql, (group.id,)).fetchall()]:
                named = f"{', '.join(users[:3])}{', ...' if len(users) > 3 else ''}"
                text = f"group {group.name} has users, and cannot be deleted: {named}"
                raise InvalidInput(Problem("", text, "remove them first"))

        self._delete(_GROUPS, group, check)

    def group(self, group_id: str) -> GroupRecord:
        """See `Policies.group`."""
        return self._by_id(_GROUPS, group_id)

    def group_named(self, name: str) -> GroupRecord:
        """See `Policies.group_named`."""
        return _named(_GROUPS, name, self.groups())

    def groups(self) -> list[GroupRecord]:
        """See `Policies.groups`."""
        return self._all(_GROUPS)

    def groups_of(self, user: str) -> list[GroupRecord]:
        """See `Policies.groups_of`."""
        of_user = "id IN (SELECT group_id FROM group_members WHERE lower(user_name) = lower(?))"
        return self._all(_GROUPS, of_user, user)

    def add_user(self, member: GroupMember) -> bool:
        """See `Policies.add_user`."""
        sql = (
            "INSERT INTO group_members (group_id, user_name, added_at, added_by) "
            "VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1"
        )
        values = (micros(member.added_at), member.added_by)

        def step(connection: Connection) -> bool:
            lock_accounts(connection)
            user = user_in(connection, member.user).name
            found = "SELECT 1 FROM user_groups WHERE id = ?"
            if connection.execute(found, (member.group,)).fetchone() is None:
                raise _missing(_GROUPS, member.group)
            return bool(connection.execute(sql, (member.group, user, *values)).fetchall())

        return self._db.write(step, durable=True)

    def remove_user(self, group_id: str, user: str) -> bool:
        """See `Policies.remove_user`."""
        sql = (
            "DELETE FROM group_members WHERE group_id = ? AND lower(user_name) = lower(?) "
            "RETURNING 1"
        )

        def step(connection: Connection) -> bool:
            lock_accounts(connection)
            return bool(connection.execute(sql, (group_id, user)).fetchall())

        return self._db.write(step, durable=True)

    def group_members(
        self, *, group: str | None = None, user: str | None = None
    ) -> list[GroupMember]:
        """See `Policies.group_members`."""
        given = {"group_id = ?": group, "lower(user_name) = lower(?)": user}
        chosen = {test: value for test, value in given.items() if value is not None}
        where = f" WHERE {' AND '.join(chosen)}" if chosen else ""
        sql = f"SELECT {_MEMBER} FROM group_members{where} ORDER BY group_id, lower(user_name)"
        rows = self._db.read(sql, [*chosen.values()])
        return [
            _record(GroupMember, row, f"the record of {row['user']} in a group") for row in rows
        ]

    # Dynamic groups

    def create_dynamic_group(self, group: DynamicGroupRecord) -> None:
        """See `Policies.create_dynamic_group`."""
        self._create_group(_DYNAMIC_GROUPS, group)

    def change_dynamic_group(
        self, before: DynamicGroupRecord, after: DynamicGroupRecord
    ) -> DynamicGroupRecord:
        """See `Policies.change_dynamic_group`."""
        return self._change(_DYNAMIC_GROUPS, before, after)

    def delete_dynamic_group(self, group: DynamicGroupRecord) -> None:
        """See `Policies.delete_dynamic_group`."""
        self._delete(_DYNAMIC_GROUPS, group)

    def dynamic_group(self, group_id: str) -> DynamicGroupRecord:
        """See `Policies.dynamic_group`."""
        return self._by_id(_DYNAMIC_GROUPS, group_id)

    def dynamic_group_named(self, name: str) -> DynamicGroupRecord:
        """See `Policies.dynamic_group_named`."""
        return _named(_DYNAMIC_GROUPS, name, self.dynamic_groups())

    def dynamic_groups(self) -> list[DynamicGroupRecord]:
        """See `Policies.dynamic_groups`."""
        return self._all(_DYNAMIC_GROUPS)

    # Decisions

    def generation(self) -> int:
        """See `Policies.generation`."""
        (row,) = self._db.read("SELECT value FROM policy_generation")
        return int(row[0])

    def load(self) -> PolicyState:
        """See `Policies.load`. Reading takes no lock: it is repeated if something was changed
        meanwhile."""
        accounts = SqlAccounts(self._db)
        generation = self.generation()
        while True:
            state = PolicyState(
                generation=generation,
                policies=tuple(self.policies()),
                groups=tuple(self.groups()),
                group_members=tuple(self.group_members()),
                dynamic_groups=tuple(self.dynamic_groups()),
                projects=tuple(accounts.projects()),
                members=tuple(accounts.members()),
                administrators=frozenset(
                    user.name for user in accounts.users() if user.admin and not user.disabled
                ),
            )
            if (generation := self.generation()) == state.generation:
                return state

    # All kinds

    def _all(self, table: _Table[R], test: str = "", *values: str) -> list[R]:
        where = f" WHERE {test}" if test else ""
        sql = f"SELECT {table.columns} FROM {table.name}{where} ORDER BY lower(name), id"
        return [table.read(row) for row in self._db.read(sql, values)]

    def _by_id(self, table: _Table[R], record_id: str) -> R:
        if found := self._all(table, "id = ?", record_id):
            return found[0]
        raise _missing(table, record_id)

    def _create(
        self,
        table: _Table[R],
        record: R,
        check: Callable[[Connection], R],
        then: Callable[[Connection, R], object] = lambda _connection, _record: None,
    ) -> None:
        """Add a record, as version 1. check: raises if that is not possible, else returns the
        record to add. then: what belongs to a new version."""
        marks = ", ".join("?" * len(table.record.__struct_fields__))
        sql = (
            f"INSERT INTO {table.name} ({table.columns}) VALUES ({marks}) "
            "ON CONFLICT DO NOTHING RETURNING 1"
        )

        def step(connection: Connection) -> None:
            lock_accounts(connection)
            made = replace(check(connection), version=1)
            if not connection.execute(sql, _values(made, made.__struct_fields__)).fetchall():
                raise AlreadyExists(f"there is a {table.kind} with the id {made.id!r} already")
            then(connection, made)

        self._db.write(step, durable=True, done=_is_there(table, record, 1))

    def _create_group(self, table: _Table[R], group: R) -> None:
        def check(connection: Connection) -> R:
            check_group_name(connection, group.name)
            return group

        self._create(table, group, check)

    def _change(
        self,
        table: _Table[R],
        before: R,
        after: R,
        then: Callable[[Connection, R], object] = lambda _connection, _record: None,
    ) -> R:
        names: tuple[str, ...] = (*table.changes, "version", "updated_at", "updated_by")
        sets = ", ".join(f"{name} = ?" for name in names)
        given = {name: getattr(after, name) for name in (*table.changes, *names[-2:])}
        made: R = replace(before, **given, version=before.version + 1)
        sql = f"UPDATE {table.name} SET {sets} WHERE id = ? AND version = ? RETURNING 1"

        def step(connection: Connection) -> None:
            lock_accounts(connection)
            values = (*_values(made, names), before.id, before.version)
            if not connection.execute(sql, values).fetchall():
                raise _lost(connection, table, before)
            then(connection, made)

        self._db.write(step, durable=True, done=_is_there(table, made, made.version))
        return made

    def _delete(
        self,
        table: _Table[R],
        record: R,
        check: Callable[[Connection], object] = lambda _connection: None,
    ) -> None:
        where = f"FROM {table.name} WHERE id = ? AND version = ?"
        values = (record.id, record.version)

        def step(connection: Connection) -> None:
            lock_accounts(connection)
            if connection.execute(f"SELECT 1 {where}", values).fetchone() is None:
                raise _lost(connection, table, record)
            check(connection)
            connection.execute(f"DELETE {where}", values)

        has = _is_there(table, record, record.version)
        self._db.write(step, durable=True, done=lambda connection: not has(connection))


def check_group_name(connection: Connection, name: str) -> None:
    """Within a transaction that has locked the accounts: raises AlreadyExists or InvalidInput if
    there is a group, a dynamic group or a group without a record that has this name."""
    for table in (_GROUPS, _DYNAMIC_GROUPS):
        sql = f"SELECT name FROM {table.name} WHERE lower(name) = lower(?)"
        if connection.execute(sql, (name,)).fetchone() is not None:
            text = f"there is a {table.kind} {name!r} already"
            raise AlreadyExists(Problem("", text, "choose another name"))
    if name.lower() == ADMINISTRATORS.lower():
        text = f"the group {ADMINISTRATORS} is there already: the users who administer the server"
        raise InvalidInput(Problem("", text, "choose another name"))
    project, _, role = name.rpartition("-")
    sql = "SELECT name FROM projects WHERE lower(name) = lower(?)"
    if role.lower() in [*Role] and (row := connection.execute(sql, (project,)).fetchone()):
        text = f"{name!r} is the group of the members of project {row[0]} with the role {role}"
        raise InvalidInput(Problem("", text, "choose another name"))


def _keep_revision(connection: Connection, policy: PolicyRecord) -> None:
    """Within the transaction that makes a version of a policy."""
    revision = PolicyRevision(
        policy=policy.id,
        version=policy.version,
        description=policy.description,
        statements=policy.statements,
        changed_at=policy.updated_at,
        changed_by=policy.updated_by,
    )
    connection.execute(
        "INSERT INTO policy_revisions (policy_id, version, description, statements, changed_at, "
        "changed_by) VALUES (?, ?, ?, ?, ?, ?)",
        _values(revision, revision.__struct_fields__),
    )


def _is_there(table: _Table[R], record: R, version: int) -> Callable[[Connection], bool]:
    """Whether a version of a record is recorded, for `Database.write`."""
    sql = f"SELECT 1 FROM {table.name} WHERE id = ? AND version = ? AND updated_at = ?"
    values = (record.id, version, micros(record.updated_at))
    return lambda connection: connection.execute(sql, values).fetchone() is not None


def _lost(connection: Connection, table: _Table[R], record: R) -> Conflict | NotFound:
    """Why a record could not be changed: it has another version now, or is deleted."""
    sql = f"SELECT version FROM {table.name} WHERE id = ?"
    if (row := connection.execute(sql, (record.id,)).fetchone()) is None:
        return _missing(table, record.id)
    return Conflict(
        f"{table.kind} {record.name} was changed meanwhile: it has version {row[0]} now, this "
        f"change was made to version {record.version}; read it again"
    )


def _missing(table: _Table[R], record_id: str) -> NotFound:
    return NotFound(f"no {table.kind} with the id {record_id!r}")


def _named(table: _Table[R], name: str, records: Sequence[R]) -> R:
    """The one with a name. Raises NotFound."""
    for record in records:
        if record.name.lower() == name.lower():
            return record
    close = close_to(name, [record.name for record in records], 3)
    hint = f"did you mean {' or '.join(close)}?" if close else ""
    raise NotFound(Problem("", f"no {table.kind} named {name!r}", hint))


def _values(record: Struct, names: Sequence[str]) -> list[Any]:
    """Values of fields, as their columns have them."""

    def value(name: str) -> Any:
        given = getattr(record, name)
        if name in _TIMES:
            return micros(given)
        return json.dumps(given) if name == "statements" else given

    return [value(name) for name in names]


def _record(kind: type[T], row: Row, what: str) -> T:
    values = dict(row)
    try:
        if "statements" in values:
            values["statements"] = decoded(values["statements"])
    except ValueError as error:
        raise CorruptRecord(f"{what} is corrupt: {error}; {_HINT}") from None
    times = {name: seconds(values[name]) for name in _TIMES if name in values}
    return read_record(kind, {**values, **times}, what, _HINT)
