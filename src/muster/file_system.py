"""The file system that a folder is on: a local one, or one that other hosts may share.

SQLite's write-ahead log needs memory that all its users share, and a lock is useless that other
hosts do not see. What depends on that asks here. Only Linux tells; elsewhere, every file system
counts as local.
"""

from __future__ import annotations

import os
from functools import cache

from msgspec import Struct

#: File systems of one host. Any other type counts as shared, unknown ones included: to take a local
#: one for shared costs time, to take a shared one for local costs the data.
_LOCAL = frozenset(
    {
        "aufs",
        "bcachefs",
        "btrfs",
        "cramfs",
        "erofs",
        "exfat",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "fuse.fuse-overlayfs",
        "fuseblk",
        "hfs",
        "hfsplus",
        "iso9660",
        "jffs2",
        "jfs",
        "msdos",
        "nilfs2",
        "ntfs",
        "ntfs3",
        "overlay",
        "ramfs",
        "reiserfs",
        "rootfs",
        "squashfs",
        "tmpfs",
        "ubifs",
        "udf",
        "vfat",
        "xfs",
        "zfs",
    }
)
#: Options of mounts of NFS, CIFS, Lustre, OCFS2 and GFS2 with which locks stay on this host.
_HOST_LOCKS = frozenset(
    {
        "nolock",
        "local_lock=all",
        "local_lock=flock",
        "local_lock=posix",
        "nobrl",
        "localflock",
        "localflocks",
        "lockproto=lock_nolock",
    }
)
#: FUSE file systems whose servers know no locks, so that the kernel keeps them to itself.
_HOST_LOCKS_FUSE = frozenset(
    {
        "fuse.blobfuse",
        "fuse.blobfuse2",
        "fuse.gcsfuse",
        "fuse.goofys",
        "fuse.httpdirfs",
        "fuse.mount-s3",
        "fuse.mountpoint-s3",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
    }
)


class FileSystem(Struct, frozen=True):
    """A mounted file system."""

    #: As the kernel names it: `ext4`, `nfs4`, `fuse.sshfs`.
    type: str
    #: What is mounted: a device, or `server:/export`.
    source: str = ""
    #: Those of the mount and of the file system.
    options: tuple[str, ...] = ()

    @property
    def shared(self) -> bool:
        """Whether other hosts may use it too."""
        return self.type not in _LOCAL

    @property
    def host_locks(self) -> str:
        """Why other hosts do not see its locks, as far as the mount shows: "mounted with nolock";
        else empty."""
        if self.type in _HOST_LOCKS_FUSE:
            return "which has no locks between hosts"
        found = sorted(_HOST_LOCKS.intersection(self.options)) if self.shared else []
        return f"mounted with {', '.join(found)}" if found else ""

    def __str__(self) -> str:
        return f"{self.type} ({self.source})" if self.source not in ("", "none") else self.type


_UNKNOWN = FileSystem("rootfs")


def file_system_of(path: str | os.PathLike[str]) -> FileSystem:
    """The file system of a folder, or of the nearest folder above if it is missing. A local one if
    the kernel does not tell."""
    folder = os.path.abspath(path)
    while True:
        try:
            device = os.stat(folder).st_dev
        except (FileNotFoundError, NotADirectoryError):
            folder = os.path.dirname(folder)
        except OSError:
            return _UNKNOWN
        else:
            return file_system_by_device(device)


@cache
def file_system_by_device(device: int) -> FileSystem:
    """The file system with this `st_dev`. A local one if the kernel does not tell."""
    # Reading this file takes 35 us; a call of statfs by ctypes takes 50, and to import ctypes 2000
    try:
        with open("/proc/self/mountinfo", "rb", buffering=0) as file:
            mounts = file.readall()
    except OSError:
        return _UNKNOWN
    found = parse_mounts(mounts, device)
    if found.type != "overlay":
        return found
    # its locks and memory maps are those of the folder that it writes to
    upper = next((o[9:] for o in found.options if o.startswith("upperdir=")), "")
    if not os.path.isdir(upper):  # not visible in a container
        return found
    below = parse_mounts(mounts, os.stat(upper).st_dev)
    return below if below.shared else found


def parse_mounts(mounts: bytes, device: int) -> FileSystem:
    """The file system of a device in /proc/self/mountinfo (proc(5)):

    36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    """
    start = mounts.find(b" %d:%d /" % (os.major(device), os.minor(device)))
    if start < 0:
        return _UNKNOWN  # a subvolume of btrfs has a number of its own
    line = os.fsdecode(mounts[start : mounts.find(b"\n", start)])
    mount, _, described = line.partition(" - ")
    options = mount.split()[3]
    words = described.split()
    kind, source = words[0], words[1]
    own = words[2] if len(words) > 2 else ""
    return FileSystem(kind, _unescape(source), (*options.split(","), *_unescape(own).split(",")))


def _unescape(text: str) -> str:
    for code in (" ", "\t", "\n", "\\"):
        text = text.replace(f"\\{ord(code):03o}", code)
    return text
