"""The job's code on a node's host, and what is in directories that the job mounts: the supervisor
sends each once, and agents unpack it.

The node server opens a stream to its supervisor, with kind "code" and the `sha256` of the archive,
and gets the bytes of the archive. It is a tar stream of one folder, as `node.transfer` sends.

The servers of one user on a machine may share a folder of archives, each named by its SHA-256. Who
needs one has it locked (flock, shared); who fetches one has it locked exclusively, as NAME.part,
and the others wait for that lock. So what a killed server has left is known, and an archive is
removed when the last server that needs it leaves.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
from typing import Dict, List, Sequence, Tuple

from muster.node.files import open_or_replace
from muster.node.messages import Code, Launch
from muster.node.processes import close_others
from muster.node.streams import Stream, Streams

#: The part of a server's folder that belongs to its node: each new node begins with an empty one.
NODE = "node"
_PART = ".part"


class CannotFetch(Exception):  # noqa: N818
    """The text says why."""


class Archives:
    """The archives in a folder, for one of the servers that use it. check_owner: whether the folder
    has to belong to this user."""

    def __init__(self, place: str, *, check_owner: bool = True) -> None:
        self.place, self._check_owner = place, check_owner
        self._held: Dict[str, int] = {}  # descriptors by SHA-256

    def hold(self, sha256: str) -> bool:
        """Whether an archive is there; it stays there until `close` then. Raises OSError,
        CannotFetch."""
        path = archive(self.place, sha256)
        while True:
            descriptor = self._held.pop(sha256, -1)
            if descriptor < 0:
                try:
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                except FileNotFoundError:
                    return False
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # who removes it does not take long
            if _is_at(descriptor, path):
                self._held[sha256] = descriptor
                return True
            os.close(descriptor)

    def begin(self, sha256: str) -> Tuple[int, bool] | None:
        """Begin to fetch an archive, unless another server does. Returns the descriptor of the file
        to write, and whether this server is to write it; None if another server has fetched it just
        now: then it is held. Raises OSError, CannotFetch."""
        part = archive(self.place, sha256) + _PART
        while True:
            os.makedirs(self.place, 0o700, exist_ok=True)
            if self._check_owner and os.stat(self.place).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it belongs to another user", self.place)
            try:
                descriptor = open_or_replace(part, os.O_RDWR, 0o600)
            except FileNotFoundError:  # the last server has just left
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return descriptor, False
            if _is_at(descriptor, part):
                if self.hold(sha256):
                    self.give_up(sha256, descriptor)
                    return None
                os.truncate(descriptor, 0)
                return descriptor, True
            os.close(descriptor)

    def give_up(self, sha256: str, descriptor: int) -> None:
        """Do not fetch an archive after all. descriptor: as from `begin`."""
        with contextlib.suppress(OSError):  # it was removed
            os.unlink(archive(self.place, sha256) + _PART)
        os.close(descriptor)

    def keep(self, sha256: str, descriptor: int) -> None:
        """An archive was fetched: others find it, and it is held. descriptor: as from `begin`.
        Raises OSError."""
        path = archive(self.place, sha256)
        os.replace(path + _PART, path)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        self._held[sha256] = descriptor

    def keep_only(self, wanted: Sequence[str]) -> None:
        """Hold no others than these, and remove those that nobody holds. Raises CannotFetch."""
        for sha256 in [one for one in self._held if one not in wanted]:
            os.close(self._held.pop(sha256))
            _remove_unless_held(archive(self.place, sha256))

    def close(self) -> None:
        """Hold none, and remove those that nobody holds, and what killed servers have left."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()
        with contextlib.suppress(OSError):  # there is none
            for name in os.listdir(self.place):
                if re.fullmatch("[0-9a-f]{64}(%s)?" % re.escape(_PART), name):
                    _remove_unless_held(os.path.join(self.place, name))
            os.rmdir(self.place)


def _is_at(descriptor: int, path: str) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _remove_unless_held(path: str) -> None:
    with contextlib.suppress(OSError):  # BlockingIOError: it is held
        # NFS locks exclusively only what is open for writing
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                os.unlink(path)
        finally:
            os.close(descriptor)


def wait_for_other(descriptor: int) -> int:
    """Fork a process that ends when the server which writes a file is done with it, or has ended.
    descriptor: as from `Archives.begin`; it is closed here. Returns the pid. Raises OSError."""
    try:
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                close_others((descriptor,))
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            finally:
                os._exit(0)
    finally:
        os.close(descriptor)
    return pid


class CodeFetch:
    """An archive that is being received. descriptor: as from `Archives.begin`."""

    def __init__(self, archives: Archives, sha256: str, descriptor: int, streams: Streams) -> None:
        import hashlib  # few launches have code

        self._archives, self._sha256, self._descriptor = archives, sha256, descriptor
        self._digest = hashlib.sha256()
        self._stream: Stream = streams.open({"kind": "code", "sha256": sha256})

    def step(self) -> bool:
        """Take what has arrived. Returns whether it is complete. Raises OSError, CannotFetch."""
        data = self._stream.take()
        self._digest.update(data)
        while data:
            data = data[os.write(self._descriptor, data) :]
        if self._stream.canceled:
            raise CannotFetch(self._stream.canceled)
        if self._stream.result is None:
            return False
        self._stream.finish({})
        if self._digest.hexdigest() != self._sha256:
            raise CannotFetch("the archive is not the one that was announced")
        self._archives.keep(self._sha256, self._descriptor)
        self._descriptor = -1
        return True

    def close(self) -> None:
        """Forget what was received, unless it is complete. May be repeated."""
        self._stream.cancel("it is not needed any more")
        if self._descriptor >= 0:
            self._archives.give_up(self._sha256, self._descriptor)
            self._descriptor = -1


def archive(place: str, sha256: str) -> str:
    """The path of an archive. Raises CannotFetch for what is no hash."""
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise CannotFetch("not a SHA-256: %.100r" % sha256)
    return os.path.join(place, sha256)


def archives_of(launch: Launch) -> List[str]:
    """The SHA-256 of each archive that a new node needs, also if another one takes its place."""
    code = [] if launch.code is None else [launch.code.sha256]
    return code + [mount.sha256 for mount in launch.mounts if mount.sha256]


def output_archives(launch: Launch) -> List[str]:
    """The SHA-256 of each archive that is needed until it is unpacked, also by a node that is
    restarted in place."""
    return [] if launch.outputs is None else list(launch.outputs.archives.values())


def described(launch: Launch, sha256: str) -> str:
    """What is in an archive of a launch, for people."""
    if launch.code is not None and launch.code.sha256 == sha256:
        return "the code"
    if sha256 in output_archives(launch):
        return "its outputs"
    paths = [mount.path for mount in launch.mounts if mount.sha256 == sha256]
    return "the mounted directory %s" % paths[0] if paths else "an archive"


def unpack(place: str, code: Code) -> None:
    """Unpack the code of a launch. Raises OSError."""
    from muster.node.transfer import receive  # few launches have code

    os.makedirs(os.path.dirname(code.folder), exist_ok=True)
    left_out: List[str] = []
    with open(archive(place, code.sha256), "rb") as file:
        receive(code.folder, file, left_out.append)
    if left_out:
        raise OSError("the code has %s" % left_out[0])
