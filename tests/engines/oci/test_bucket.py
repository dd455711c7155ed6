"""The bucket of messages, with the real SDK and Object Storage of Muster's own server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from muster.engines.oci import bucket as module
from muster.engines.oci.bucket import Bucket
from muster.engines.oci.client import Service
from muster.engines.oci.examine import examine
from muster.engines.oci.profile import OciProfile, Place
from muster.engines.oci.refusals import CannotRun
from muster.node.tunnel import MAX_PART, Unavailable
from muster.node.tunnel_process import LinkedObjects
from support.oci_config import write_config
from support.oci_service import needs_sdk
from support.oci_storage import NS, VISION, Storage, serving_storage

pytestmark = needs_sdk
SOON = timedelta(minutes=5)


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    with serving_storage() as made:
        yield made


def profile_of(storage: Storage, folder: Path, name: str) -> OciProfile:
    """That of a user who may submit runs, and no more."""
    config = folder / "config"
    write_config(config, storage.configs["sam"])
    return OciProfile(
        VISION, "p", endpoint=storage.url, config=str(config), bucket=f"oci://{name}@{NS}/m"
    )


@pytest.fixture
def bucket(storage: Storage, tmp_path: Path) -> Bucket:
    profile = profile_of(storage, tmp_path, storage.bucket())
    assert profile.place is not None
    return Bucket(Service(profile), profile.place)


def test_objects_are_written_read_and_deleted(bucket: Bucket) -> None:
    assert bucket.get("m/a b") is None
    bucket.put("m/a b", b"\0content")
    assert bucket.get("m/a b") == b"\0content"
    bucket.put("m/empty", b"")
    assert bucket.get("m/empty") == b""
    bucket.put("m/large", bytes(2 * MAX_PART))
    found = bucket.get("m/large")
    assert found is not None and len(found) == MAX_PART + 1
    bucket.delete("m/a b")
    bucket.delete("m/a b")
    assert bucket.get("m/a b") is None


def test_a_folder_is_listed_over_pages_and_cleared(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    for name in ("f/3", "f/1", "f/2", "g/1", "f/4", "f/5"):
        bucket.put(name, b"x")
    assert [*bucket.names("f/")] == [f"f/{number}" for number in range(1, 6)]
    bucket.clear("f/")
    assert [*bucket.names("")] == ["g/1"]


def test_a_link_reaches_its_folder_only_until_it_is_ended(bucket: Bucket) -> None:
    link = bucket.link("run.0", "m/muster/r1/", datetime.now(UTC) + SOON)
    other = bucket.link("run.1", "m/muster/r1/", datetime.now(UTC) + SOON)
    objects = LinkedObjects(link)
    objects.put("m/muster/r1/up/a", b"content")
    assert objects.get("m/muster/r1/up/a") == bucket.get("m/muster/r1/up/a") == b"content"
    with pytest.raises(Unavailable, match="404"):
        objects.put("m/muster/r2/up/a", b"content")
    bucket.end_links("run.0", "m/muster/r1/")
    with pytest.raises(Unavailable, match="404"):
        objects.put("m/muster/r1/up/a", b"content")
    objects.close()
    objects = LinkedObjects(other)
    assert objects.get("m/muster/r1/up/a") == b"content"
    objects.close()


def test_a_bucket_that_does_not_exist_names_what_may_be_missing(
    storage: Storage, tmp_path: Path
) -> None:
    nowhere = Bucket(Service(profile_of(storage, tmp_path, "x")), Place(NS, "nowhere", ""))
    with pytest.raises(CannotRun, match="allow group GROUP to inspect objects"):
        [*nowhere.names("f/")]
    with pytest.raises(CannotRun, match="manage buckets"):
        nowhere.link("n", "f/", datetime.now(UTC) + SOON)


def test_a_check_of_the_engine_uses_it_and_leaves_nothing(storage: Storage, tmp_path: Path) -> None:
    name = storage.bucket()
    profile = profile_of(storage, tmp_path, name)
    [found] = [one for one in examine(profile) if one.name == "bucket"]
    assert found.works and "carries messages of nodes" in found.says
    client = storage.clients["sam"]
    assert client.list_objects(NS, name).data.objects == []
    assert client.list_preauthenticated_requests(NS, name).data == []
    broken = profile_of(storage, tmp_path, "nowhere")
    [found] = [one for one in examine(broken) if one.name == "bucket"]
    assert not found.works and "manage buckets" in found.says and found.advice
