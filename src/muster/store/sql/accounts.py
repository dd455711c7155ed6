"""Users, projects, members and tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import asdict, astuple, replace

from muster.caller import Role
from muster.errors import AlreadyExists, InvalidInput, NotFound, Problem
from muster.identity import DEFAULT_PROJECT
from muster.store.account_records import (
    Credential,
    MemberRecord,
    ProjectRecord,
    TokenRecord,
    UserKind,
    UserRecord,
)
from muster.store.names import not_found_error
from muster.store.records import decoded, read_record
from muster.store.sql.database import Connection, Database, Row
from muster.store.times import micros, optional_micros, seconds

_USER_FIELDS = UserRecord.__struct_fields__
_USER = ", ".join(_USER_FIELDS)
_PROJECT = ", ".join(ProjectRecord.__struct_fields__)
_MEMBER = 'project, user_name AS "user", role, from_groups'
_TOKEN_TIMES = ("created_at", "expires_at", "last_used_at", "revoked_at")
_TOKEN = 'id, name, user_name AS "user", project, scopes, created_by, ' + ", ".join(_TOKEN_TIMES)
#: A token and its user, whose columns are called `user_NAME`.
_CREDENTIAL = "SELECT {}, {} FROM tokens JOIN users ON users.name = user_name".format(
    ", ".join(
        f"tokens.{name}"
        for name in ("id", "name", "project", "scopes", "digest", "created_by", *_TOKEN_TIMES)
    ),
    ", ".join(f"users.{name} AS user_{name}" for name in _USER_FIELDS),
)
_HINT = "restore the database from a backup"


class SqlAccounts:
    """See `store.protocols.accounts.Accounts`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    # Users

    def create_first(self, user: UserRecord, token: TokenRecord, digest: bytes) -> bool:
        """See `Accounts.create_first`."""

        def step(connection: Connection) -> bool:
            lock_accounts(connection)
            if connection.execute("SELECT 1 FROM users LIMIT 1").fetchone() is not None:
                return False
            _insert_user(connection, user)
            _insert_token(connection, token, digest)
            return True

        return self._db.write(step, durable=True, done=_has("tokens", "id", token.id))

    def create_user(self, user: UserRecord) -> None:
        """See `Accounts.create_user`."""

        def step(connection: Connection) -> None:
            lock_accounts(connection)
            _check_subject(connection, user)
            if not _insert_user(connection, user):
                raise AlreadyExists(_taken("user", user.name))

        self._db.write(step, durable=True, done=_has("users", "name", user.name))

    def change_user(self, name: str, changes: Mapping[str, Any]) -> UserRecord:
        """See `Accounts.change_user`."""

        def step(connection: Connection) -> UserRecord:
            lock_accounts(connection)
            before = user_in(connection, name)
            after = replace(before, **changes)
            _check_subject(connection, after)
            connection.execute(
                "UPDATE users SET display_name = ?, issuer = ?, subject = ?, admin = ?, "
                "disabled = ? WHERE name = ?",
                (
                    after.display_name,
                    after.issuer,
                    after.subject,
                    int(after.admin),
                    int(after.disabled),
                    before.name,
                ),
            )
            if _is_administrator(before) and not _is_administrator(after):
                _check_administrators(connection, before.name)
            return after

        return self._db.write(step, durable=True)

    def user(self, name: str) -> UserRecord:
        """See `Accounts.user`."""
        rows = self._db.read(f"SELECT {_USER} FROM users WHERE lower(name) = lower(?)", (name,))
        if rows:
            return _user_record(rows[0])
        names = [str(row[0]) for row in self._db.read("SELECT name FROM users")]
        raise not_found_error("user", name, names, "muster users list")

    def user_of_subject(self, issuer: str, subject: str) -> UserRecord | None:
        """See `Accounts.user_of_subject`."""
        sql = f"SELECT {_USER} FROM users WHERE issuer = ? AND subject = ?"
        rows = self._db.read(sql, (issuer, subject)) if subject else []
        return _user_record(rows[0]) if rows else None

    def users(self) -> list[UserRecord]:
        """See `Accounts.users`."""
        rows = self._db.read(f"SELECT {_USER} FROM users ORDER BY lower(name)")
        return [_user_record(row) for row in rows]

    # Projects

    def create_project(self, project: ProjectRecord) -> None:
        """See `Accounts.create_project`."""
        sql = (
            f"INSERT INTO projects ({_PROJECT}) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING RETURNING name"
        )

        def step(connection: Connection) -> None:
            lock_accounts(connection)
            _check_groups(connection, project.name)
            parent = _parent(connection, project.parent)
            values = replace(project, parent=parent, created_at=micros(project.created_at))
            if not connection.execute(sql, astuple(values)).fetchall():
                raise AlreadyExists(_taken("project", project.name))

        self._db.write(step, durable=True, done=_has("projects", "name", project.name))

    def change_project(self, name: str, description: str) -> ProjectRecord:
        """See `Accounts.change_project`."""

        def step(connection: Connection) -> ProjectRecord:
            lock_accounts(connection)
            project = replace(project_in(connection, name), description=description)
            sql = "UPDATE projects SET description = ? WHERE name = ?"
            connection.execute(sql, (description, project.name))
            return project

        return self._db.write(step, durable=True)

    def move_project(self, name: str, parent: str) -> ProjectRecord:
        """See `Accounts.move_project`."""

        def step(connection: Connection) -> ProjectRecord:
            lock_accounts(connection)
            project = project_in(connection, name)
            if project.name == DEFAULT_PROJECT:
                raise InvalidInput(f"project {project.name} cannot be moved: it is the root")
            into = _parent(connection, parent)
            above = into
            while above:
                if above == project.name:
                    raise InvalidInput(
                        f"project {project.name} cannot be moved to {into}, which is "
                        f"{'the same' if into == above else 'below it'}"
                    )
                above = project_in(connection, above).parent
            sql = "UPDATE projects SET parent = ? WHERE name = ?"
            connection.execute(sql, (into, project.name))
            return replace(project, parent=into)

        return self._db.write(step, durable=True)

    def delete_project(self, name: str) -> None:
        """See `Accounts.delete_project`."""

        def step(connection: Connection) -> None:
            lock_accounts(connection)
            found = project_in(connection, name).name
            if found == DEFAULT_PROJECT:
                raise InvalidInput(f"project {found} cannot be deleted: commands use it by default")
            _check_childless(connection, found)
            _check_empty(connection, found)
            connection.execute("DELETE FROM projects WHERE name = ?", (found,))

        has = _has("projects", "name", name)
        self._db.write(step, durable=True, done=lambda connection: not has(connection))

    def project(self, name: str) -> ProjectRecord:
        """See `Accounts.project`."""
        sql = f"SELECT {_PROJECT} FROM projects WHERE lower(name) = lower(?)"
        if rows := self._db.read(sql, (name,)):
            return _project_record(rows[0])
        names = [str(row[0]) for row in self._db.read("SELECT name FROM projects")]
        raise not_found_error("project", name, names, "muster projects list")

    def projects(self) -> list[ProjectRecord]:
        """See `Accounts.projects`."""
        rows = self._db.read(f"SELECT {_PROJECT} FROM projects ORDER BY lower(name)")
        return [_project_record(row) for row in rows]

    # Members

    def set_member(self, member: MemberRecord) -> None:
        """See `Accounts.set_member`."""

        def step(connection: Connection) -> None:
            lock_accounts(connection)
            project = project_in(connection, member.project).name
            user = user_in(connection, member.user).name
            connection.execute(
                "INSERT INTO members (project, user_name, role, from_groups) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (project, user_name) DO UPDATE SET role = excluded.role, "
                "from_groups = excluded.from_groups",
                (project, user, member.role, int(member.from_groups)),
            )

        self._db.write(step, durable=True)

    def set_group_roles(self, user: str, roles: Mapping[str, Role]) -> None:
        """See `Accounts.set_group_roles`."""
        found = "SELECT project, role FROM members WHERE user_name = ? AND from_groups = 1"
        remove = "DELETE FROM members WHERE user_name = ? AND project = ? AND from_groups = 1"
        add = (
            "INSERT INTO members (project, user_name, role, from_groups) "
            "SELECT name, ?, ?, 1 FROM projects WHERE lower(name) = lower(?) "
            "ON CONFLICT (project, user_name) DO NOTHING"
        )

        def step(connection: Connection) -> None:
            lock_accounts(connection)
            name = user_in(connection, user).name
            # what stays is not written: users log in often, and each change is one of policies
            rest = {project.lower(): role for project, role in roles.items()}
            for project, role in connection.execute(found, (name,)).fetchall():
                if rest.get(project.lower()) == role:
                    del rest[project.lower()]
                else:
                    connection.execute(remove, (name, project))
            for project, role in rest.items():
                connection.execute(add, (name, role, project))

        self._db.write(step)

    def remove_member(self, project: str, user: str) -> bool:
        """See `Accounts.remove_member`."""
        sql = "DELETE FROM members WHERE lower(project) = lower(?) AND lower(user_name) = lower(?)"

        def step(connection: Connection) -> bool:
            lock_accounts(connection)
            deleted = f"{sql} RETURNING 1"
            return bool(connection.execute(deleted, (project, user)).fetchall())

        return self._db.write(step, durable=True)

    def members(self, *, project: str | None = None, user: str | None = None) -> list[MemberRecord]:
        """See `Accounts.members`."""
        where, values = _where(project=project, user_name=user)
        sql = f"SELECT {_MEMBER} FROM members{where} ORDER BY lower(project), lower(user_name)"
        return [
            read_record(
                MemberRecord,
                {**dict(row), "from_groups": bool(row["from_groups"])},
                f"the record of {row['user']} in project {row['project']}",
                _HINT,
            )
            for row in self._db.read(sql, values)
        ]

    # Tokens

    def create_token(self, token: TokenRecord, digest: bytes) -> None:
        """See `Accounts.create_token`."""

        def step(connection: Connection) -> None:
            lock_accounts(connection)
            user = user_in(connection, token.user).name
            project = None if token.project is None else project_in(connection, token.project).name
            _insert_token(connection, replace(token, user=user, project=project), digest)

        self._db.write(step, durable=True, done=_has("tokens", "id", token.id))

    def token(self, token_id: str) -> TokenRecord:
        """See `Accounts.token`."""
        rows = self._db.read(f"SELECT {_TOKEN} FROM tokens WHERE id = ?", (token_id,))
        if not rows:
            raise _no_token(token_id)
        return _token_record(dict(rows[0]))

    def tokens(self, *, user: str | None = None, project: str | None = None) -> list[TokenRecord]:
        """See `Accounts.tokens`."""
        where, values = _where(user_name=user, project=project)
        sql = f"SELECT {_TOKEN} FROM tokens{where} ORDER BY created_at DESC, id"
        return [_token_record(dict(row)) for row in self._db.read(sql, values)]

    def revoke_token(self, token_id: str, now: float) -> bool:
        """See `Accounts.revoke_token`."""
        sql = "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL RETURNING id"

        def step(connection: Connection) -> bool:
            if connection.execute(sql, (micros(now), token_id)).fetchall():
                return True
            known = connection.execute("SELECT 1 FROM tokens WHERE id = ?", (token_id,)).fetchone()
            if known is None:
                raise _no_token(token_id)
            return False

        return self._db.write(step, durable=True)

    def use_token(self, token_id: str, now: float) -> None:
        """See `Accounts.use_token`."""
        sql = (
            "UPDATE tokens SET last_used_at = ? "
            "WHERE id = ? AND (last_used_at IS NULL OR last_used_at < ?)"
        )
        values = (micros(now), token_id, micros(now))
        self._db.write(lambda connection: connection.execute(sql, values))

    def credential(self, token_id: str) -> Credential | None:
        """See `Accounts.credential`."""
        rows = self._db.read(f"{_CREDENTIAL} WHERE tokens.id = ?", (token_id,))
        if not rows:
            return None
        values = dict(rows[0])
        user = {name: values.pop(f"user_{name}") for name in _USER_FIELDS}
        digest = bytes.fromhex(values.pop("digest"))
        token = _token_record({**values, "user": user["name"]})
        members = self.members(user=token.user)
        return Credential(
            token=token,
            digest=digest,
            user=_user_record(user),
            roles={member.project: member.role for member in members},
        )


