"""Who shows a token, and what it may do with it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.caller import ALL_RIGHTS, NOTHING, Authority, Caller
from muster.errors import Forbidden, InvalidInput, NotAuthenticated, Problem, StoreError
from muster.iam.authority import authority_of_user
from muster.iam.tokens import parse_token
from muster.identity import DEFAULT_PROJECT
from muster.permissions import Right

if TYPE_CHECKING:
    from muster.iam.current_policies import CurrentPolicies
    from muster.store.account_records import Credential
    from muster.store.protocols.accounts import Accounts

#: Seconds for which an answer is given again without a look at the records: for so long at most, a
#: token works after it was revoked, and a user after it was disabled or has lost a role.
REMEMBERED = 5.0
#: Answers that are remembered.
_MOST_ANSWERS = 10_000
#: Seconds between two notes of when a token was used last.
_NOTED_EVERY = 60.0
_UNKNOWN = "this token is not known here: it is of another server, or was deleted"


class OutsideProject(Forbidden):
    """Somebody asks for a project that is not theirs, or not that of their token."""

    def __init__(self, text: str, caller: Caller) -> None:
        """caller: who asks, in that project, without rights."""
        super().__init__(text)
        self.caller = caller


def caller_of(
    credential: Credential, authority: Authority, now: float, project: str | None = None
) -> Caller:
    """The caller with this credential, in a project (None: the one that it is limited to, or the
    default one, or the only one of its user). One that an administrator names exists. authority:
    of the user.

    Raises NotAuthenticated if it cannot be used any more, OutsideProject if not in this project,
    and InvalidInput if the user has to choose one.
    """
    token, user = credential.token, credential.user
    if token.revoked_at is not None:
        raise NotAuthenticated(f"the token {token.id} was revoked; log in again")
    if token.expires_at is not None and token.expires_at <= now:
        from muster.describe.times import time_text

        when = time_text(token.expires_at)
        raise NotAuthenticated(f"the token {token.id} expired at {when}; log in again")
    if user.disabled:
        raise NotAuthenticated(f"the user {user.name} is disabled; ask who administers the server")
    chosen = _project(credential, authority, project)
    scopes = ALL_RIGHTS if token.scopes is None else token.scopes
    if token.project is not None:  # it cannot be used to administer the server
        scopes -= {Right.ADMINISTER}
    limited = token.project is not None
    return Caller(user.name, chosen, authority, token.id, scopes, only_here=limited)


def _project(credential: Credential, authority: Authority, requested: str | None) -> str:
    limit, roles = credential.token.project, credential.roles
    if limit is not None:
        if requested is not None and requested.lower() != limit.lower():
            text = f"this token can be used in project {limit} only, not in {requested!r}"
            raise _outside(text, credential, requested)
        return limit
    if requested is not None:
        requested = next((name for name in roles if name.lower() == requested.lower()), requested)
        if requested not in roles and not authority.reaches(requested):
            # the same words whether it exists or not
            text = f"{credential.user.name} is a member of no project named {requested!r}"
            known = ", ".join(sorted(roles)) or "none"
            text = f"{text} (projects of this user: {known})"
            raise _outside(text, credential, requested)
        return requested
    if DEFAULT_PROJECT in roles or credential.user.admin or not roles:
        return DEFAULT_PROJECT
    if len(roles) == 1:
        return next(iter(roles))
    text = f"{credential.user.name} is a member of several projects: {', '.join(sorted(roles))}"
    raise InvalidInput(Problem("", text, "choose one: --project NAME, or MUSTER_PROJECT"))


def _outside(text: str, credential: Credential, project: str) -> OutsideProject:
    caller = Caller(credential.user.name, project, NOTHING, credential.token.id)
    return OutsideProject(text, caller)


class _Answer(Struct, frozen=True):
    caller: Caller
    #: When the token expires (epoch seconds); None: never.
    expires_at: float | None
    #: Until when this is given again, on the monotonic clock.
    until: float


class Authenticator:
    """Finds the callers of tokens, and remembers the last ones. Threads may share it."""

    def __init__(
        self,
        accounts: Accounts,
        policies: CurrentPolicies,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: seconds on a clock that is never set."""
        self._accounts, self._policies = accounts, policies
        self._clock = clock
        self._lock = Lock()
        # by a hash, so that how long the look takes tells nothing about the tokens
        self._answers: dict[tuple[bytes, str | None], _Answer] = {}

    def authenticate(self, text: str, now: float, project: str | None = None) -> Caller:
        """The caller who shows this token, in a project. now: epoch seconds. Raises as `caller_of`;
        NotAuthenticated also if the token is not known, NotFound if an administrator names a
        project that does not exist."""
        key = hashlib.sha256(text.encode(errors="replace")).digest(), project
        answer = self._answers.get(key)
        if answer is None or answer.until <= self._clock() or _is_over(answer.expires_at, now):
            answer = self._look_up(text, now, project)
            with self._lock:
                self._answers.pop(key, None)
                if len(self._answers) >= _MOST_ANSWERS:
                    del self._answers[next(iter(self._answers))]  # the oldest
                self._answers[key] = answer
        return answer.caller

    def _look_up(self, text: str, now: float, project: str | None) -> _Answer:
        until = self._clock() + REMEMBERED  # from before the look
        token = parse_token(text)
        credential = self._accounts.credential(token.id)
        if credential is None or not token.matches(credential.digest):
            raise NotAuthenticated(_UNKNOWN)
        if project is not None and credential.user.admin:
            project = self._accounts.project(project).name
        elif project is not None:
            project = self._policies.get().name_of(project)
        authority = authority_of_user(self._policies, credential.user.name)
        caller = caller_of(credential, authority, now, project)
        last = credential.token.last_used_at
        if last is None or now - last >= _NOTED_EVERY:
            with suppress(StoreError):  # a full disk keeps nobody out
                self._accounts.use_token(token.id, now)
        return _Answer(caller, credential.token.expires_at, until)


def _is_over(expires_at: float | None, now: float) -> bool:
    return expires_at is not None and expires_at <= now
