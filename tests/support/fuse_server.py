"""A file system of FUSE that mirrors a folder, as a network file system would: for tests, as root.

    python fuse_server.py LOCKS FIFOS TYPE FOLDER MOUNT [MOUNT]

Each MOUNT is a mount of its own, as if on another host: it caches nothing, its FIFOs are not those
of the other one, and locks meet in this process only. LOCKS: `shared` (they work), `ENOLCK` (or
another error that every lock fails with), `ignored` (every lock is granted), `host` (the kernel
keeps them to itself, as for sshfs). FIFOS: `yes`, or `no`: EPERM. TYPE: what follows `fuse.` in
/proc/mounts.

Prints a line when all is mounted. Ends when the mounts are gone. Speaks the kernel's protocol
(linux/fuse.h, version 7.31) itself, so that the tests need no library.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

_IN = struct.Struct("<IIQQIIII")  # fuse_in_header
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_LOCK = struct.Struct("<QQQQIIII")  # handle, owner, start, end, type, pid, flags, padding

_DIRECT_IO = 1  # FOPEN_DIRECT_IO
_POSIX_LOCKS, _FLOCK_LOCKS, _BIG_WRITES, _ATOMIC_TRUNC = 1 << 1, 1 << 10, 1 << 5, 1 << 3
_LK_FLOCK = 1
_F_RDLCK, _F_WRLCK, _F_UNLCK = 0, 1, 2
_MAX_WRITE = 1 << 20
_NAMES = {
    1: "lookup", 2: "forget", 3: "getattr", 4: "setattr", 5: "readlink", 6: "symlink", 8: "mknod",
    9: "mkdir", 10: "unlink", 11: "rmdir", 12: "rename", 13: "link", 14: "open", 15: "read",
    16: "write", 17: "statfs", 18: "release", 20: "fsync", 25: "flush", 26: "init", 27: "opendir",
    28: "readdir", 29: "releasedir", 30: "fsyncdir", 31: "getlk", 32: "setlk", 33: "setlkw",
    34: "access", 35: "create", 36: "interrupt", 42: "forget", 43: "fallocate", 45: "rename2",
}  # fmt: skip
_NO_ANSWER = ("forget", "interrupt")


@dataclass
class Lock:
    owner: tuple[int, int, int]  # mount, owner, flags
    kind: int
    start: int
    end: int


@dataclass
class Node:
    """A file of the folder, open, so that it stays reachable when it is renamed or deleted."""

    descriptor: int
    locks: list[Lock] = field(default_factory=list)


@dataclass
class Waiter:
    mount: int
    unique: int
    node: int
    lock: Lock


class Server:
    """Answers the kernel's requests, one at a time."""

    def __init__(self, folder: Path, locks: str, fifos: bool) -> None:
        self._locks = locks
        self._fifos = fifos
        root = os.open(folder, os.O_PATH)
        found = os.fstat(root)
        self._nodes = {1: Node(root)}
        self._by_inode = {(found.st_dev, found.st_ino): 1}
        self._handles: dict[int, int] = {}
        self._next = 100
        self._waiting: list[Waiter] = []
        self._mount = 0
        self.devices: list[int] = []

    def handle(self, mount: int, message: bytes) -> None:
        self._mount = mount
        _, code, unique, node, uid, gid, _, _ = _IN.unpack_from(message)
        name, body = _NAMES.get(code, ""), message[_IN.size :]
        call = getattr(self, f"_{name}") if name else _unknown
        try:
            answer, status = call(node, body, unique), 0
            if name in ("mknod", "mkdir", "symlink", "create"):
                self._own(answer, uid, gid)
        except OSError as error:
            answer, status = b"", -(error.errno or errno.EIO)
        if name not in _NO_ANSWER and answer is not None:
            self._reply(mount, unique, answer, status)

    def _own(self, answer: bytes, uid: int, gid: int) -> None:
        node = _ENTRY.unpack_from(answer)[0]
        os.chown(self._path(node), uid, gid)

    def _reply(self, mount: int, unique: int, answer: bytes, status: int = 0) -> None:
        try:
            header = _OUT.pack(_OUT.size + len(answer), status, unique)
            os.writev(self.devices[mount], [header, answer])
        except FileNotFoundError:
            pass  # the request was interrupted

    # --- names

    def _path(self, node: int) -> str:
        return f"/proc/self/fd/{self._nodes[node].descriptor}"

    def _name(self, node: int, name: bytes) -> str:
        return f"{self._path(node)}/{os.fsdecode(name)}"

    def _entry(self, path: str) -> bytes:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW)
        found = os.fstat(descriptor)
        key = found.st_dev, found.st_ino
        node = self._by_inode.get(key)
        if node is None:
            node = self._new_number()
            self._by_inode[key], self._nodes[node] = node, Node(descriptor)
        else:
            os.close(descriptor)
        return _ENTRY.pack(node, 0, 0, 0, 0, 0) + self._attributes(node)

    def _new_number(self) -> int:
        self._next += 1
        return self._next

    def _attributes(self, node: int) -> bytes:
        s = os.fstat(self._nodes[node].descriptor)
        times = [t // 10**9 for t in (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)]
        parts = [t % 10**9 for t in (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)]
        owner = (s.st_mode, s.st_nlink, s.st_uid, s.st_gid, s.st_rdev, s.st_blksize, 0)
        return _ATTR.pack(s.st_ino, s.st_size, s.st_blocks, *times, *parts, *owner)

    def _attr_answer(self, node: int) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attributes(node)

    def _lookup(self, node: int, body: bytes, _u: int) -> bytes:
        return self._entry(self._name(node, body[:-1]))

    def _forget(self, _n: int, _b: bytes, _u: int) -> bytes:
        return b""

    def _getattr(self, node: int, _b: bytes, _u: int) -> bytes:
        return self._attr_answer(node)

    def _setattr(self, node: int, body: bytes, _u: int) -> bytes:
        valid, _, _, size, _, atime, mtime, _, an, mn, _, mode, _, uid, gid, _ = struct.unpack_from(
            "<IIQQQQQQIIIIIIII", body
        )
        path = self._path(node)
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & 6:
            os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 8:
            os.truncate(path, size)
        if valid & (16 | 32 | 128 | 256):
            found = os.stat(path)
            before = found.st_atime_ns, found.st_mtime_ns
            if valid & (128 | 256):
                os.utime(path)
            else:
                new = atime * 10**9 + an, mtime * 10**9 + mn
                os.utime(path, ns=tuple(new[i] if valid & (16 << i) else before[i] for i in (0, 1)))
        return self._attr_answer(node)

    def _readlink(self, node: int, _b: bytes, _u: int) -> bytes:
        return os.fsencode(os.readlink("", dir_fd=self._nodes[node].descriptor))

    def _symlink(self, node: int, body: bytes, _u: int) -> bytes:
        name, target = body.split(b"\0")[:2]
        path = self._name(node, name)
        os.symlink(os.fsdecode(target), path)
        return self._entry(path)

    def _mknod(self, node: int, body: bytes, _u: int) -> bytes:
        mode, device, _, _ = struct.unpack_from("<IIII", body)
        if stat.S_ISFIFO(mode) and not self._fifos:
            raise OSError(errno.EPERM, "")
        path = self._name(node, body[16:-1])
        os.mknod(path, mode, device)
        return self._entry(path)

    def _mkdir(self, node: int, body: bytes, _u: int) -> bytes:
        path = self._name(node, body[8:-1])
        os.mkdir(path, struct.unpack_from("<I", body)[0])
        return self._entry(path)

    def _unlink(self, node: int, body: bytes, _u: int) -> bytes:
        os.unlink(self._name(node, body[:-1]))
        return b""

    def _rmdir(self, node: int, body: bytes, _u: int) -> bytes:
        os.rmdir(self._name(node, body[:-1]))
        return b""

    def _rename(self, node: int, body: bytes, _u: int, start: int = 8) -> bytes:
        (target,) = struct.unpack_from("<Q", body)
        old, new = body[start:].split(b"\0")[:2]
        os.rename(self._name(node, old), self._name(target, new))
        return b""

    def _rename2(self, node: int, body: bytes, unique: int) -> bytes:
        if struct.unpack_from("<QI", body)[1]:
            raise OSError(errno.EINVAL, "")
        return self._rename(node, body, unique, 16)

    def _link(self, node: int, body: bytes, _u: int) -> bytes:
        (old,) = struct.unpack_from("<Q", body)
        path = self._name(node, body[8:-1])
        os.link(self._path(old), path, follow_symlinks=True)
        return self._entry(path)

    # --- content

    def _open(self, node: int, body: bytes, _u: int) -> bytes:
        flags = struct.unpack_from("<I", body)[0] & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        return self._opened(os.open(self._path(node), flags & ~os.O_APPEND))

    def _opened(self, descriptor: int) -> bytes:
        handle = self._new_number()
        self._handles[handle] = descriptor
        return struct.pack("<QII", handle, _DIRECT_IO, 0)

    def _create(self, node: int, body: bytes, _u: int) -> bytes:
        flags, mode, _, _ = struct.unpack_from("<IIII", body)
        path = self._name(node, body[16:-1])
        descriptor = os.open(path, (flags | os.O_CREAT) & ~os.O_APPEND, mode)
        return self._entry(path) + self._opened(descriptor)

    def _read(self, _n: int, body: bytes, _u: int) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(self._handles[handle], size, offset)

    def _write(self, _n: int, body: bytes, _u: int) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        written = os.pwrite(self._handles[handle], body[40 : 40 + size], offset)
        return struct.pack("<II", written, 0)

    def _fsync(self, _n: int, _b: bytes, _u: int) -> bytes:
        return b""  # what a killed process has written stays

    _fsyncdir = _access = _fsync

    def _fallocate(self, _n: int, body: bytes, _u: int) -> bytes:
        handle, offset, length, mode, _ = struct.unpack_from("<QQQII", body)
        if mode:
            raise OSError(errno.EOPNOTSUPP, "")
        os.posix_fallocate(self._handles[handle], offset, length)
        return b""

    def _statfs(self, node: int, _b: bytes, _u: int) -> bytes:
        f = os.statvfs(self._path(node))
        sizes = (f.f_blocks, f.f_bfree, f.f_bavail, f.f_files, f.f_ffree)
        return struct.pack("<QQQQQIIII24x", *sizes, f.f_bsize, f.f_namemax, f.f_frsize, 0)

    def _opendir(self, node: int, _b: bytes, _u: int) -> bytes:
        return self._opened(os.open(self._path(node), os.O_RDONLY | os.O_DIRECTORY))

    def _readdir(self, node: int, body: bytes, _u: int) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        answer = b""
        for number, name in enumerate(sorted(os.listdir(self._path(node)))):
            encoded = os.fsencode(name)
            entry = struct.pack("<QQII", number + 2, number + 1, len(encoded), 0) + encoded
            entry += bytes(-len(entry) % 8)
            if len(answer) + len(entry) > size:
                break
            if number >= offset:
                answer += entry
        return answer

    def _release(self, node: int, body: bytes, _u: int) -> bytes:
        handle, _, flags, owner = struct.unpack_from("<QIIQ", body)
        os.close(self._handles.pop(handle))
        if flags & 2:  # FUSE_RELEASE_FLOCK_UNLOCK
            self._drop(node, (self._mount, owner, _LK_FLOCK))
        return b""

    def _releasedir(self, _n: int, body: bytes, _u: int) -> bytes:
        os.close(self._handles.pop(struct.unpack_from("<Q", body)[0]))
        return b""

    def _flush(self, node: int, body: bytes, _u: int) -> bytes:
        (owner,) = struct.unpack_from("<16xQ", body)
        self._drop(node, (self._mount, owner, 0))
        return b""

    # --- locks

    def _init(self, _n: int, body: bytes, _u: int) -> bytes:
        _, _, readahead, offered = struct.unpack_from("<IIII", body)
        chosen = _BIG_WRITES | _ATOMIC_TRUNC
        if self._locks != "host":
            chosen |= _POSIX_LOCKS | _FLOCK_LOCKS
        limits = struct.pack("<HHIIHH28x", 16, 12, _MAX_WRITE, 1, 256, 0)
        return struct.pack("<IIII", 7, 31, readahead, chosen & offered) + limits

    def _asked(self, body: bytes) -> Lock:
        _, owner, start, end, kind, _, flags, _ = _LOCK.unpack_from(body)
        if self._locks not in ("shared", "ignored"):
            raise OSError(getattr(errno, self._locks), "")
        return Lock((self._mount, owner, flags), kind, start, end)

    def _conflict(self, node: int, asked: Lock) -> Lock | None:
        """Locks of fcntl and flock exclude one another, as on NFS."""
        for lock in self._nodes[node].locks:
            apart = lock.end < asked.start or asked.end < lock.start
            if not apart and lock.owner != asked.owner and _F_WRLCK in (lock.kind, asked.kind):
                return lock
        return None

    def _getlk(self, node: int, body: bytes, _u: int) -> bytes:
        found = self._conflict(node, self._asked(body)) if self._locks == "shared" else None
        if found is None:
            return struct.pack("<QQII", 0, 0, _F_UNLCK, 0)
        return struct.pack("<QQII", found.start, found.end, found.kind, 0)

    def _setlk(self, node: int, body: bytes, unique: int) -> bytes | None:
        asked = self._asked(body)
        if self._locks == "ignored" or self._grant(node, asked):
            return b""
        raise OSError(errno.EAGAIN, "")

    def _setlkw(self, node: int, body: bytes, unique: int) -> bytes | None:
        asked = self._asked(body)
        if self._locks == "ignored" or self._grant(node, asked):
            return b""
        self._waiting.append(Waiter(self._mount, unique, node, asked))
        return None

    def _interrupt(self, _n: int, body: bytes, _u: int) -> bytes:
        (unique,) = struct.unpack_from("<Q", body)
        for waiter in self._waiting:
            if (waiter.mount, waiter.unique) == (self._mount, unique):
                self._waiting.remove(waiter)
                self._reply(waiter.mount, unique, b"", -errno.EINTR)
                break
        return b""

    def _grant(self, node: int, asked: Lock) -> bool:
        if asked.kind != _F_UNLCK and self._conflict(node, asked):
            return False
        kept = []
        for lock in self._nodes[node].locks:
            if lock.owner != asked.owner or lock.end < asked.start or asked.end < lock.start:
                kept.append(lock)
                continue
            if lock.start < asked.start:
                kept.append(Lock(lock.owner, lock.kind, lock.start, asked.start - 1))
            if asked.end < lock.end:
                kept.append(Lock(lock.owner, lock.kind, asked.end + 1, lock.end))
        if asked.kind != _F_UNLCK:
            kept.append(asked)
        self._nodes[node].locks = kept
        self._wake(node)
        return True

    def _drop(self, node: int, owner: tuple[int, int, int]) -> None:
        locks = self._nodes[node].locks
        self._nodes[node].locks = [lock for lock in locks if lock.owner != owner]
        if locks:
            self._wake(node)

    def _wake(self, node: int) -> None:
        for waiter in [one for one in self._waiting if one.node == node]:
            if waiter in self._waiting and not self._conflict(node, waiter.lock):
                self._waiting.remove(waiter)
                self._grant(node, waiter.lock)
                self._reply(waiter.mount, waiter.unique, b"")


def _unknown(*_: object) -> bytes:
    raise OSError(errno.ENOSYS, "")


def mount(target: str, kind: str) -> int:
    """Mount the file system; returns the descriptor of its requests."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    libc = ctypes.CDLL(None, use_errno=True)
    name = f"fuse.{kind}".encode()
    if libc.mount(b"server:/export", target.encode(), name, ctypes.c_ulong(0), options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return device


def main() -> None:
    locks, fifos, kind, folder, *targets = sys.argv[1:]
    os.umask(0)
    server = Server(Path(folder), locks, fifos == "yes")
    server.devices = [mount(target, kind) for target in targets]
    print("mounted", flush=True)
    polled = select.poll()
    for device in server.devices:
        polled.register(device, select.POLLIN)
    left = dict(zip(server.devices, range(len(targets)), strict=True))
    while left:
        for device, _ in polled.poll():
            try:
                message = os.read(device, _MAX_WRITE + 4096)
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    polled.unregister(device)
                    del left[device]
                elif error.errno != errno.ENOENT:  # interrupted meanwhile
                    raise
                continue
            server.handle(left[device], message)


if __name__ == "__main__":
    main()
