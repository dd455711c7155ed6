"""Unix sockets in folders, whatever the length of their paths."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Iterator

#: Bytes of the path of a socket, on every system: 107 on Linux, 103 on macOS.
_MAX_PATH = 100


def listen(folder: str, name: str) -> socket.socket:
    """A non-blocking socket that listens in a folder, and which only its user can reach. It takes
    the place of another one. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        with _short_path(folder, name) as path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            sock.bind(path)
            os.chmod(path, 0o600)  # nobody can connect before `listen`
            sock.listen()
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def connect(folder: str, name: str) -> socket.socket:
    """A connection to the socket in a folder. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        with _short_path(folder, name) as path:
            sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def _short_path(folder: str, name: str) -> Iterator[str]:
    """A path of a file in a folder that is short enough for a socket. Errors name the folder.
    Raises OSError."""
    path = os.path.join(folder, name)
    try:
        with _shortened(folder, name, path) as short:
            yield short
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder) from None


@contextlib.contextmanager
def _shortened(folder: str, name: str, path: str) -> Iterator[str]:
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield path
    elif hasattr(os, "O_PATH"):
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield "/proc/self/fd/%d/%s" % (descriptor, name)
        finally:
            os.close(descriptor)
    else:
        import tempfile  # few systems need it

        with tempfile.TemporaryDirectory(prefix="muster-", dir="/tmp") as place:
            link = os.path.join(place, "f")
            os.symlink(folder, link)
            try:
                yield os.path.join(link, name)
            finally:
                os.unlink(link)
