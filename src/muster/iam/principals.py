"""Who signs a request, and what it may do in which project."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster import run_tokens
from muster.caller import Caller
from muster.errors import NotFound
from muster.iam.authenticate import REMEMBERED
from muster.iam.authority import (
    PolicyAuthority,
    authority_of_instance,
    authority_of_run,
    authority_of_user,
)
from muster.iam.instance_tokens import (
    InstanceToken,
    check_address,
    instance_token,
    is_of_instance,
)
from muster.iam.public_keys import read_public_key
from muster.iam.session_tokens import session_of
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
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeRef
from muster.node.machine import boot_id
from muster.run_tokens import RunToken
from muster.signed_tokens import InvalidToken, SignedTokens, is_signed_token
from muster.store.account_records import UserRecord
from muster.store.records import NodeFilter, NodeRecord

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    from muster.iam.current_policies import CurrentPolicies
    from muster.storage.home import Home
    from muster.storage.instances import Instance
    from muster.store.base import Store
    from muster.store.protocols.accounts import Accounts
    from muster.store.records import RunSummary

_MOST_REMEMBERED = 10_000


#: What the audit log has of hosts in place of a token begins with it.
INSTANCE = "instance "


class Principal(Struct, frozen=True):
    """Who has signed a request; in which project it acts is not known yet."""

    user: str
    authority: PolicyAuthority
    credential: str = ""
    """What names the key or token, in the audit log."""
    run_id: str = ""
    """The run that asks, which the user has started; "" if no run asks."""
    run_name: str = ""
    """Its name."""
    instance: str = ""
    """The name of the host that asks, for which the user answers; "" if no host asks."""

    def caller(self, project: str) -> Caller:
        """The caller in a project."""
        return Caller(
            *(self.user, project, self.authority, self.credential),
            run_id=self.run_id,
            acting=self.acting,
        )

    @property
    def acting(self) -> str:
        """See `Caller.acting`."""
        if self.run_id:
            return f"job run {self.run_name}"
        return f"host {self.instance}" if self.instance else ""

    def doing(self, operation: str) -> Principal:
        """The same, asking for an operation, such as `list_jobs`."""
        return replace(self, authority=replace(self.authority, operation=operation_name(operation)))

    def is_user(self, name: str) -> bool:
        """Whether the user with this name asks, and not a run or a host of the user."""
        return self.user == name and not self.run_id and not self.instance


class SignedRequest(Struct, frozen=True):
    """What of a request is verified."""

    verb: str
    target: str
    """Path and query exactly as they arrived."""
    headers: Headers
    body: bytes | None
    """None: it does not have to be signed."""
    address: str = ""
    """From where it comes; "" if it comes over no network."""

    def header(self, name: str) -> str:
        """The first header with this name; "" if there is none."""
        wanted = name.encode()
        return next((v.decode("latin-1") for k, v in self.headers if k == wanted), "")


class _Known(Struct, frozen=True):
    keys: tuple[RSAPublicKey, ...]
    principal: Principal
    until: float
    """On the monotonic clock."""
    token: RunToken | None = None
    """None: it is not of a run."""
    instance: Instance | None = None
    """None: it is not of a host."""


class Principals:
    """Verifies signed requests, and remembers keys for a few seconds. Threads may share it."""

    def __init__(
        self,
        store: Callable[[], Store],
        policies: CurrentPolicies,
        tokens: SignedTokens,
        clock: Callable[[], float] = time.monotonic,
        *,
        bound: bool = True,
        home: Home | None = None,
    ) -> None:
        """store: where keys, users and runs are. policies: of the store. clock: seconds on a clock
        that is never set. bound: whether tokens of runs are of use on the hosts of their nodes
        only. home: where instances are registered; None: there are none."""
        self._store, self._policies = store, policies
        self._tokens, self._clock = tokens, clock
        self._bound, self._boot, self._home = bound, boot_id(), home
        self._lock = Lock()
        #: By tokens, and by the fingerprints of keys: what else is in the id of a key is
        #: the client's choice.
        self._known: dict[str, _Known] = {}

    def remembers(self, signature: Signature) -> bool:
        """Whether a signature is checked without a look at the records."""
        known = self._known.get(key_name(signature.key_id))
        # whether a run is in progress is looked up each time: no request is late by seconds
        return known is not None and known.until > self._clock() and not known.token

    def authenticate(self, signature: Signature, request: SignedRequest, now: float) -> Principal:
        """Who has signed a request. signature: what its header Authorization says. now: epoch
        seconds. Raises SignatureRefused, StoreError."""
        with_body = request.body is not None and request.verb in ("POST", "PUT", "PATCH")
        check_signed(signature.headers, with_body=with_body)
        date = "x-date" if "x-date" in signature.headers else "date"
        check_date(request.header(date), now)
        known = self._find(signature, now)
        if known.token is not None:
            self._check_run(known.token, request.address)
        if known.instance is not None:
            check_address(known.instance, request.address)
        text = signed_text(signature, request.verb, request.target, request.headers)
        check_value(known.keys, signature, text)
        if request.body is not None and "x-content-sha256" in signature.headers:
            check_body(request.header("x-content-sha256"), request.body)
        return known.principal

    def _find(self, signature: Signature, now: float) -> _Known:
        key_id = key_name(signature.key_id)
        known = self._known.get(key_id)
        if known is not None and known.until > self._clock():
            return known
        until = self._clock() + REMEMBERED  # from before the look
        if is_signed_token(key_id):
            known = self._of_token(key_id, now, until)
        else:
            user, key = self._key(key_id)
            known = _Known((key,), self._principal(user, key_id), until)
        with self._lock:
            self._known.pop(key_id, None)
            if len(self._known) >= _MOST_REMEMBERED:
                del self._known[next(iter(self._known))]  # the oldest
            self._known[key_id] = known
        return known

    def _of_token(self, key_id: str, now: float, until: float) -> _Known:
        """The keys and the principal of a token. until: as in `_Known`, unless it expires
        before."""
        try:
            claims = self._tokens.read(key_id)
            if run_tokens.is_of_run(claims):
                token = run_tokens.run_token(claims, now)
                until = min(until, self._clock() + token.expires_at - now)
                return _Known(token.keys, self._of_run(token), until, token)
            if self._home is not None and is_of_instance(claims):
                return self._of_instance(instance_token(self._home, claims, now), until, now)
            session = session_of(claims, now)
        except InvalidToken as error:
            raise SignatureRefused(f"the token is refused: {error}") from None
        self._check_token(session.token_id)
        principal = self._principal(session.user, session.id)
        return _Known(
            (session.key,), principal, min(until, self._clock() + session.expires_at - now)
        )

    def _of_run(self, token: RunToken) -> Principal:
        """A run. Raises SignatureRefused if it is not in progress, or its user is disabled."""
        run = self._run(token.run_id)
        user = self._principal(run.created_by, token.credential)
        authority = authority_of_run(self._policies, token.ocid, run.project, user.user)
        return replace(user, authority=authority, run_id=run.id, run_name=run.name)

    def _of_instance(self, token: InstanceToken, until: float, now: float) -> _Known:
        """A host. Raises SignatureRefused if the user who answers for it is disabled."""
        found = token.instance
        user = self._principal(found.user, f"{INSTANCE}{found.name}")
        authority = authority_of_instance(self._policies, found.id, found.project)
        until = min(until, self._clock() + token.expires_at - now)
        principal = replace(user, authority=authority, instance=found.name)
        return _Known((token.key,), principal, until, instance=found)

    def _check_run(self, token: RunToken, address: str) -> None:
        """Raises SignatureRefused unless the run is in progress, and its node is the one that has
        got the token. address: of the client."""
        self._run(token.run_id)
        if token.node is not None:
            self._check_node(token.run_id, token.node)
        if (
            self._bound
            and token.place is not None
            and not token.place.includes(address, self._boot)
        ):
            own = ", ".join(token.place.addresses)
            raise SignatureRefused(
                f"the token of {token.credential} was used from {address or 'a socket'}, and can "
                f"only be used from its host ({own}); if nodes reach the server through a proxy or "
                "through NAT, see trusted_proxies and [oci] bind_credentials in server.toml"
            )

    def _check_node(self, run_id: str, node: NodeRef) -> None:
        """Raises SignatureRefused if this start of a node is over. One of which nothing is recorded
        yet has just begun."""
        for found in self._store().runs.nodes(run_id, NodeFilter(ranks=[node.rank])):
            over = ""
            if found.incarnation > node.incarnation:
                over = "was started again since"
            elif found.incarnation == node.incarnation and _is_over(found):
                over = f"is {found.state}"
            if over:
                raise SignatureRefused(f"node {node.rank} of run {run_id} of the token {over}")

    def _run(self, run_id: str) -> RunSummary:
        """Raises SignatureRefused unless a run is in progress."""
        try:
            run = self._store().runs.summary(run_id)
        except NotFound:
            raise SignatureRefused(f"run {run_id} of the token does not exist") from None
        if RunState(run.state).at_rest:
            raise SignatureRefused(f"run {run_id} of the token is {run.state}")
        return run

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

    def _key(self, fingerprint: str) -> tuple[str, RSAPublicKey]:
        try:
            record = self._store().keys.get(fingerprint)
        except NotFound:
            raise SignatureRefused(
                f"the key with the fingerprint {fingerprint[:100]!r} is not known; "
                "`muster users keys add` adds one"
            ) from None
        return record.user, read_public_key(record.pem)

    def _principal(self, user: str, credential: str) -> Principal:
        return principal_of(self._store().accounts, self._policies, user, credential)


def _is_over(node: NodeRecord) -> bool:
    state = NodeState(node.state)
    return state.ended or state is NodeState.SCALED_DOWN


def operation_name(operation: str) -> str:
    """OCI's name of an operation such as `list_jobs`: `ListJobs`."""
    return "".join(word.capitalize() for word in operation.split("_"))


def key_name(key_id: str) -> str:
    """What of the id of a key says which one it is: a token as it is, and the fingerprint of
    TENANCY/USER/FINGERPRINT."""
    return key_id if is_signed_token(key_id) else key_id.rpartition("/")[2].lower()


def principal_of(
    accounts: Accounts, policies: CurrentPolicies, user: str, credential: str
) -> Principal:
    """A user as who asks. Raises SignatureRefused if there is none, or the user is disabled."""
    try:
        found: UserRecord = accounts.user(user)
    except NotFound:
        raise SignatureRefused(f"there is no user {user!r}") from None
    if found.disabled:
        raise SignatureRefused(f"the user {found.name} is disabled")
    return Principal(found.name, authority_of_user(policies, found.name), credential)
