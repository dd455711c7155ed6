"""The files with which programs of a run act as the run."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.lifecycle.status import NodeRef
from muster.node.files import replace_file
from muster.node.machine import boot_id
from muster.plan.model import PrincipalPlan
from muster.run_tokens import LIFETIME, Place, RunToken, run_token
from muster.storage.home import Home
from muster.storage.key_pool import new_key, pem
from muster.storage.run_credentials import COPIES, RunCredentials
from muster.storage.token_seed import signed_tokens
from support.sessions import make_plan

PRINCIPAL = PrincipalPlan("tenancy", "compartment", "muster.invalid", "http://127.0.0.1:1")
PLAN = make_plan("true")
ELSEWHERE = Place(("10.0.0.7",), "other")
NODE = NodeRef(0, 0)
Make = Callable[..., RunCredentials]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    home.run_dir(PLAN.run_id).path.mkdir()
    return home


@pytest.fixture
def make(home: Home) -> Make:
    def make(principal: PrincipalPlan = PRINCIPAL, lifetime: float = LIFETIME) -> RunCredentials:
        return RunCredentials(home, PLAN, principal, lifetime)

    return make


def take(count: int) -> list[bytes]:
    return [pem(new_key()) for _ in range(count)]


def token_of(home: Home, made: RunCredentials, slot: int = 0) -> RunToken:
    return run_token(signed_tokens(home).read(text_of(made, "rpst", slot)), time.time())


def text_of(made: RunCredentials, name: str, slot: int = 0) -> str:
    return made.read(slot)[name if slot == COPIES else f"{slot}/{name}"]


def key_of(made: RunCredentials, slot: int = 0) -> object:
    loaded = load_pem_private_key(text_of(made, "key.pem", slot).encode(), None)
    return loaded.public_key()


def test_each_node_has_a_token_of_its_own_key(home: Home, make: Make) -> None:
    make().prepare([0, 1], take)
    made = make()
    for rank in (0, 1):
        made.issue(rank, NodeRef(rank, 4), ELSEWHERE)
        token = token_of(home, made, rank)
        assert token.keys == (key_of(made, rank),)
        assert (token.run_id, token.node) == (PLAN.run_id, NodeRef(rank, 4))
        assert token.place == ELSEWHERE
    assert key_of(made, 0) != key_of(made, 1)
    timeout = made.timeout()
    assert timeout is not None
    assert LIFETIME / 2 - 60 < timeout <= LIFETIME / 2
    assert made.renew() is None


def test_files_are_their_owner_s_alone(make: Make) -> None:
    made = make()
    made.issue(0, NODE)
    made.issue(COPIES)
    for path in (made.folder, *made.folder.glob("**/*")):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    assert sorted(made.read(0)) == ["0/key.pem", "0/rpst"]
    assert sorted(made.read(COPIES)) == ["key.pem", "rpst"]


def test_a_node_without_a_key_has_that_of_another_one_and_soon_its_own(
    home: Home, make: Make
) -> None:
    make().prepare([0, 1, 2], lambda _count: [pem(new_key())])
    made = make()
    for rank in (0, 1, 2):
        made.issue(rank, NodeRef(rank, 0), ELSEWHERE)
    shared = key_of(made)
    assert [key_of(made, rank) for rank in (1, 2)] == [shared, shared]
    assert [token_of(home, made, rank).node for rank in (1, 2)] == [NodeRef(1, 0), NodeRef(2, 0)]
    assert (made.timeout() or 0) < 60
    for rank in (1, 2):
        make_due(made, rank)
        assert made.renew() == rank
        token = token_of(home, made, rank)
        assert token.keys == (key_of(made, rank), shared)
        assert (token.node, token.place) == (NodeRef(rank, 0), ELSEWHERE)
    assert len({text_of(made, "key.pem", rank) for rank in (0, 1, 2)}) == 3
    assert (made.timeout() or 0) > 60


def make_due(made: RunCredentials, slot: int) -> None:
    """Have those of a node be the next to be replaced."""
    made._holders[slot].renew_at = 0.0
    made._find_due()


def test_a_restarted_node_has_another_token_of_its_key(home: Home, make: Make) -> None:
    made = make()
    made.issue(0, NODE, ELSEWHERE)
    first, key = token_of(home, made), key_of(made)
    made.issue(0, NodeRef(0, 1), ELSEWHERE)
    second = token_of(home, made)
    assert (second.node, second.keys) == (NodeRef(0, 1), (key,))
    assert second.id != first.id


def test_a_node_that_has_moved_gets_another_key_soon(home: Home, make: Make) -> None:
    made = make()
    made.issue(0, NODE, ELSEWHERE)
    assert (made.timeout() or 0) > 60
    moved = Place(("10.0.0.8",), "another")
    made.issue(0, NodeRef(0, 1), moved)
    assert token_of(home, made).place == moved
    assert (made.timeout() or 0) < 60


def test_a_node_of_this_machine(home: Home, make: Make) -> None:
    made = make()
    made.issue(0, NODE, here=["127.9.8.7"])
    place = token_of(home, made).place
    assert place is not None
    assert all(place.includes(one, boot_id()) for one in ("127.0.0.1", "127.9.8.7", "::1"))
    assert not place.includes("127.0.0.2", boot_id())
    assert not place.includes("127.0.0.1", "another machine's")
    make_due(made, 0)
    made.renew()
    assert token_of(home, made).place == place


def test_nothing_is_replaced_of_a_node_that_has_ended(make: Make) -> None:
    made = make()
    made.issue(0, NODE)
    made.drop(0)
    made.drop(0)
    assert made.timeout() is None
    assert made.renew() is None


def test_the_next_process_finds_the_keys(home: Home, make: Make) -> None:
    made = make()
    made.issue(0, NODE)
    key = key_of(made)
    later = make()
    later.issue(0, NODE)
    assert key_of(later) == key
    due = time.time() - LIFETIME
    os.utime(made.folder / "0" / "key.pem", (due, due))
    later = make()
    later.issue(0, NODE)
    assert later.renew() == 0
    assert token_of(home, later).keys == (key_of(later), key)


@pytest.mark.parametrize("content", [b"", b"x", b"-----BEGIN PRIVATE KEY-----\nAAAA", b"\xff"])
def test_a_damaged_key_is_replaced(home: Home, make: Make, content: bytes) -> None:
    make().issue(0, NODE)
    (make().folder / "0" / "key.pem").write_bytes(content)
    made = make()
    made.issue(0, NODE)
    assert token_of(home, made).keys == (key_of(made),)


def test_a_token_whose_key_was_not_written(
    home: Home, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a process that was killed between the two files."""
    made = make()
    made.issue(0, NODE)
    before, token = key_of(made), token_of(home, made)

    def write(path: Path, content: bytes, mode: int) -> None:
        if path.name == "key.pem":
            raise OSError("killed")
        replace_file(path, content, mode)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="killed"):
        patch.setattr("muster.storage.run_credentials.replace_file", write)
        made.replace(0)
    assert key_of(made) == before
    assert token_of(home, made).id != token.id
    assert before in token_of(home, made).keys
    later = make()
    later.issue(0, NODE)
    assert token_of(home, later).keys == (key_of(later),) == (before,)