def lock_accounts(connection: Connection) -> None:
    """Within a transaction: let no other one change users, projects, members, tokens, groups or
    policies until this one ends. They change rarely."""
    if lock := connection.dialect.lock_text:
        connection.execute(lock, ("accounts",))


def _has(table: str, column: str, value: str) -> Callable[[Connection], bool]:
    """Whether a row was recorded, for `Database.write`."""
    sql = f"SELECT 1 FROM {table} WHERE lower({column}) = lower(?)"
    return lambda connection: connection.execute(sql, (value,)).fetchone() is not None


def _where(**names: str | None) -> tuple[str, list[str]]:
    """A condition for the columns whose names are given."""
    given = {column: name for column, name in names.items() if name is not None}
    tests = [f"lower({column}) = lower(?)" for column in given]
    return (f" WHERE {' AND '.join(tests)}" if tests else "", [*given.values()])


def user_in(connection: Connection, name: str) -> UserRecord:
    """Within a transaction. Raises NotFound."""
    sql = f"SELECT {_USER} FROM users WHERE lower(name) = lower(?)"
    row = connection.execute(sql, (name,)).fetchone()
    if row is None:
        raise NotFound(Problem("", f"no user named {name!r}", "`muster users list` lists them"))
    return _user_record(row)


def _user_record(row: Row | Mapping[str, Any]) -> UserRecord:
    values = dict(row)
    values["created_at"] = seconds(values["created_at"])
    for name in ("admin", "disabled"):
        values[name] = bool(values[name])
    return read_record(UserRecord, values, f"the record of user {values['name']}", _HINT)


