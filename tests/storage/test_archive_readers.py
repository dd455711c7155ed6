"""Archives whose headers are false, damaged or too long are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.storage.archives import list_files, unpack


def header(name: str, kind: bytes, data: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    return info.tobuf(tarfile.USTAR_FORMAT) + data + b"\0" * (-len(data) % 512)


def refused(path: Path) -> str:
    target = path.with_name("target")
    target.mkdir(exist_ok=True)
    with pytest.raises(InvalidInput) as caught:
        list_files(path)
    with pytest.raises(InvalidInput):
        unpack(path, path.name, target)
    assert list(target.iterdir()) == []
    return str(caught.value)


LONG_HEADERS = {
    "pax": header("x", tarfile.XHDTYPE, b"0" * (1 << 20)),
    "pax for all": header("x", tarfile.XGLTYPE, b"0" * (1 << 20)),
    "name": header("x", tarfile.GNUTYPE_LONGNAME, b"a" * (1 << 20)),
    "link": header("x", tarfile.GNUTYPE_LONGLINK, b"a" * (1 << 20)),
    "chain": header("x", tarfile.GNUTYPE_LONGNAME, b"a") * 100,
}


@pytest.mark.parametrize("bomb", LONG_HEADERS)
def test_headers_are_bounded(tmp_path: Path, bomb: str) -> None:
    """A reader that trusts the length of a header runs out of memory, or takes hours."""
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(LONG_HEADERS[bomb] + header("a", tarfile.REGTYPE, b"x")))
    assert "more than 64 KiB of headers" in refused(path)


def test_headers_that_take_long_to_parse_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(header("x", tarfile.XHDTYPE, b"0" * 60_000))
    assert "more than 300 digits" in refused(path)


def test_headers_count_towards_the_unpacked_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.storage.archives.MAX_UNPACKED", 20_000)
    path = tmp_path / "a.tar"
    info = tarfile.TarInfo("a")
    info.pax_headers = {"comment": "x" * 30_000}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as packed:
        packed.addfile(info)
    assert "unpacks to more than " in refused(path)


def test_zeros_at_the_end_count_towards_the_unpacked_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.storage.archives.MAX_UNPACKED", 1 << 20)
    path = tmp_path / "a.tar.gz"
    data = header("a", tarfile.REGTYPE, b"x") + b"\0" * (8 << 20)
    path.write_bytes(gzip.compress(data))
    assert "unpacks to more than " in refused(path)


def test_attributes_and_long_names_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    name = "/".join(["d" * 100] * 15) + "/ü"
    info = tarfile.TarInfo(name)
    info.pax_headers = {"SCHILY.xattr.user.note": "x" * 20_000}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as packed:
        packed.addfile(info)
    assert list_files(path) == [name]


def test_a_damaged_header_is_reported(tmp_path: Path) -> None:
    """The standard library takes it for the end of the archive."""
    path = tmp_path / "a.tar"
    one = header("a", tarfile.REGTYPE, b"x")
    two = bytearray(header("b", tarfile.REGTYPE, b"x"))
    two[0] ^= 1
    path.write_bytes(one + two + b"\0" * 1024)
    assert "one of its headers is invalid" in refused(path)


def test_sparse_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    info = tarfile.TarInfo("a")
    info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40)}
    info.size = 1
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as packed:
        packed.addfile(info, io.BytesIO(b"x"))
    assert "sparse file" in refused(path)


def one_file_zip(path: Path, name: str = "a.py", data: bytes = b"x" * 1000) -> bytearray:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(name, data)
    return bytearray(path.read_bytes())


def test_encrypted_zips_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    data = one_file_zip(path)
    data[6] |= 1
    data[data.rfind(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    assert "a.py is encrypted" in refused(path)


def test_zips_with_an_unknown_compression_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    data = one_file_zip(path)
    data[8] = data[data.rfind(b"PK\1\2") + 10] = 93
    path.write_bytes(data)
    assert "compression method is not supported" in refused(path)


def test_damage_within_a_zip_is_reported_before_the_run(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    data = one_file_zip(path)
    data[data.find(b"xxx") + 500] = 0
    path.write_bytes(data)
    assert "Bad CRC-32" in refused(path)


def test_zips_with_a_false_size_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    data = one_file_zip(path)
    at = data.rfind(b"PK\1\2") + 24
    data[at : at + 4] = (10).to_bytes(4, "little")
    path.write_bytes(data)
    assert "damaged" in refused(path)


@pytest.mark.parametrize("name", [".", "a/..", "..", "/"])
def test_names_that_are_not_of_files_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(header(name, tarfile.REGTYPE, b"x"))
    assert "is refused" in refused(path)


@pytest.mark.parametrize("name", ["a" * 256, "ü" * 128, "/".join(["a" * 200] * 11)])
def test_names_that_are_too_long_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as packed:
        packed.addfile(tarfile.TarInfo(name))
    assert "is too long" in refused(path)


@pytest.mark.parametrize("link", ["", "a" * 5000])
def test_links_without_a_usable_target_are_refused(tmp_path: Path, link: str) -> None:
    path = tmp_path / "a.zip"
    info = zipfile.ZipInfo("l")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(info, link)
    assert "the link l" in refused(path)


def test_messages_have_no_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(header("\x1b[2Jevil", tarfile.CHRTYPE, b""))
    assert "\\x1b[2Jevil is not a file" in refused(path)


@pytest.mark.shows("jobs/artifact-tar")
@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_the_format_is_recognized_by_content(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(compress(header("a", tarfile.REGTYPE, b"x") + b"\0" * 1024))
    assert list_files(path) == ["a"]


def sample(compress: Callable[[bytes], bytes]) -> bytes:
    noise = bytes(i * i % 251 for i in range(2000))
    parts = [header("d/a", tarfile.REGTYPE, noise), header("d/b", tarfile.REGTYPE, b"x" * 3000)]
    return compress(b"".join(parts) + b"\0" * 1024)


def sample_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("d/a", bytes(i * i % 251 for i in range(2000)))
        packed.writestr("d/b", "x" * 3000)
    return buffer.getvalue()


SAMPLES = {
    "a.zip": sample_zip(),
    "a.tar": sample(bytes),
    "a.tar.gz": sample(gzip.compress),
    "a.tar.bz2": sample(bz2.compress),
    "a.tar.xz": sample(lzma.compress),
}


@settings(max_examples=300, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(SAMPLES)))
def test_any_damage_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str
) -> None:
    """Damaged archives unpack, or raise InvalidInput and leave no file."""
    content = bytearray(SAMPLES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert"])):
            case "flip":
                content[at] ^= data.draw(st.integers(1, 255))
            case "cut":
                del content[at : at + data.draw(st.integers(1, 600))]
            case _:
                content[at:at] = data.draw(st.binary(min_size=1, max_size=20))
        if not content:
            break
    top = tmp_path_factory.mktemp("damage")
    path, target = top / name, top / "t"
    path.write_bytes(content)
    target.mkdir()
    try:
        unpack(path, name, target)
    except InvalidInput:
        assert list(target.iterdir()) == []
    assert {p.name for p in top.iterdir()} == {name, "t"}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000), st.sampled_from(sorted(SAMPLES)))
def test_random_bytes_are_not_an_archive(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    path = tmp_path_factory.mktemp("noise") / name
    path.write_bytes(content)
    try:
        assert list_files(path) == []  # only zeros are an empty tar
        assert not content.strip(b"\0")
    except InvalidInput:
        assert content.strip(b"\0") or len(content) < 512 or name.endswith("zip")
