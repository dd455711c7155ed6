"""A note that standard input is not read, where a program of a run may be meant to read it."""

from __future__ import annotations

import os
import stat

from muster.cli.terminal import echo_notes


def note_unread_input() -> None:
    """Note on stderr that nodes do not get standard input, if it is a file or a pipe with data.
    Neither reads nor waits for it."""
    if _has_data(0):
        echo_notes(["standard input is not passed to the nodes"])


def _has_data(descriptor: int) -> bool:
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            return found.st_size > os.lseek(descriptor, 0, os.SEEK_CUR)
        return stat.S_ISFIFO(found.st_mode) and _bytes_in_pipe(descriptor) > 0
    except OSError:
        return False  # closed


def _bytes_in_pipe(descriptor: int) -> int:
    import struct
    import termios
    from fcntl import ioctl

    (count,) = struct.unpack("i", ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))
    return int(count)
