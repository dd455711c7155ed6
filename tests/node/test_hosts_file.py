"""Names of nodes in the hosts file of a pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.node.hosts_file import HostsFile, encode_names

OF_KUBELET = "127.0.0.1 localhost\n10.0.0.7 demo-0\n"


def hosts_file(folder: Path, *names: tuple[str, tuple[str, ...]]) -> HostsFile:
    (folder / "names").write_text(encode_names(names))
    return HostsFile(str(folder / "hosts"), str(folder / "names"))


def test_names_are_added_and_replaced(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(OF_KUBELET)
    hosts_file(tmp_path, ("10.0.0.7", ("w-0.lab", "w-0")), ("10.0.0.8", ("w-1.lab",))).update()
    added = "10.0.0.7 w-0.lab w-0\n10.0.0.8 w-1.lab\n"
    assert hosts.read_text() == f"{OF_KUBELET}\n# nodes of the run, by Muster\n{added}"
    hosts_file(tmp_path, ("10.0.0.9", ("w-0.lab",))).update()
    shorter = "10.0.0.9 w-0.lab\n"
    assert hosts.read_text() == f"{OF_KUBELET}\n# nodes of the run, by Muster\n{shorter}"


def test_names_are_added_again_when_the_file_was_written_anew(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(OF_KUBELET)
    one = hosts_file(tmp_path, ("10.0.0.7", ("w-0",)))
    one.update()
    first = hosts.read_text()
    hosts.write_text(OF_KUBELET)
    one.update()
    assert hosts.read_text() == first


def test_it_is_written_in_place_and_not_without_need(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(OF_KUBELET)
    before = hosts.stat().st_ino
    one = hosts_file(tmp_path, ("10.0.0.7", ("w-0",)))
    one.update()
    written = hosts.stat()
    assert written.st_ino == before
    one.update()
    assert hosts.stat().st_mtime_ns == written.st_mtime_ns


def test_a_file_that_cannot_be_written_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hosts").mkdir()
    hosts_file(tmp_path, ("10.0.0.7", ("w-0",))).update()
    told = capsys.readouterr().err
    text = f"names of nodes do not resolve: {tmp_path}/hosts cannot be written by user "
    assert told.startswith(f"muster-node: note: {text}")
