"""The node program: one file with which Python runs the node side of Muster where Muster is not
installed.

It is a zip archive with all modules of `muster.node`, which need the standard library of Python 3.9
only. So engines can copy it to machines, and modules of it also run with it as PYTHONPATH.

The same source gives the same bytes, whoever builds it and wherever: names are sorted, dates and
modes fixed, and the compression is spelled out. What is not promised: the same bytes with another
zlib, as some systems have, or with a Python whose `zipfile` writes other headers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import muster
from muster import node

#: The usual name of the file.
FILE_NAME = "muster-node.pyz"
_INTERPRETER = b"#!/usr/bin/env python3\n"
#: The earliest time that a zip file can store.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_FILE_MODE = 0o100644
_LEVEL = 9
_KEY = 32  # hexadecimal digits
#: Runs the program. It is read by the oldest of interpreters, so that they can say what is wrong.
_MAIN = """\
import sys

if sys.version_info < (3, 9):
    sys.exit("muster-node: Python 3.9 or newer is required; %s is %d.%d"
             % ((sys.executable or "this interpreter",) + tuple(sys.version_info[:2])))

from muster.node.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
#: The package of Muster itself, of which nodes need only the version.
_PACKAGE = '''\
"""The node side of Muster, without the rest of it."""

__version__ = {version!r}
'''


def node_program(package: Path | None = None) -> bytes:
    """The content of the file, to be made executable. Raises OSError.

    package: the folder of `muster.node`. Default: that of the running Muster.
    """
    return packed(program_files(package), _INTERPRETER)


def packed(files: Mapping[str, bytes], start: bytes = b"") -> bytes:
    """A zip archive with these files, by name. start: what precedes it in its file."""
    import io
    import zipfile  # most runs do not upload it

    content = io.BytesIO()
    content.write(start)
    with zipfile.ZipFile(content, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system, entry.external_attr = _UNIX, _FILE_MODE << 16
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, _LEVEL)
    return content.getvalue()


def program_key() -> str:
    """A name for the content of the file, of the running Muster: another one has another name.
    Raises OSError."""
    digest = hashlib.sha256()
    for name, content in sorted(program_files().items()):
        digest.update(b"%s\0%d\0" % (name.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()[:_KEY]


def program_files(package: Path | None = None) -> dict[str, bytes]:
    """What is in the program, by name. package: see `node_program`. Raises OSError."""
    folder = Path(node.__file__).parent if package is None else package
    return {
        "__main__.py": _MAIN.encode(),
        "muster/__init__.py": _PACKAGE.format(version=muster.__version__).encode(),
        **{f"muster/node/{name}": content for name, content in _modules(folder).items()},
    }


def _modules(folder: Path) -> dict[str, bytes]:
    """The source of all modules of a package, by file name. Hidden files are those of editors."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*.py")
        if not path.name.startswith(".")
    }
