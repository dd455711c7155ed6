"""The Python that containers mount: a copy of this one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from muster.engines.container.python import PYTHON, _loader, provide_python, python_command
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
