from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.spec.files import MAX_TEXT, read_text
from muster.spec.reader import read_spec


def refused(path: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_text(path)
    return str(caught.value)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """Reading a pipe without a writer would block forever, and a device has no end."""
    os.mkfifo(tmp_path / "pipe.yaml")
    copy = "cannot be read: it is a {} (copy it into a file)"
    assert refused(tmp_path / "pipe.yaml").endswith(copy.format("pipe"))
    assert refused(Path("/dev/zero")).endswith(copy.format("device"))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        assert "cannot be read: " in refused(tmp_path / "s")
    assert refused(tmp_path).endswith("cannot be read: Is a directory")


def test_invalid_file_names_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / ("x" * 300)).endswith("cannot be read: File name too long")
    assert refused(tmp_path / "a\0b").endswith("cannot be read: embedded null byte")
    assert refused(tmp_path / "a\nb").endswith("/a\\nb: no such file (check the path)")


def test_the_size_of_a_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"a" * MAX_TEXT)
    assert len(read_text(path)) == MAX_TEXT
    path.write_bytes(b"a" * (MAX_TEXT + 1))
    assert refused(path).endswith("it is larger than 4MiB (put large values into files)")


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
@pytest.mark.parametrize("text", ["command: [echo, é🙂]\n", "{command: [echo, é🙂]}\r\n"])
def test_a_byte_order_mark_sets_the_encoding(tmp_path: Path, encoding: str, text: str) -> None:
    mark = "\ufeff" if encoding.endswith(("le", "be")) else ""
    (tmp_path / "job.yaml").write_bytes((mark + text).encode(encoding))
    assert read_spec(tmp_path / "job.yaml").command == ("echo", "é🙂")


def test_a_manifest_can_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "support/corpus/jobset.yaml").read_text()
    (tmp_path / "m.yaml").write_text(text, encoding="utf-8-sig")
    assert read_spec(tmp_path / "m.yaml").name == "demo"


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"a: \xff")
    assert refused(tmp_path / "job.yaml").endswith("cannot be read: it is not UTF-8 text")
