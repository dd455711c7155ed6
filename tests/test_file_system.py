"""Which file systems other hosts may share, by what the kernel says about mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.file_system import FileSystem, file_system_of, parse_mounts

MOUNTS = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:45 / /home rw,relatime shared:5 - nfs4 nas:/export/my\040homes rw,vers=4.2,local_lock=none
41 27 0:46 /x /old rw - nfs nas:/old rw,vers=3,nolock,local_lock=all
42 27 0:47 / /scratch rw shared:9 master:2 - lustre 10.0.0.1@tcp:/s rw,flock,lazystatfs
43 27 0:48 / /mnt rw,nosuid - fuse.sshfs ann@host: rw,user_id=0
44 27 0:4 / /data rw - gpfs fs1 rw
45 27 8:17 / /san rw - gfs2 /dev/sdb1 rw,lockproto=lock_nolock
46 27 0:51 / /box ro - fuse.fuse-overlayfs fuse-overlayfs rw
47 27 0:52 / /new rw - fuse.unheardof - rw
"""


@pytest.mark.parametrize(
    ("device", "kind", "shared", "host_locks"),
    [
        ((254, 0), "ext4", False, ""),
        ((0, 45), "nfs4", True, ""),
        ((0, 46), "nfs", True, "mounted with local_lock=all, nolock"),
        ((0, 47), "lustre", True, ""),
        ((0, 48), "fuse.sshfs", True, "which has no locks between hosts"),
        ((0, 4), "gpfs", True, ""),
        ((8, 17), "gfs2", True, "mounted with lockproto=lock_nolock"),
        ((0, 51), "fuse.fuse-overlayfs", False, ""),
        ((0, 52), "fuse.unheardof", True, ""),
        ((0, 99), "rootfs", False, ""),  # such as a subvolume of btrfs
    ],
)
def test_mounts(device: tuple[int, int], kind: str, shared: bool, host_locks: str) -> None:
    found = parse_mounts(MOUNTS, os.makedev(*device))
    assert (found.type, found.shared, found.host_locks) == (kind, shared, host_locks)


def test_the_source_is_shown() -> None:
    assert str(parse_mounts(MOUNTS, os.makedev(0, 45))) == "nfs4 (nas:/export/my homes)"
    assert str(FileSystem("tmpfs", "none")) == "tmpfs"


def test_a_folder_that_is_missing_is_where_it_would_be_created(tmp_path: Path) -> None:
    assert file_system_of(tmp_path / "a" / "b") == file_system_of(tmp_path)
    (tmp_path / "file").touch()
    assert file_system_of(tmp_path / "file" / "b") == file_system_of(tmp_path)


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="Linux only")
def test_a_real_mount() -> None:
    assert file_system_of("/proc").type == "proc"