def test_only_the_credentials_are_sent_to_other_machines(make: Make) -> None:
    made = make()
    made.issue(0, NODE)
    (made.folder / "0" / "of-a-program").write_bytes(b"\xff")
    assert [*made.read(0)] == ["0/rpst", "0/key.pem"], "in the order in which they are written"


def test_what_cannot_be_replaced_is_tried_again(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make()
    made.issue(0, NODE)
    before = made.read(0)
    make_due(made, 0)

    def fail(*_given: object, **_more: object) -> str:
        raise InvalidInput(Problem("", "the key is missing"))

    with monkeypatch.context() as patch:
        patch.setattr("muster.run_tokens.issue", fail)
        assert made.renew() is None
    assert "cannot be replaced yet: the key is missing" in capsys.readouterr().err
    assert made.read(0) == before
    assert 0 < (made.timeout() or 0) <= 60


def test_programs_trust_the_server_and_who_they_trusted_before(home: Home, make: Make) -> None:
    home.oci_certificate.mkdir()
    (home.oci_certificate / "ca.pem").write_text("the server's\n")
    made = make(replace(PRINCIPAL, own_authority=True))
    made.issue(0, NODE)
    text = made.read(0)["authorities.pem"]
    assert text.endswith("the server's\n")
    assert text.count("BEGIN CERTIFICATE") > 10


def test_nothing_is_left_of_a_run_that_has_ended(make: Make) -> None:
    made = make()
    made.issue(0, NODE)
    made.issue(COPIES)
    (made.folder / "1").write_text("of a program")
    made.remove()
    assert [one.name for one in made.folder.iterdir()] == ["1"]
    (made.folder / "1").unlink()
    made.remove()
    assert not made.folder.exists()
    made.remove()