def _insert_user(connection: Connection, user: UserRecord) -> bool:
    """Within a transaction. False if the name is taken."""
    sql = (
        f"INSERT INTO users ({_USER}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING RETURNING name"
    )
    values = {
        **asdict(user),
        "created_at": micros(user.created_at),
        "admin": int(user.admin),
        "disabled": int(user.disabled),
    }
    return bool(connection.execute(sql, [*values.values()]).fetchall())


def _taken(kind: str, name: str) -> Problem:
    return Problem("", f"there is a {kind} {name!r} already", "choose another name")


def _check_subject(connection: Connection, user: UserRecord) -> None:
    """Within a transaction: raises InvalidInput if another user has the subject."""
    if not user.subject:
        return
    sql = "SELECT name FROM users WHERE issuer = ? AND subject = ? AND name != ?"
    row = connection.execute(sql, (user.issuer, user.subject, user.name)).fetchone()
    if row is not None:
        raise InvalidInput(f"{user.issuer} knows user {row[0]!r} by the subject {user.subject!r}")


def _is_administrator(user: UserRecord) -> bool:
    return user.admin and not user.disabled and user.kind == UserKind.PERSON


def _check_administrators(connection: Connection, name: str) -> None:
    """Within a transaction: raises InvalidInput if no person is left who administers the server."""
    sql = "SELECT 1 FROM users WHERE admin = 1 AND disabled = 0 AND kind = 'person' LIMIT 1"
    if connection.execute(sql).fetchone() is None:
        text = f"{name} is the last person who administers this server"
        hint = "make another one an admin first: `muster users change NAME --admin`"
        raise InvalidInput(Problem("", text, hint))


