"""Who signs a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from muster.caller import NotPermitted, Role
from muster.iam.authenticate import REMEMBERED
from muster.iam.principals import Principal, Principals, SignedRequest
from muster.iam.signatures import SignatureRefused, parse_authorization
from muster.lifecycle.status import NodeRef
from muster.node.machine import boot_id
from muster.permissions import Permission, Right
from muster.run_tokens import Place, RunIdentity, issue
from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.service.policies import EmbeddedPolicies
from muster.signed_tokens import SignedTokens
from muster.storage.home import Home
from muster.store.account_records import MemberRecord, ProjectRecord, UserKind, UserRecord
from muster.store.records import Lease, RunRecord, RunStep
from support import store_records
from support.keys import private_key, public_pem
from support.oci_config import config_of

oci = pytest.importorskip("oci")

TOKENS = SignedTokens(b"s" * 32)
NOW = 1_800_000_000.0
BODY = b'{"a": 1}'


class World(Struct):
    """A user with a key, who submits to `vision`."""

    backend: Backend
    principals: Principals
    config: dict[str, str]
    clock: list[float]

    def start(self, **given: Any) -> RunRecord:
        """A run of ana in `vision`."""
        of = store_records.job(project="vision")
        given = {"state": "IN_PROGRESS", "created_by": "ana", **given}
        nodes = [store_records.node(0)]
        return store_records.accept(self.backend.store, of, nodes, store_records.OWNER, **given)

    def request_of(
        self, run_id: str, number: int = 0, issued: float = NOW, **given: Any
    ) -> SignedRequest:
        """A request that a run signs, with the key with a number. issued: when its token was.
        given: see `issue`."""
        identity = RunIdentity(run_id, "ocid", "tenancy", "compartment")
        token = issue(TOKENS, identity, private_key().public_key(), issued, **given)
        return self.request(signer=oci.auth.signers.SecurityTokenSigner(token, private_key(number)))

    def request(
        self, verb: str = "GET", body: bytes | None = None, signer: Any = None
    ) -> SignedRequest:
        """A request as the SDK signs it."""
        import requests

        headers = {"date": formatdate(NOW, usegmt=True), "content-type": "application/json"}
        url = "http://127.0.0.1/20190101/jobs?limit=1"
        prepared = requests.Request(verb, url, headers, data=body).prepare()
        names = ("tenancy", "user", "fingerprint")
        key = {"private_key_content": self.config["key_content"]}
        if signer is None:
            signer = oci.signer.Signer(*(self.config[name] for name in names), None, **key)
        signer.do_request_sign(prepared)
        sent = [
            (name.lower().encode(), value if isinstance(value, bytes) else value.encode())
            for name, value in prepared.headers.items()
        ]
        return SignedRequest(verb, "/20190101/jobs?limit=1", sent, body)

    def authenticate(self, request: SignedRequest, now: float = NOW) -> Principal:
        signature = parse_authorization(request.header("authorization"))
        return self.principals.authenticate(signature, request, now)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(Backend(Home(tmp_path / "home"))) as backend:
        accounts = backend.store.accounts
        accounts.create_user(UserRecord("ana", UserKind.PERSON, 0.0))
        accounts.create_project(ProjectRecord("vision", 0.0))
        accounts.set_member(MemberRecord("vision", "ana", Role.SUBMITTER))
        EmbeddedAccounts(backend).add_key("ana", public_pem())
        config, clock = config_of("ana"), [0.0]
        principals = Principals(lambda: backend.store, backend.policies, TOKENS, lambda: clock[0])
        yield World(backend, principals, config, clock)


def refusal(world: World, found: Principal) -> str:
    """Why a principal may not read an object."""
    caller = found.doing("get_object").caller("vision")
    with pytest.raises(NotPermitted) as refused:
        caller.require(Permission.OBJECT_READ, "call GetObject", {"target.bucket.name": "data"})
    assert refused.value.permission == Permission.OBJECT_READ
    return str(refused.value)


def test_a_refusal_of_a_run_names_the_run_and_what_its_dynamic_group_needs(world: World) -> None:
    """And not the user who has started it, whose roles give it nothing."""
    policies = EmbeddedPolicies(world.backend)
    (stored,) = policies.policies()
    policies.delete_policy(stored.id, stored.version)
    run = world.start()
    request = world.request_of(run.id)
    start = f"job run {run.name} may not call GetObject in project vision: OBJECT_READ is missing"
    wanted = "to read objects in compartment vision where "
    assert refusal(world, world.authenticate(request)) == (
        f"{start}, and it is in no dynamic group; a policy needs: Allow any-user {wanted}"
        "all {request.principal.type = 'datasciencejobrun', target.bucket.name = 'data'}"
    )
    policies.create_dynamic_group("vision-runs", "resource.type = 'datasciencejobrun'")
    given = f"Allow dynamic-group vision-runs {wanted}target.bucket.name = 'data'"
    found = world.authenticate(request)
    assert refusal(world, found) == f"{start}; its dynamic group needs: {given}"
    policies.create_policy("runs", [given])
    on = {"target.bucket.name": "data"}
    assert found.caller("vision").allows(Permission.OBJECT_READ, on)


def test_who_signs_has_the_rights_of_the_user(world: World) -> None:
    found = world.authenticate(world.request("POST", BODY))
    assert found.user == "ana"
    assert found.credential == world.config["fingerprint"]
    assert Right.SUBMIT in found.caller("vision").rights
    assert found.caller("sound").rights == frozenset()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"verb": "DELETE"}, "does not fit"),
        ({"target": "/20190101/jobs?limit=2"}, "does not fit"),
        ({"body": b'{"a": 2}'}, "digest"),
        ({"headers": ()}, "date"),
    ],
)
def test_a_changed_request_is_refused(world: World, change: dict[str, Any], why: str) -> None:
    request = world.request("POST", BODY)
    signature = parse_authorization(request.header("authorization"))
    with pytest.raises(SignatureRefused, match=why):
        world.principals.authenticate(signature, replace(request, **change), NOW)


def test_a_body_has_to_be_signed(world: World) -> None:
    request = world.request("DELETE")
    signature = parse_authorization(request.header("authorization"))
    with pytest.raises(SignatureRefused, match="not signed: content-length"):
        world.principals.authenticate(signature, replace(request, verb="PUT", body=b""), NOW)


def test_an_old_request_is_refused(world: World) -> None:
    with pytest.raises(SignatureRefused, match="clock"):
        world.authenticate(world.request(), NOW + 301)


def test_a_key_is_remembered_for_a_few_seconds(world: World) -> None:
    request = world.request()
    signature = parse_authorization(request.header("authorization"))
    assert not world.principals.remembers(signature)
    world.authenticate(request)
    assert world.principals.remembers(signature)
    world.backend.store.keys.delete(world.config["fingerprint"])
    assert world.authenticate(request).user == "ana"
    world.clock[0] = REMEMBERED
    assert not world.principals.remembers(signature)
    with pytest.raises(SignatureRefused, match="is not known"):
        world.authenticate(request)


def test_a_key_is_remembered_once(world: World) -> None:
    """Whatever the client writes before its fingerprint."""
    for tenancy in ("one", "another"):
        world.config["tenancy"] = tenancy
        world.authenticate(world.request())
    assert len(world.principals._known) == 1


def test_a_remembered_key_checks_each_signature(world: World) -> None:
    request = world.request()
    world.authenticate(request)
    with pytest.raises(SignatureRefused, match="does not fit"):
        world.authenticate(replace(request, target="/20190101/jobs"))


def test_a_disabled_user_is_refused(world: World) -> None:
    world.backend.store.accounts.change_user("ana", {"disabled": True})
    with pytest.raises(SignatureRefused, match="is disabled"):
        world.authenticate(world.request())


def test_a_run_acts_as_itself(world: World) -> None:
    run = world.start()
    found = world.authenticate(world.request_of(run.id))
    assert (found.user, found.credential, found.run_id) == ("ana", f"run {run.id}", run.id)
    assert found.caller("vision").rights == {Right.READ, Right.SUBMIT}
    assert found.caller("default").rights == frozenset()


def test_a_run_of_an_administrator_has_the_rights_of_runs(world: World) -> None:
    accounts = world.backend.store.accounts
    accounts.change_user("ana", {"admin": True})
    found = world.authenticate(world.request_of(world.start().id))
    assert found.caller("vision").rights == {Right.READ, Right.SUBMIT}
    assert found.caller("default").rights == frozenset()


def test_what_runs_may_do_is_a_policy(world: World) -> None:
    request = world.request_of(world.start().id)
    policies = world.backend.store.policies
    policies.delete_policy(policies.policy_named("default", "job-runs"))
    assert world.authenticate(request).caller("vision").rights == frozenset()
    assert not world.authenticate(request).authority.reaches("vision")


def test_a_run_of_a_disabled_user_is_refused(world: World) -> None:
    request = world.request_of(world.start().id)
    accounts = world.backend.store.accounts
    accounts.remove_member("vision", "ana")
    assert world.authenticate(request).authority.reaches("vision")
    accounts.change_user("ana", {"disabled": True})
    world.clock[0] += REMEMBERED
    with pytest.raises(SignatureRefused, match="ana is disabled"):
        world.authenticate(request)


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "CANCELED", "SUSPENDED"])
def test_a_run_without_programs_is_refused_at_once(world: World, state: str) -> None:
    run = world.start()
    request = world.request_of(run.id)
    world.authenticate(request)
    signature = parse_authorization(request.header("authorization"))
    assert not world.principals.remembers(signature)
    lease = Lease.first(run.id, store_records.OWNER)
    world.backend.store.runs.save(RunStep(lease, {"state": state}, [], [], 2.0))
    with pytest.raises(SignatureRefused, match=f"of the token is {state}"):
        world.authenticate(request)


def save_node(world: World, run_id: str, **changes: Any) -> None:
    """Record something of the only node of a run."""
    (node,) = world.backend.store.runs.nodes(run_id)
    lease = Lease.first(run_id, store_records.OWNER)
    world.backend.store.runs.save(RunStep(lease, {}, [replace(node, **changes)], [], 2.0))


def test_a_node_acts_as_its_run(world: World) -> None:
    run = world.start()
    found = world.authenticate(world.request_of(run.id, node=NodeRef(0, 0)))
    assert (found.user, found.credential) == ("ana", f"run {run.id} node 0")
    assert found.run_id == run.id


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "STOPPED", "SCALED_DOWN"])
def test_a_node_that_has_ended_is_refused_at_once(world: World, state: str) -> None:
    run = world.start()
    request = world.request_of(run.id, node=NodeRef(0, 0))
    for alive in ("STARTING", "RUNNING", "READY"):
        save_node(world, run.id, state=alive)
        world.authenticate(request)
    save_node(world, run.id, state=state)
    with pytest.raises(SignatureRefused, match=f"node 0 of run {run.id} of the token is {state}"):
        world.authenticate(request)
    world.authenticate(world.request_of(run.id, node=NodeRef(0, 1)))  # not recorded yet


def test_a_start_of_a_node_before_the_present_one_is_refused(world: World) -> None:
    """Also one of an earlier attempt of the run: numbers of starts grow over all of them."""
    run = world.start()
    before, now = (world.request_of(run.id, node=NodeRef(0, number)) for number in (0, 1))
    world.authenticate(before)
    save_node(world, run.id, state="STARTING", incarnation=1)
    world.authenticate(now)
    with pytest.raises(SignatureRefused, match=rf"node 0 of run {run.id} .* was started again"):
        world.authenticate(before)


HERE, THERE = Place(("10.0.0.7", "127.0.0.1", "fd00::7"), boot_id()), Place(("127.0.0.1",), "other")


@pytest.mark.parametrize(
    ("place", "address", "allowed"),
    [
        (HERE, "10.0.0.7", True),
        (HERE, "::ffff:10.0.0.7", True),
        (HERE, "fd00:0::7", True),
        (HERE, "127.0.0.1", True),
        (HERE, "127.0.0.2", False),
        (HERE, "10.0.0.70", False),
        (HERE, "", False),
        (THERE, "127.0.0.1", False),
        (None, "10.0.0.8", True),
    ],
)
def test_a_token_is_of_use_on_the_host_of_its_node(
    world: World, place: Place | None, address: str, allowed: bool
) -> None:
    run = world.start()
    request = replace(world.request_of(run.id, node=NodeRef(0, 0), place=place), address=address)
    if allowed:
        assert world.authenticate(request).user == "ana"
        return
    with pytest.raises(SignatureRefused, match=r"can only be used from its host .*trusted_proxies"):
        world.authenticate(request)
    anywhere = Principals(lambda: world.backend.store, world.backend.policies, TOKENS, bound=False)
    signature = parse_authorization(request.header("authorization"))
    assert anywhere.authenticate(signature, request, NOW).user == "ana"


def test_a_run_that_was_deleted_is_refused(world: World) -> None:
    with pytest.raises(SignatureRefused, match="run gone of the token does not exist"):
        world.authenticate(world.request_of("gone"))


def test_a_token_is_of_no_use_without_its_key(world: World) -> None:
    with pytest.raises(SignatureRefused, match="does not fit"):
        world.authenticate(world.request_of(world.start().id, number=1))


def test_a_token_that_has_expired_is_refused(world: World) -> None:
    with pytest.raises(SignatureRefused, match="has expired"):
        world.authenticate(world.request_of(world.start().id, issued=NOW - 3600))
