"""The node program, unpacked once on this machine, for containers that mount it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from muster.engines.node_program import node_program, program_key
from muster.storage.home import Home


def program_folder(home: Home) -> Path:
    """Where the node program of the running Muster is, or will be. Raises OSError."""
    return home.node_programs / program_key()


def provide_program(home: Home) -> Path:
    """The folder with it, which is made unless it is there. Raises OSError."""
    folder = program_folder(home)
    if folder.is_dir():
        return folder
    import compileall  # once for each version of Muster
    import io
    import zipfile
    from py_compile import PycInvalidationMode

    part = folder.with_name(f".{folder.name}-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        with zipfile.ZipFile(io.BytesIO(node_program())) as archive:
            archive.extractall(part)
        # images with the Python that runs here start faster
        compileall.compile_dir(part, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
        _make_readable(part)  # by the users of images
        part.rename(folder)
    except OSError:
        if not folder.is_dir():  # no other process was faster
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _make_readable(folder: Path) -> None:
    for here, _, files in os.walk(folder):
        os.chmod(here, 0o755)
        for name in files:
            os.chmod(os.path.join(here, name), 0o644)