def _parent(connection: Connection, name: str) -> str:
    """Within a transaction: the name of a project as a parent; "" for the root. Raises NotFound."""
    found = project_in(connection, name).name if name else DEFAULT_PROJECT
    return "" if found == DEFAULT_PROJECT else found


#: What is not deleted with a project, and where it is: whoever makes a project of the same name
#: would get it.
_KEPT = {
    "jobs": "jobs",
    "runs": "runs",
    "schedules": "schedules",
    "notifications": "notifications",
    "buckets": "buckets",
    "resources": "resources of the OCI API",
}


#: Not those that were deleted, nor records of what was done.
_LASTING = "state != 'DELETED' AND kind NOT LIKE '%workrequest'"


def _check_empty(connection: Connection, project: str) -> None:
    """Raises InvalidInput if something is in a project that is not deleted with it."""
    found = []
    for table, what in _KEPT.items():
        live = f" AND {_LASTING}" if table == "resources" else ""
        sql = f"SELECT 1 FROM {table} WHERE project = ?{live} LIMIT 1"
        if connection.execute(sql, (project,)).fetchone() is not None:
            found.append(what)
    if found:
        text = f"project {project} has {' and '.join(found)}, and cannot be deleted"
        hint = "delete these; or remove its members, and nobody can use it"
        raise InvalidInput(Problem("", text, hint))


