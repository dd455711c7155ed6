"""Where a machine has mounted NFS exports."""

from __future__ import annotations

import pytest

from muster.node import nfs
from muster.node.nfs import find_mounted, mounted_exports

# as Linux writes it, from machines with NFS 3 and 4
TABLE = r"""
sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0
/dev/sda2 / ext4 rw,relatime 0 0
nas:/export/my\040homes /home nfs4 rw,relatime,vers=4.2,addr=10.0.0.5 0 0
Nas:/export /mnt/all nfs rw,vers=3,proto=tcp,mountaddr=10.0.0.5,addr=10.0.0.5 0 0
nas:/export/data /data nfs4 ro,vers=4.2 0 0
nas:/old /old nfs4 rw 0 0
tmpfs /old tmpfs rw 0 0
[fe80::1]:/ /six nfs4 rw 0 0
ana@nas:/files /mnt/sshfs fuse.sshfs rw 0 0
nas:/glust /mnt/glust fuse.glusterfs rw 0 0
""".lstrip("\n")


@pytest.mark.parametrize(
    ("export", "place"),
    [
        ("nas:/export/my homes", "/home"),
        ("nas:/export/my homes/ana", "/home/ana"),
        ("NAS:/export", "/mnt/all"),
        ("nas:/export/", "/mnt/all"),
        ("nas:/export/other", "/mnt/all/other"),
        ("nas:/export/data/set", "/data/set"),
        ("nas:/export/database", "/mnt/all/database"),
        ("[fe80::1]:/a/b", "/six/a/b"),
        ("nas:/old", ""),
        ("nas:/", ""),
        ("nas2:/export", ""),
        ("nas:/files", ""),
        ("nas:/glust", ""),
    ],
)
def test_where_an_export_is_mounted(export: str, place: str) -> None:
    assert find_mounted(export, TABLE) == place


def test_the_table_of_this_machine_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mounted_exports(["nas.invalid:/export"]) == {}
    monkeypatch.setattr(nfs, "_TYPES", ("proc", "sysfs", "tmpfs", "ext4", "overlay"))
    monkeypatch.setattr(nfs, "_split", lambda text: ("", "/"))
    assert mounted_exports(["x"])["x"].startswith("/"), "its lines are as in the sample"
    monkeypatch.setattr(nfs, "_TABLE", "/no/such/table")
    assert mounted_exports(["x"]) == {}
