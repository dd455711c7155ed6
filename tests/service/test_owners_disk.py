"""What runs of owners share is counted and pruned; links that they plant are not followed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from muster.api.answers import DiskItem
from muster.storage.home import Home
from muster.storage.owners import account_of, owner_home
from muster.unix_account import acting_as
from support.owners import Server, needs_root, server

pytestmark = needs_root

_SIZE = 500_000
_LONG = 31 * 86400.0


@pytest.fixture
def two() -> Iterator[Server]:
    with server() as made:
        yield made


def make(two: Server, owner: str, key: str, age: float) -> Path:
    """An environment of an owner, last used `age` seconds ago."""
    account = account_of(two.home, owner)
    folder = owner_home(two.home, account).environments / key
    about = {"requirements": [], "conda": False, "python": "3.11", "created": 1.0}
    with acting_as(account):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(os.urandom(_SIZE))
        place = folder / "about"
        place.write_bytes(msgspec.json.encode(about))
        os.utime(place, (1, time.time() - age))
    return folder


def disk(two: Server) -> dict[str, DiskItem]:
    return {item.kind: item for item in two.api("ana").disk()}


def shared_of(two: Server, owner: str) -> Home:
    return owner_home(two.home, account_of(two.home, owner))


def test_what_owners_have_is_counted(two: Server) -> None:
    make(two, "ana", "a" * 16, 0)
    make(two, "ben", "b" * 16, _LONG)
    volume = shared_of(two, "ben").volume("data")
    with acting_as(account_of(two.home, "ben")):
        volume.mkdir(parents=True)
        (volume / "file").write_bytes(os.urandom(_SIZE))
        (shared_of(two, "ben").root / "home" / "file").write_bytes(os.urandom(_SIZE))
    found = disk(two)
    assert found["environments"].count == 2
    assert 2 * _SIZE < found["environments"].size < 3 * _SIZE
    assert _SIZE < found["environments"].prunable < 2 * _SIZE
    assert found["volumes"].count == 1
    assert _SIZE < found["volumes"].size < 2 * _SIZE
    assert found["homes"].count == 2
    assert _SIZE < found["homes"].size < 2 * _SIZE
    assert found["temporary"].size < _SIZE


def test_environments_of_owners_are_pruned(two: Server) -> None:
    used, unused = make(two, "ana", "a" * 16, 0), make(two, "ben", "b" * 16, _LONG)
    assert two.api("ana").prune(None, None, dry_run=True).environments == ("b" * 16,)
    pruned = two.api("ana").prune(None, None)
    assert pruned.environments == ("b" * 16,)
    assert pruned.freed > _SIZE
    assert (used.exists(), unused.exists()) == (True, False)


def test_environments_with_one_name_are_told_apart(two: Server) -> None:
    used, unused = make(two, "ana", "a" * 16, 0), make(two, "ben", "a" * 16, _LONG)
    assert two.api("ana").prune(None, None).environments == ("a" * 16,)
    assert (used.exists(), unused.exists()) == (True, False)


def test_a_planted_link_or_pipe_harms_nobody(two: Server) -> None:
    """Ben's programs can write where environments are installed."""
    secret = two.home.root.parent / "precious"
    (secret / ("c" * 16)).mkdir(parents=True)
    (secret / ("c" * 16) / "file").write_bytes(os.urandom(_SIZE))
    secret.chmod(0o700)
    unused = make(two, "ana", "a" * 16, _LONG)
    shared = shared_of(two, "ben")
    with acting_as(account_of(two.home, "ben")):
        shared.environments.symlink_to(secret)
        shared.volumes.symlink_to(secret)
        carls = shared_of(two, "carl")
    with acting_as(account_of(two.home, "carl")):
        (carls.environments / ("d" * 16)).mkdir(parents=True)
        os.mkfifo(carls.environments / ("d" * 16) / "about")
        (carls.environments / ("e" * 16)).symlink_to(secret)
    assert disk(two)["environments"].count == 2
    pruned = two.api("ana").prune(None, None)
    assert {*pruned.environments} >= {"a" * 16, "d" * 16}
    assert not unused.exists()
    assert (secret / ("c" * 16) / "file").exists()
