"""The Python that containers mount: a copy of this one."""

from __future__ import annotations

import json
import subprocess
import zipfile
import zlib
from pathlib import Path

import pytest

from muster.engines.container import program
from muster.engines.container.python import (
    PYTHON,
    _loader,
    _needed,
    provide_python,
    python_command,
)
from muster.storage.home import Home

#: Prints where it is, and the libraries in its memory.
ABOUT = """\
import ctypes, hashlib, json, lzma, os, select, socket, ssl, sqlite3, sys
with open("/proc/self/maps") as file:
    maps = {line.split(maxsplit=5)[5].strip() for line in file if ".so" in line}
print(json.dumps([sys.prefix, sys.path, dict(os.environ), sorted(maps)]))
"""


def test_the_copy_uses_nothing_else_of_the_machine(own_home: Path) -> None:
    folder = provide_python(Home(own_home))
    words = [word.replace(PYTHON, str(folder)) for word in python_command()]
    done = subprocess.run(
        [*words, "-I", "-S", "-c", ABOUT], env={}, capture_output=True, text=True, check=True
    )
    prefix, path, environ, maps = json.loads(done.stdout)
    assert prefix == str(folder)
    assert not [one for one in (*path, *maps) if not one.startswith(f"{folder}/")]
    assert not {"LD_LIBRARY_PATH", "PYTHONHOME"} & {*environ}
    before = folder.stat()
    assert provide_python(Home(own_home)) == folder
    assert folder.stat() == before
    assert [one.name for one in folder.parent.iterdir()] == [folder.name]


def test_a_static_program_needs_no_loader() -> None:
    assert _loader("/sbin/ldconfig") is None


def test_a_program_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    loader = _loader("/bin/sh")
    assert loader is not None
    broken = tmp_path / "broken"
    broken.write_bytes(Path("/bin/sh").read_bytes()[:100])
    with pytest.raises(OSError, match=f"cannot load {broken}: "):
        list(_needed(loader, str(broken), must=True))
    assert list(_needed(loader, str(broken), must=False)) == []


def test_nothing_is_left_of_a_node_program_that_cannot_be_unpacked(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = program.node_program()
    place = Home(own_home).node_programs
    place.mkdir(parents=True)
    found = bytearray(whole)
    found[200:400] = bytes(200)  # of the content of the first file
    monkeypatch.setattr(program, "node_program", lambda: bytes(found))
    with pytest.raises((OSError, zipfile.BadZipFile, zlib.error)):
        program.provide_program(Home(own_home))
    assert list(place.iterdir()) == []
