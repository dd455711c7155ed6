"""Sockets in folders."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from muster.node import unix_sockets


@pytest.mark.parametrize("way", ["short", "long", "long, elsewhere"])
def test_the_length_of_the_path_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    folder = tmp_path / ("x" if way == "short" else "x" * 200)
    folder.mkdir()
    if way == "long, elsewhere":
        monkeypatch.delattr(os, "O_PATH")
    for _ in range(2):  # the second takes the place of the first
        with unix_sockets.listen(str(folder), "s") as listener:
            assert stat.S_IMODE(os.stat(folder / "s").st_mode) == 0o600
            with unix_sockets.connect(str(folder), "s") as client:
                listener.accept()[0].close()
                assert client.recv(1) == b""
    with pytest.raises(ConnectionRefusedError, match="refused"):
        unix_sockets.connect(str(folder), "s")


def test_errors_name_the_folder(tmp_path: Path) -> None:
    for call in (unix_sockets.connect, unix_sockets.listen):
        with pytest.raises(FileNotFoundError, match="missing"):
            call(str(tmp_path / "missing"), "s")