def _check_childless(connection: Connection, name: str) -> None:
    """Within a transaction: raises InvalidInput if there are projects below one."""
    sql = "SELECT name FROM projects WHERE parent = ? ORDER BY lower(name)"
    if below := [str(row[0]) for row in connection.execute(sql, (name,)).fetchall()]:
        text = f"project {name} has projects below it, and cannot be deleted: {', '.join(below)}"
        raise InvalidInput(Problem("", text, "move or delete them first"))


def _check_groups(connection: Connection, project: str) -> None:
    """Within a transaction: raises InvalidInput if a group has the name that the members of a new
    project with a role are to have as a group."""
    names = [f"{project}-{role}".lower() for role in Role]
    for table in ("user_groups", "dynamic_groups"):
        sql = f"SELECT name FROM {table} WHERE lower(name) IN ({', '.join('?' * len(names))})"
        if (row := connection.execute(sql, names).fetchone()) is not None:
            text = (
                f"there is a group {row[0]!r}, as the members of a project {project!r} with a role "
                "are called"
            )
            raise InvalidInput(Problem("", text, "choose another name"))


def project_in(connection: Connection, name: str) -> ProjectRecord:
    """Within a transaction. Raises NotFound."""
    sql = f"SELECT {_PROJECT} FROM projects WHERE lower(name) = lower(?)"
    row = connection.execute(sql, (name,)).fetchone()
    if row is None:
        hint = "`muster projects list` lists them"
        raise NotFound(Problem("", f"no project named {name!r}", hint))
    return _project_record(row)


def _project_record(row: Row) -> ProjectRecord:
    values = dict(row)
    values["created_at"] = seconds(values["created_at"])
    return read_record(ProjectRecord, values, f"the record of project {values['name']}", _HINT)


def _no_token(token_id: str) -> NotFound:
    hint = "`muster tokens list` lists them"
    return NotFound(Problem("", f"no token with the id {token_id!r}", hint))


def _insert_token(connection: Connection, token: TokenRecord, digest: bytes) -> None:
    scopes = None if token.scopes is None else json.dumps(sorted(token.scopes))
    connection.execute(
        "INSERT INTO tokens (id, name, user_name, project, scopes, digest, created_by, created_at, "
        "expires_at, last_used_at, revoked_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            token.id,
            token.name,
            token.user,
            token.project,
            scopes,
            digest.hex(),
            token.created_by,
            *(optional_micros(getattr(token, name)) for name in _TOKEN_TIMES),
        ),
    )


def _token_record(values: Mapping[str, Any]) -> TokenRecord:
    """values: the columns `_TOKEN`."""
    times = {name: seconds(values[name]) for name in _TOKEN_TIMES}
    scopes = None if values["scopes"] is None else decoded(values["scopes"])
    what = f"the record of token {values['id']}"
    return read_record(TokenRecord, {**values, **times, "scopes": scopes}, what, _HINT)
