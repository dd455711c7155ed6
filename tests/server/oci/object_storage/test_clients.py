"""ocifs, and the command line of OCI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.oci_config import write_config
from support.oci_storage import NS, VISION, Storage

#: The command line of OCI, which has an environment of its own.
OCI = os.environ.get("OCI_COMMAND") or shutil.which("oci")


@pytest.fixture
def config(storage: Storage, tmp_path: Path) -> Path:
    """The file of settings of an admin."""
    file = tmp_path / "config"
    write_config(file, storage.configs["anouk"])
    return file


@pytest.fixture
def files(storage: Storage, config: Path) -> Any:
    """The file system of ocifs."""
    ocifs = pytest.importorskip("ocifs")
    return ocifs.OCIFileSystem(
        config=str(config),
        profile="DEFAULT",
        compartment_id=VISION,
        config_kwargs={"service_endpoint": storage.url},
        skip_instance_cache=True,
    )


def test_a_file_system(files: Any, bucket: str, tmp_path: Path) -> None:
    top = f"{bucket}@{NS}"
    with files.open(f"oci://{top}/a/x.txt", "wb") as file:
        file.write(b"hello")
    assert files.cat(f"{top}/a/x.txt") == b"hello"
    assert files.info(f"{top}/a/x.txt")["size"] == 5
    assert files.exists(f"{top}/a/x.txt") and not files.exists(f"{top}/a/y.txt")
    assert files.isdir(f"{top}/a")
    files.copy(f"{top}/a/x.txt", f"{top}/b/y.txt")
    files.rename(f"{top}/b/y.txt", f"{top}/b/z.txt")
    assert files.find(top) == [f"{top}/a/x.txt", f"{top}/b/z.txt"]
    assert files.ls(top, refresh=True) == [f"{top}/a", f"{top}/b"]
    assert top in files.ls(f"@{NS}")
    with files.open(f"{top}/a/x.txt", "ab") as file:
        file.write(b" more")
    assert files.cat(f"{top}/a/x.txt") == b"hello more"
    files.get(f"{top}/a", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got" / "x.txt").read_bytes() == b"hello more"
    files.put(str(tmp_path / "got"), f"{top}/put", recursive=True)
    assert files.cat(f"{top}/put/x.txt") == b"hello more"
    files.rm(f"{top}/a", recursive=True)
    assert files.find(top) == [f"{top}/b/z.txt", f"{top}/put/x.txt"]
    with pytest.raises(FileNotFoundError):
        files.cat(f"{top}/a/x.txt")


def test_a_large_file_is_written_in_parts_and_read_in_ranges(files: Any, bucket: str) -> None:
    path, data = f"{bucket}@{NS}/large", os.urandom(13 << 20)
    with files.open(path, "wb", block_size=5 << 20) as file:
        for start in range(0, len(data), 1 << 20):
            file.write(data[start : start + (1 << 20)])
    assert files.info(path)["size"] == len(data)
    with files.open(path, "rb") as file:
        file.seek(5 << 20)
        assert file.read(1000) == data[5 << 20 :][:1000]
    assert files.cat(path) == data


def test_a_bucket_is_made_and_removed(files: Any) -> None:
    files.mkdir(f"oci://of-ocifs@{NS}")
    assert files.ls(f"of-ocifs@{NS}") == []
    files.rmdir(f"of-ocifs@{NS}")
    with pytest.raises(FileNotFoundError):
        files.ls(f"of-ocifs@{NS}", refresh=True)


@pytest.mark.slow
@pytest.mark.skipif(OCI is None, reason="the command line of OCI is not installed")
def test_the_command_line(storage: Storage, config: Path, tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "OCI_CLI_CONFIG_FILE": str(config),
        "OCI_CLI_ENDPOINT": storage.url,
        "SUPPRESS_LABEL_WARNING": "True",
        "HOME": str(tmp_path),
    }
    for name in [name for name in environ if name.startswith(("PYTHON", "VIRTUAL_ENV"))]:
        del environ[name]

    def oci(*words: str) -> Any:
        assert OCI is not None
        argv = [OCI, "os", *words]
        done = subprocess.run(
            argv, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        assert done.returncode == 0, done.stderr
        start = done.stdout.find("{")
        return json.loads(done.stdout[start:]) if start >= 0 else done.stdout

    source, back, folder = tmp_path / "source", tmp_path / "back", tmp_path / "folder"
    source.write_bytes(os.urandom(3 << 20))
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text(name)
    of = ("-bn", "command-line")
    assert oci("ns", "get") == {"data": NS}
    oci("bucket", "create", "-c", VISION, "--name", "command-line")
    put = ("object", "put", *of, "--file", str(source), "--name")
    oci(*put, "whole")
    oci(*put, "parts", "--part-size", "1", "--verify-checksum")
    oci("object", "get", *of, "--name", "parts", "--file", str(back))
    assert back.read_bytes() == source.read_bytes()
    assert oci("object", "head", *of, "--name", "parts")["content-length"] == str(3 << 20)
    oci("object", "rename", *of, "--name", "parts", "--new-name", "renamed")
    oci("object", "bulk-upload", *of, "--src-dir", str(folder), "--prefix", "folder/")
    oci("object", "bulk-download", *of, "--dest-dir", str(back.with_name("down")))
    assert (tmp_path / "down" / "folder" / "a").read_text() == "a"
    found = oci("object", "list", *of)["data"]
    assert [one["name"] for one in found] == ["folder/a", "folder/b", "renamed", "whole"]
    oci("object", "bulk-delete", *of, "--prefix", "folder/", "--force")
    oci("bucket", "delete", "--name", "command-line", "--empty", "--force")
