"""A server that is killed while objects are put: nothing is half there, and nothing is left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.spec.ocids import TENANCY
from muster.storage.home import Home
from muster.storage.objects import KEPT
from muster.store.object_records import ObjectRange
from support.faults import until
from support.keys import public_pem
from support.oci_config import config_of
from support.oci_storage import NS, client_of
from support.server_process import ServerProcess, admin_token

oci = pytest.importorskip("oci")
models = oci.object_storage.models


def body(seed: int, number: int) -> bytes:
    """What is put under a name: its size and bytes follow from the number."""
    rng = Random(f"{seed} {number}")
    return rng.randbytes(rng.choice((10, 100_000, 5 << 20)))


class Puts:
    """Clients that put objects, whole and in parts, until the server is gone."""

    def __init__(self, client: Any, seed: int) -> None:
        self._client, self._seed = client, seed
        #: Those that the server has answered.
        self.done: set[int] = set()

    def run(self, first: int) -> None:
        number = first
        while True:
            try:
                self._put(number)
            except Exception as error:  # noqa: BLE001  however the connection breaks
                assert not isinstance(error, oci.exceptions.ServiceError), error
                return
            self.done.add(number)
            number += 10

    def _put(self, number: int) -> None:
        data = body(self._seed, number)
        if number % 3:
            self._client.put_object(NS, "crash", str(number), data)
            return
        details = models.CreateMultipartUploadDetails(object=str(number))
        upload = self._client.create_multipart_upload(NS, "crash", details).data.upload_id
        half, parts = len(data) // 2, []
        for part, block in enumerate((data[:half], data[half:]), 1):
            given = (NS, "crash", str(number), upload, part, block)
            etag = self._client.upload_part(*given).headers["etag"]
            parts.append(models.CommitMultipartUploadPartDetails(part_num=part, etag=etag))
        commit = models.CommitMultipartUploadDetails(parts_to_commit=parts)
        self._client.commit_multipart_upload(NS, "crash", str(number), upload, commit)


def files(home: Home) -> set[Path]:
    return {path for path in home.objects.rglob("*") if path.is_file()}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    yield Home(tmp_path / "home")


@pytest.mark.slow
def test_a_server_that_is_killed_while_objects_are_put(
    home: Home, tmp_path: Path, rng: Random
) -> None:
    admin_token(home)
    with closing(Backend(home)) as backend:
        (user,) = [one.name for one in backend.store.accounts.users() if one.admin]
        EmbeddedAccounts(backend).add_key(user, public_pem())
        config = config_of(user)
    seed = rng.randrange(1 << 30)
    with ServerProcess(home) as server:
        client = client_of(config, f"http://127.0.0.1:{server.port}")
        details = models.CreateBucketDetails(name="crash", compartment_id=TENANCY)
        client.create_bucket(NS, details)
        done: set[int] = set()
        for round_number in range(3):
            puts = Puts(client, seed)
            with ThreadPoolExecutor(4) as pool:
                base = 1000 * round_number
                running = [pool.submit(puts.run, base + first) for first in range(4)]
                wanted = rng.randrange(4, 20)
                until(lambda: len(puts.done) >= wanted, "objects are put")  # noqa: B023
                server.stop()
            for one in running:
                one.result()
            done |= puts.done
            server.start()
            server.wait_until_ready()
        listed = oci.pagination.list_call_get_all_results(client.list_objects, NS, "crash")
        names = {int(one.name) for one in listed.data.objects}
        assert done <= names  # what was answered is there
        for number in names:
            got = client.get_object(NS, "crash", str(number))
            data = body(seed, number)
            assert got.data.content == data
        _nothing_is_left(home, server)


def _nothing_is_left(home: Home, server: ServerProcess) -> None:
    """What no object and no upload has is removed by the next server, when it is old."""
    with closing(Backend(home)) as backend:
        store = backend.store
        of = store.buckets.get("crash")
        contents = [one.content for one in store.objects.listing(ObjectRange(of.id))]
        contents += [one.id for one in store.objects.uploads(of.id)]
        used = {piece.file for content in contents for piece in store.objects.pieces(content)}
    assert used <= {path.name for path in files(home)}
    old = time.time() - KEPT - 1
    for path in files(home):
        os.utime(path, (old, old))
    (home.objects / "ab").mkdir(exist_ok=True)
    leftover = home.objects / "ab" / "ableftover"
    leftover.write_bytes(b"half")
    os.utime(leftover, (old, old))
    server.stop()
    server.start()
    server.wait_until_ready()
    until(lambda: {path.name for path in files(home)} == used, "leftovers are removed", 60)
