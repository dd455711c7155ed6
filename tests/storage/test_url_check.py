"""Checks of read and write access to URLs, against a real store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from muster.bootstrap.workdir import WorkDir
from muster.errors import EngineError
from muster.storage.url_check import check_url
from support.object_store import ObjectStore
from support.servers import serving


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    store = ObjectStore()
    yield store
    store.close()


def check_urls(environ: dict[str, str], *urls: tuple[str, bool]) -> list[tuple[bool, str]]:
    """Check (URL, write) pairs in the process that `muster check` starts."""
    environ_without_stores = {
        k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "FSSPEC_"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "muster.storage.url_check"],
        input=json.dumps([{"url": url, "write": write} for url, write in urls]),
        capture_output=True,
        text=True,
        check=True,
        env=environ_without_stores | environ,
        timeout=120,
    )
    found = {n: (ok, text) for n, ok, text in map(json.loads, done.stdout.splitlines())}
    return [found[n] for n in range(len(urls))]


SETUP = """
import fsspec
s3 = fsspec.filesystem("s3")
for name in ("data-1", "data-2", "data-3"):
    s3.mkdir(name)
for path in ("data-1/in/deep/a", "data-2/in/a"):
    s3.pipe_file(path, b"x")
"""


def in_store(store: ObjectStore, code: str) -> str:
    """Run Python code with access to the store; its output."""
    argv = [sys.executable, "-c", code]
    environ = os.environ | store.environ
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout


def test_web_addresses_are_checked(tmp_path: Path) -> None:
    (tmp_path / "present").write_text("x")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with serving(server):
        web = f"http://127.0.0.1:{server.server_port}"
        found = check_urls({}, (f"{web}/present", False), (f"{web}/missing", False))
    closed = check_urls({}, (f"{web}/present", False))
    assert found == [
        (True, f"{web}/present can be read"),
        (
            False,
            f"{web}/missing: not found (check the path, or copy the files there)",
        ),
    ]
    ((ok, text),) = closed
    assert not ok
    assert text.startswith(f"{web}/present cannot be reached: ")
    assert f"127.0.0.1:{server.server_port}" in text.removeprefix(f"{web}/present")


@pytest.mark.shows("ads-configuration/bucket-before")
@pytest.mark.slow  # clients of S3 are slow to import
def test_access_to_buckets_is_checked(store: ObjectStore) -> None:
    in_store(store, SETUP)
    store.refuse_all("PUT", "data-2/out")
    store.refuse_all("GET", "data-2/in/a")
    store.refuse_all("DELETE", "data-3")
    store.refuse_all("POST", "data-3")  # also deletes, several at once
    found = check_urls(
        store.environ,
        ("s3://data-1/in", False),
        ("s3://data-1/in/deep/a", False),
        ("s3://data-1/out", True),
        ("s3://data-1/absent", False),
        ("s3://data-9/in", False),
        ("s3://data-9/out", True),
        ("s3://data-2/out", True),
        ("s3://data-2/in", False),
        ("s3://data-3/out", True),
    )
    no_bucket = "no bucket data-9 (create it first, or check its name)"
    hint = "check the path, or copy the files there"
    denied = "on data-2, or use other credentials)"
    assert found[:-1] == [
        (True, "s3://data-1/in can be read"),
        (True, "s3://data-1/in/deep/a can be read"),
        (True, "s3://data-1/out can be read and written"),
        (False, f"s3://data-1/absent: not found ({hint})"),
        (False, f"s3://data-9/in: {no_bucket}"),
        (False, f"s3://data-9/out: {no_bucket}"),
        (
            False,
            f"s3://data-2/out cannot be written: permission denied (allow s3:PutObject {denied}",
        ),
        (
            False,
            "s3://data-2/in cannot be read: permission denied (allow s3:GetObject and "
            f"s3:ListBucket {denied}",
        ),
    ]
    ok, text = found[-1]
    assert ok, "Muster itself deletes nothing at a URL"
    assert "can be read and written; .muster-check-" in text and "could not be deleted" in text
    listed = in_store(store, f"{SETUP.split('for', maxsplit=1)[0]}print(s3.find('data-1'))")
    assert listed == "['data-1/in/deep/a']\n", "the check leaves no object"


def test_missing_credentials_are_reported(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    ((ok, text),) = check_urls(environ, ("s3://data-1/in", True))
    assert not ok
    assert text.startswith("s3://data-1/in: no credentials were found (set AWS_ACCESS_KEY_ID")


@pytest.mark.slow  # the client retries
def test_an_unreachable_store_is_reported() -> None:
    environ = {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "FSSPEC_S3_ENDPOINT_URL": "http://127.0.0.1:1",
    }
    ((ok, text),) = check_urls(environ, ("s3://data-1/in", True))
    assert not ok
    assert text.startswith("s3://data-1/in cannot be reached: Could not connect")
    assert text.endswith("(check the address of the store, the proxy and the firewall)")


def test_folders_given_as_urls_are_checked(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert check_url(f"file://{tmp_path}/new", write=True)[0]
    assert list((tmp_path / "new").iterdir()) == []
    ok, text = check_url(f"file://{tmp_path}/empty", write=False)
    assert (ok, "not found" in text) == (False, True)
    (tmp_path / "file").touch()
    ok, text = check_url(f"file://{tmp_path}/file/below", write=True)
    assert not ok and "cannot be written" in text


def test_the_memory_file_system_is_checked() -> None:
    assert check_url("memory://check/out", write=True) == (
        True,
        "memory://check/out can be read and written",
    )


@pytest.mark.shows(
    "ads-configuration/policy-manage-objects", "cluster-design/policy-object-storage"
)
def test_an_error_about_a_work_directory_names_the_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`muster node` reports the error in the node's own log."""
    import fsspec

    class Refusing(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "oci"

        def makedirs(self, *_: Any, **__: Any) -> None:
            raise OracleError("404")

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url, **_: (Refusing(), url[6:]))
    with pytest.raises(EngineError, match="cannot be written to: OracleError: 404") as refused:
        WorkDir("oci://shared@tenancy/x", "job").make()
    assert "manage objects in compartment COMPARTMENT" in str(refused.value)
    assert "{target.bucket.name='shared'}" in str(refused.value)


class OracleError(Exception):
    """Like the error of OCI's SDK for a bucket to which the user has no access."""

    status, code = 404, "NotAuthorizedOrNotFound"


@pytest.mark.shows(
    "ads-configuration/policy-manage-objects", "cluster-design/policy-object-storage"
)
def test_an_error_about_an_oci_bucket_names_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    class Refusing(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "oci"

        def pipe_file(self, *_: Any, **__: Any) -> None:
            raise OracleError

        def info(self, *_: Any, **__: Any) -> Any:
            raise OracleError

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url, **_: (Refusing(), url[6:]))
    ok, text = check_url("oci://models@tenancy/run", write=True)
    assert (ok, text) == (
        False,
        "oci://models@tenancy/run cannot be written: permission denied (policy: Allow "
        "dynamic-group GROUP to manage objects in compartment COMPARTMENT where all "
        "{target.bucket.name='models'}; for a user, `group GROUP`)",
    )
    assert "to read objects in" in check_url("oci://models@tenancy/run", write=False)[1]


def test_passwords_are_not_shown() -> None:
    ok, text = check_url("sftp://me:hunter2@127.0.0.1:1/x", write=True)
    assert not ok and "hunter2" not in text
