"""The node program, unpacked once on this machine, for containers that mount it."""

from __future__ import annotations

from pathlib import Path

from muster.engines.container.copies import make_once
from muster.engines.node_program import node_program, program_key
from muster.storage.home import Home


def program_folder(home: Home) -> Path:
    """Where the node program of the running Muster is, or will be. Raises OSError."""
    return home.node_programs / program_key()


def provide_program(home: Home) -> Path:
    """The folder with it, which is made unless it is there. Raises OSError."""
    return make_once(program_folder(home), _unpack)


def _unpack(folder: Path) -> None:
    """Raises OSError."""
    import compileall  # once for each version of Muster
    import io
    import zipfile
    from py_compile import PycInvalidationMode

    with zipfile.ZipFile(io.BytesIO(node_program())) as archive:
        archive.extractall(folder)
    # images with the Python that runs here start faster
    compileall.compile_dir(folder, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
