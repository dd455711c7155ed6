"""The Python of this machine, copied once, for containers that mount it: with its own dynamic
loader, libraries and standard library, it needs nothing of an image but the same processor.

The folder has

    bin/pythonX.Y  the interpreter
    lib/pythonX.Y  its standard library, where it looks for it
    libraries/     shared libraries, the loader among them
    run            a script that starts it, for programs of nodes (`node.command_streams`)
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from muster.engines.container.copies import make_once
from muster.storage.home import Home

#: Where containers see the folder.
PYTHON = "/muster/python"
#: The script there.
RUN_PYTHON = f"{PYTHON}/run"
_LIBRARIES = "libraries"
#: Changes whenever the folder is made in another way.
_LAYOUT = "1"
#: Of the standard library, what no node needs, and is large.
_LEFT_OUT = shutil.ignore_patterns(
    *("test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data"),
    *("site-packages", "dist-packages", "config-*", "_test*.so", "_tkinter*.so", "*.a"),
    "*.opt-[12].pyc",
)
#: Libraries that the C library opens by itself, before glibc 2.34: for names of users and hosts.
_OPENED = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
#: Seconds for the loader.
_TIMEOUT = 60.0
#: ELF: the type of the program header with the path of the loader.
_INTERPRETER = 3


def python_folder(home: Home) -> Path:
    """Where the copy of the running Python is, or will be. Raises OSError."""
    binary = _binary()
    about = os.stat(binary)
    text = f"{_LAYOUT} {sys.version} {binary} {about.st_size} {about.st_mtime_ns}"
    return home.node_programs / f"python-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def python_command() -> list[str]:
    """The words that start it in a container. Raises OSError."""
    program = f"{PYTHON}/bin/{_name()}"
    loader = _loader(_binary())
    if loader is None:
        return [program]
    # the image's list of libraries names those of another C library; musl's loader has no such list
    name, libraries = os.path.basename(loader), f"{PYTHON}/{_LIBRARIES}"
    own = [] if name.startswith("ld-musl") else ["--inhibit-cache"]
    return [f"{libraries}/{name}", *own, "--library-path", libraries, program]


def provide_python(home: Home) -> Path:
    """The folder with it, which is made unless it is there. Raises OSError."""
    return make_once(python_folder(home), _copy)


def _copy(folder: Path) -> None:
    """Raises OSError."""
    import compileall  # once for each Python

    binary, standard = _binary(), sysconfig.get_path("stdlib")
    library = folder / os.path.relpath(standard, sys.base_prefix)
    shutil.copytree(standard, library, ignore=_LEFT_OUT)
    modules = library / "lib-dynload"
    if not modules.is_dir():  # where a distribution has it elsewhere
        shutil.copytree(sysconfig.get_config_var("DESTSHARED"), modules, ignore=_LEFT_OUT)
    # what was compiled already stays valid: times are copied
    compileall.compile_dir(library, quiet=2)
    (folder / "bin").mkdir()
    shutil.copy2(binary, folder / "bin" / _name())
    libraries = folder / _LIBRARIES
    libraries.mkdir()
    if (loader := _loader(binary)) is not None:
        shutil.copy2(loader, libraries / os.path.basename(loader))
        for file in (binary, *map(str, modules.glob("*.so"))):
            for name, path in _needed(loader, file, must=file == binary):
                if not (libraries / name).exists():
                    shutil.copy2(path, libraries / name)
    words = " ".join(python_command())
    run = folder / "run"
    run.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    run.chmod(0o755)


def _binary() -> str:
    """The interpreter's file, behind virtual environments and links."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def _name() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _loader(binary: str) -> str | None:
    """The dynamic loader that a program names (ELF: PT_INTERP); None if it needs none. Raises
    OSError."""
    with open(binary, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            raise OSError(f"{binary} is not a program of a 64-bit Linux")
        order = "<" if head[5] == 1 else ">"
        (offset,) = struct.unpack_from(f"{order}Q", head, 32)
        size, number = struct.unpack_from(f"{order}HH", head, 54)
        file.seek(offset)
        headers = file.read(size * number)
        for start in range(0, len(headers), size):
            kind, _, where, _, _, length = struct.unpack_from(f"{order}IIQQQQ", headers, start)
            if kind == _INTERPRETER:
                file.seek(where)
                return file.read(length).rstrip(b"\0").decode()
    return None


def _needed(loader: str, file: str, *, must: bool) -> Iterator[tuple[str, str]]:
    """The shared libraries that a file needs, by name, with their paths. must: whether it has to be
    loadable; of the standard library, a module may not be, on this machine either. Raises
    OSError."""
    argv = [loader, "--list", file]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(f"{loader} does not say what {file} needs") from None
    if done.returncode and must:
        raise OSError(f"{loader} cannot load {file}: {done.stderr.strip()}")
    for words in map(str.split, done.stdout.splitlines()):
        if "=>" not in words or not words[-1].startswith("("):
            continue
        name, path = words[0], words[words.index("=>") + 1]
        if path.startswith("/"):
            yield os.path.basename(name), path
            yield from _beside(path) if name.startswith("libc.") else ()


def _beside(c_library: str) -> Sequence[tuple[str, str]]:
    found = [(name, os.path.join(os.path.dirname(c_library), name)) for name in _OPENED]
    return [one for one in found if os.path.exists(one[1])]
