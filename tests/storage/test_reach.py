"""Whether URLs can be read and written, asked of a real store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from muster.assemble.workdir import WorkDir
from muster.errors import EngineError
from muster.storage.reach import look_at
from support.object_store import ObjectStore


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    made = ObjectStore()
    yield made
    made.close()


def looked(environ: dict[str, str], *asked: tuple[str, bool]) -> list[tuple[bool, str]]:
    """What is found at each URL, by the process that `muster check` starts."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "FSSPEC_"))}
    done = subprocess.run(
        [sys.executable, "-m", "muster.storage.reach"],
        input=json.dumps([{"url": url, "write": write} for url, write in asked]),
        capture_output=True,
        text=True,
        check=True,
        env=kept | environ,
        timeout=120,
    )
    found = {n: (ok, text) for n, ok, text in map(json.loads, done.stdout.splitlines())}
    return [found[n] for n in range(len(asked))]


SETUP = """
import fsspec
s3 = fsspec.filesystem("s3")
for name in ("data-1", "data-2", "data-3"):
    s3.mkdir(name)
for path in ("data-1/in/deep/a", "data-2/in/a"):
    s3.pipe_file(path, b"x")
"""


def in_store(store: ObjectStore, code: str) -> str:
    """What a program prints that sees the store."""
    argv = [sys.executable, "-c", code]
    environ = os.environ | store.environ
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout


def test_what_the_web_answers(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        web = f"http://127.0.0.1:{server.server_port}"
        found = looked({}, (f"{web}/there", False), (f"{web}/missing", False))
        server.shutdown()
    closed = looked({}, (f"{web}/there", False))
    assert found == [
        (True, f"{web}/there can be read"),
        (
            False,
            f"{web}/missing: nothing is there (check the path, or copy there what is to be read)",
        ),
    ]
    ((ok, text),) = closed
    assert not ok
    assert text.startswith(f"{web}/there is not reached: ")
    assert f"127.0.0.1:{server.server_port}" in text.removeprefix(f"{web}/there")


@pytest.mark.shows("ads-configuration/bucket-before")
@pytest.mark.slow  # clients of S3 are slow to import; what is said of errors is below
def test_what_is_found_in_a_store(store: ObjectStore) -> None:
    in_store(store, SETUP)
    store.refuse_all("PUT", "data-2/out")
    store.refuse_all("GET", "data-2/in/a")
    store.refuse_all("DELETE", "data-3")
    store.refuse_all("POST", "data-3")  # many are deleted so
    found = looked(
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
    nowhere = "there is no bucket data-9 (make it first, or check its name)"
    hint = "check the path, or copy there what is to be read"
    denied = "on data-2, or use other credentials)"
    assert found[:-1] == [
        (True, "s3://data-1/in can be read"),
        (True, "s3://data-1/in/deep/a can be read"),
        (True, "s3://data-1/out can be read and written"),
        (False, f"s3://data-1/absent: nothing is there ({hint})"),
        (False, f"s3://data-9/in: {nowhere}"),
        (False, f"s3://data-9/out: {nowhere}"),
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
    assert "can be read and written; .muster-check-" in text and "stays there" in text
    listed = in_store(store, f"{SETUP.split('for', maxsplit=1)[0]}print(s3.find('data-1'))")
    assert listed == "['data-1/in/deep/a']\n", "it is as it was"


def test_without_credentials_or_a_store(tmp_path: Path) -> None:
    nobody = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    ((ok, text),) = looked(nobody, ("s3://data-1/in", True))
    assert not ok
    assert text.startswith("s3://data-1/in: no credentials were found (set AWS_ACCESS_KEY_ID")


@pytest.mark.slow  # the client tries some times
def test_a_store_that_is_not_there() -> None:
    environ = {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "FSSPEC_S3_ENDPOINT_URL": "http://127.0.0.1:1",
    }
    ((ok, text),) = looked(environ, ("s3://data-1/in", True))
    assert not ok
    assert text.startswith("s3://data-1/in is not reached: Could not connect")
    assert text.endswith("(check the address of the store, the proxy and the firewall)")


def test_folders_by_url(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert look_at(f"file://{tmp_path}/new", write=True)[0]
    assert list((tmp_path / "new").iterdir()) == []
    ok, text = look_at(f"file://{tmp_path}/empty", write=False)
    assert (ok, "nothing is there" in text) == (False, True)
    (tmp_path / "file").touch()
    ok, text = look_at(f"file://{tmp_path}/file/below", write=True)
    assert not ok and "cannot be written" in text


def test_the_memory_of_a_process() -> None:
    assert look_at("memory://check/out", write=True) == (
        True,
        "memory://check/out can be read and written",
    )


@pytest.mark.shows(
    "ads-configuration/policy-manage-objects", "cluster-design/policy-object-storage"
)
def test_a_work_directory_that_nobody_may_write_to_names_the_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that assembles itself finds out alone, in its own log."""
    import fsspec

    class Refusing(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "oci"

        def makedirs(self, *_: Any, **__: Any) -> None:
            raise OracleError("404")

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url, **_: (Refusing(), url[6:]))
    with pytest.raises(EngineError, match="cannot be written to: OracleError: 404") as refused:
        WorkDir("oci://meet@tenancy/x", "job").make()
    assert "manage objects in compartment COMPARTMENT" in str(refused.value)
    assert "{target.bucket.name='meet'}" in str(refused.value)


class OracleError(Exception):
    """As OCI's SDK raises it for a bucket that one may not know of."""

    status, code = 404, "NotAuthorizedOrNotFound"


@pytest.mark.shows(
    "ads-configuration/policy-manage-objects", "cluster-design/policy-object-storage"
)
def test_oracle_s_policy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    class Refusing(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "oci"

        def pipe_file(self, *_: Any, **__: Any) -> None:
            raise OracleError

        def info(self, *_: Any, **__: Any) -> Any:
            raise OracleError

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url, **_: (Refusing(), url[6:]))
    ok, text = look_at("oci://models@tenancy/run", write=True)
    assert (ok, text) == (
        False,
        "oci://models@tenancy/run cannot be written: permission denied (policy: Allow "
        "dynamic-group GROUP to manage objects in compartment COMPARTMENT where all "
        "{target.bucket.name='models'}; for a user, `group GROUP`)",
    )
    assert "to read objects in" in look_at("oci://models@tenancy/run", write=False)[1]


def test_passwords_are_not_shown() -> None:
    ok, text = look_at("sftp://me:hunter2@127.0.0.1:1/x", write=True)
    assert not ok and "hunter2" not in text
