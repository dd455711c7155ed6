"""Write copies of outputs: files and links in folders that are made for them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def copy_content(content: Iterator[bytes], target: Path, mode: int, modified: float) -> None:
    """Write the blocks of a file to a path, with its mode and time, replacing what is there.

    The copy appears as a whole, once it is complete. Raises OSError if it cannot be written.
    """
    from muster.node.folder_access import write_file

    with _made_folder(target.parent) as folder:
        write_file(folder, target.name, _Blocks(content), mode, modified)


def copy_link(text: str, target: Path) -> None:
    """Create a symbolic link at a path, replacing what is there. Raises OSError."""
    from muster.node.folder_access import write_link

    with _made_folder(target.parent) as folder:
        write_link(folder, target.name, text)


@contextlib.contextmanager
def _made_folder(folder: Path) -> Iterator[int]:
    """A descriptor of a folder, which is created if it does not exist. It may be deeper than a path
    can be long. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        opened = os.open(folder, flags)
    except OSError:  # it does not exist, or its path is too long
        opened = os.open(folder.anchor or ".", flags)
        try:
            for name in folder.parts[bool(folder.anchor) :]:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=opened)
                below = os.open(name, flags, dir_fd=opened)
                os.close(opened)
                opened = below
        except OSError:
            os.close(opened)
            raise
    try:
        yield opened
    finally:
        os.close(opened)


class _Blocks:
    """Reads from blocks."""

    def __init__(self, content: Iterator[bytes]) -> None:
        self._content = content
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes; none at the end."""
        if not self._rest:
            self._rest = next(self._content, b"")
        data, self._rest = self._rest[:size], self._rest[size:]
        return data
