"""Who signs a request, and what it may do in which project."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.caller import Caller, Right, Role
from muster.errors import NotFound
from muster.iam.authenticate import REMEMBERED
from muster.iam.public_keys import read_public_key
from muster.iam.roles import rights_in
from muster.iam.session_tokens import SessionTokens, is_session_token
from muster.iam.signatures import (
    Headers,
    Signature,
    SignatureRefused,
    check_body,
    check_date,
    check_signed,
    check_value,
    signed_text,
)
from muster.store.account_records import UserRecord

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    from muster.store.base import Accounts, Store

_MOST_REMEMBERED = 10_000


class Principal(Struct, frozen=True):
    """Who asks, before it is known for which project."""

    user: str
    admin: bool
    roles: Mapping[str, Role]
    """By project."""
    credential: str = ""
    """What names the key or token, in the audit log."""

    def caller(self, project: str) -> Caller:
        """The caller in a project; without any right if the user is no member."""
        rights = rights_in(self.roles.get(project), administrator=self.admin)
        return Caller(self.user, project, rights, self.credential)

    def sees(self, project: str) -> bool:
        """Whether the user may see what a project has."""
        return Right.READ in self.caller(project).rights


class SignedRequest(Struct, frozen=True):
    """What of a request is verified."""

    verb: str
    target: str
    """Path and query exactly as they arrived."""
    headers: Headers
    body: bytes | None
    """None: it does not have to be signed."""

    def header(self, name: str) -> str:
        """The first header with this name; "" if there is none."""
        wanted = name.encode()
        return next((v.decode("latin-1") for k, v in self.headers if k == wanted), "")


class _Known(Struct, frozen=True):
    key: RSAPublicKey
    principal: Principal
    until: float
    """On the monotonic clock."""


class Principals:
    """Verifies signed requests, and remembers keys for a few seconds. Threads may share it."""

    def __init__(
        self,
        store: Callable[[], Store],
        sessions: SessionTokens,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """store: where keys and users are. clock: seconds on a clock that is never set."""
        self._store, self._sessions, self._clock = store, sessions, clock
        self._lock = Lock()
        #: By session tokens, and by the fingerprints of keys: what else is in the id of a key is
        #: the client's choice.
        self._known: dict[str, _Known] = {}

    def remembers(self, signature: Signature) -> bool:
        """Whether a signature is checked without a look at the records."""
        known = self._known.get(_name_of(signature.key_id))
        return known is not None and known.until > self._clock()

    def authenticate(self, signature: Signature, request: SignedRequest, now: float) -> Principal:
        """Who has signed a request. signature: what its header Authorization says. now: epoch
        seconds. Raises SignatureRefused, StoreError."""
        with_body = request.body is not None and request.verb in ("POST", "PUT", "PATCH")
        check_signed(signature.headers, with_body=with_body)
        date = "x-date" if "x-date" in signature.headers else "date"
        check_date(request.header(date), now)
        known = self._find(signature, now)
        text = signed_text(signature, request.verb, request.target, request.headers)
        check_value(known.key, signature, text)
        if request.body is not None and "x-content-sha256" in signature.headers:
            check_body(request.header("x-content-sha256"), request.body)
        return known.principal

    def _find(self, signature: Signature, now: float) -> _Known:
        key_id = _name_of(signature.key_id)
        known = self._known.get(key_id)
        if known is not None and known.until > self._clock():
            return known
        until = self._clock() + REMEMBERED  # from before the look
        if is_session_token(key_id):
            session = self._sessions.verify(key_id, now)
            self._check_token(session.token_id)
            user, key, name = session.user, session.key, session.id
            until = min(until, self._clock() + session.expires_at - now)
        else:
            user, key, name = self._key(key_id)
        known = _Known(key, self._principal(user, name), until)
        with self._lock:
            self._known.pop(key_id, None)
            if len(self._known) >= _MOST_REMEMBERED:
                del self._known[next(iter(self._known))]  # the oldest
            self._known[key_id] = known
        return known

    def _check_token(self, token_id: str) -> None:
        """Raises SignatureRefused if the token that a session was made with is gone."""
        if not token_id:
            return
        try:
            revoked = self._store().accounts.token(token_id).revoked_at is not None
        except NotFound:
            revoked = True
        if revoked:
            raise SignatureRefused(f"the token {token_id} of the session was revoked")

    def _key(self, fingerprint: str) -> tuple[str, RSAPublicKey, str]:
        try:
            record = self._store().keys.get(fingerprint)
        except NotFound:
            raise SignatureRefused(
                f"the key with the fingerprint {fingerprint[:100]!r} is not known; "
                "`muster users keys add` adds one"
            ) from None
        return record.user, read_public_key(record.pem), fingerprint

    def _principal(self, user: str, credential: str) -> Principal:
        return principal_of(self._store().accounts, user, credential)


def _name_of(key_id: str) -> str:
    """A session token as it is; of the id of a key, TENANCY/USER/FINGERPRINT, the fingerprint."""
    return key_id if is_session_token(key_id) else key_id.rpartition("/")[2].lower()


def principal_of(accounts: Accounts, user: str, credential: str) -> Principal:
    """A user as who asks. Raises SignatureRefused if there is none, or the user is disabled."""
    try:
        found: UserRecord = accounts.user(user)
    except NotFound:
        raise SignatureRefused(f"there is no user {user!r}") from None
    if found.disabled:
        raise SignatureRefused(f"the user {found.name} is disabled")
    roles = {member.project: member.role for member in accounts.members(user=found.name)}
    return Principal(found.name, found.admin, roles, credential)
