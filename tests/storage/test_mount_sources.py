"""Sources of mounts: their kinds, and errors about invalid ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import get_args

import pytest
from fsspec.registry import known_implementations
from hypothesis import given
from hypothesis import strategies as st

from muster.secrets import redacted
from muster.spec.kinds import MountKind, classify_source
from muster.storage.mount_sources import (
    Named,
    check_sources,
    named_source,
    nfs_export,
)
from muster.storage.protocols import PROTOCOLS

#: Protocol -> (module, package) of the back end.
PACKAGES = {name: (p.module, p.package) for name, p in PROTOCOLS.items() if p.package}


@pytest.mark.shows("distributed-jobs/benefit-integration-storage")
@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("/data", "directory"),
        ("data", "directory"),
        ("./a:/b", "directory"),
        ("/a:/b", "directory"),
        ("/da:ta/x", "directory"),
        (":/b", "directory"),
        ("C:", "directory"),
        ("a:b", "directory"),
        ("nfs://host/export", "nfs"),
        ("host:/export", "nfs"),
        ("10.0.0.1:/export/a", "nfs"),
        ("s3://bucket/a", "url"),
        ("file:///data", "url"),
        ("memory://x", "url"),
        ("simplecache::s3://bucket", "url"),
        ("scratch:node/a", "scratch"),
        ("scratch:run/a", "scratch"),
        ("scratch:a", "scratch"),
        ("volume:a", "volume"),
        ("volume:", "volume"),
        ("./volume:a", "directory"),
        ("scratch:/export", "nfs"),
        ("volume://a", "url"),
    ],
)
def test_sources_have_a_kind(source: str, kind: str) -> None:
    assert classify_source(source) == kind


@given(st.text())
def test_any_text_has_one_kind(source: str) -> None:
    kind = classify_source(source)
    assert kind in get_args(MountKind)
    assert kind != "directory" or "://" not in source


def texts(*sources: str) -> list[str]:
    return [str(problem) for problem in check_sources(dict.fromkeys(sources, "mounts"))]


def test_directories_must_exist(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert texts(str(tmp_path)) == []
    (text,) = texts(str(tmp_path / "nope"))
    assert text == f"mounts: {tmp_path}/nope not found (create it, or check the path)"
    (text,) = texts(str(tmp_path / "file"))
    assert text == f"mounts: {tmp_path}/file is not a directory (give its folder)"
    (text,) = texts(str(tmp_path / "file" / "below"))
    assert "not found" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0)
    (text,) = texts(str(tmp_path / "d"))
    assert "cannot be read" in text


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("scratch:node/tmp", Named("node", "tmp")),
        ("scratch:run/a-b.c_D9", Named("run", "a-b.c_D9")),
        ("volume:data", Named("home", "data")),
        ("volume:...", Named("home", "...")),
        ("volume:" + "x" * 255, Named("home", "x" * 255)),
    ],
)
def test_named_directories_have_a_scope_and_a_name(source: str, named: Named) -> None:
    assert named_source(source) == named
    assert texts(source) == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "a b", "ä", "a\n", "/", "x" * 256, "a/", "${rank}"]
)
@pytest.mark.parametrize("scope", ["scratch:node/", "scratch:run/", "volume:"])
def test_invalid_names_are_reported(scope: str, name: str) -> None:
    if (scope, name) == ("volume:", "/"):
        return  # an export of the server called volume
    (text,) = texts(scope + name)
    if name:
        assert f"{name!r} cannot name a directory (use up to 255 letters, digits" in text
    else:
        assert f"mounts: {scope} needs a name (write " in text
    with pytest.raises(ValueError):
        named_source(scope + name)


@pytest.mark.parametrize("source", ["scratch:a", "scratch:node", "scratch:", "scratch:group/a"])
def test_scratch_directories_need_a_scope(source: str) -> None:
    (text,) = texts(source)
    assert text.endswith(
        f"mounts: {source} needs an owner and a name "
        "(write scratch:node/NAME, scratch:incarnation/NAME or scratch:run/NAME)"
    )
    with pytest.raises(ValueError):
        named_source(source)


@given(st.text())
def test_a_valid_name_stays_in_its_folder(name: str) -> None:
    if not texts(f"scratch:run/{name}"):
        assert Path("/a", named_source(f"scratch:run/{name}").name).resolve().parent == Path("/a")


def test_each_problem_is_reported_once(tmp_path: Path) -> None:
    nope = str(tmp_path / "nope")
    found = texts(nope, "blub://x", nope)
    assert len(found) == 2
    assert found[1].startswith("mounts: blub://x: no package can read blub://")
    assert "s3" in found[1]


def test_protocols_of_fsspec_itself_need_no_package() -> None:
    assert texts("file:///data", "local:///data", "simplecache::file:///data") == []


def test_memory_is_refused() -> None:
    (text,) = texts("memory://a")
    assert "in the memory of one process" in text


@pytest.mark.parametrize("protocol", sorted(PACKAGES))
def test_missing_packages_are_reported(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(
        sys.modules["fsspec.registry"], "registry", {}
    )  # without the protocols that other tests used
    module, package = PACKAGES[protocol]
    (text,) = texts(f"{protocol}://bucket/a")
    assert text == f"mounts: {protocol}://bucket/a needs {package} (pip install {package})"
    seen = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: seen.append(name) or True)
    assert texts(f"{protocol}://bucket/a") == []
    assert seen == [module]


def test_packages_are_those_that_fsspec_loads() -> None:
    """Where the package itself has fsspec's class, both must name the same module."""
    for protocol, (module, _) in PACKAGES.items():
        own = known_implementations.get(protocol, {}).get("class", "fsspec").partition(".")[0]
        assert own in ("fsspec", module), protocol


def test_chains_need_every_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(sys.modules["fsspec.registry"], "registry", {})
    (text,) = texts("simplecache::s3://bucket/a")
    assert "needs s3fs" in text


def test_secrets_are_not_shown() -> None:
    (text,) = texts("blub://me:hunter2@host/a")
    assert "hunter2" not in text
    assert "blub://me@host/a" in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("oci://bucket@namespace/a", "oci://bucket@namespace/a"),
        ("abfs://container@account.dfs.core.windows.net/a",) * 2,
        ("sftp://me@host/a", "sftp://me@host/a"),
        ("sftp://me:pw@host/a", "sftp://me@host/a"),
        ("s3://KEY:SECRET@bucket/a", "s3://KEY@bucket/a"),
        ("https://token@host/a", "https://host/a"),
        ("simplecache::HTTPS://token@host/a", "simplecache::HTTPS://host/a"),
        ("simplecache::oci://bucket@namespace/a", "simplecache::oci://bucket@namespace/a"),
    ],
)
def test_only_credentials_are_hidden(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize(
    ("source", "export"),
    [
        ("nfs://host/a", "host:/a"),
        ("host:/a/b", "host:/a/b"),
        ("nfs://host:/a", "host:/a"),
        ("nfs://[fe80::1]/", "[fe80::1]:/"),
    ],
)
def test_what_an_nfs_source_names(source: str, export: str) -> None:
    assert nfs_export(source) == export
    assert texts(source) == []
