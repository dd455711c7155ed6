"""Mounts of a run on this machine: where their bytes are, and how a node gets to see them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from muster.engines.local import linux
from muster.errors import EngineError
from muster.plan.model import MountPlan, RunPlan
from muster.storage.home import Home, RunDir
from muster.storage.mounts import named_source


def place(plan: RunPlan, home: Home) -> dict[str, Path]:
    """Source -> directory, for every source of the run but those that each node has for itself."""
    placed: dict[str, Path] = {}
    for mount in (mount for group in plan.groups for mount in group.mounts):
        if mount.source not in placed:
            where = _place(mount, home, home.run_dir(plan.run_id), len(placed))
            placed |= {} if where is None else {mount.source: where}
    return placed


def _place(mount: MountPlan, home: Home, run: RunDir, number: int) -> Path | None:
    if mount.kind == "directory":
        return Path(mount.source)
    if mount.kind in ("nfs", "url"):
        return run.mounts / str(number)
    named = named_source(mount.source)
    if named.of == "node":
        return None
    return home.volume(named.name) if named.of == "home" else run.scratch(named.name)


def _shown(mount: MountPlan, placed: dict[str, Path], folder: Path) -> Path:
    """The directory a node sees. folder: the node's own."""
    where = placed.get(mount.source)
    if where is None:
        where = folder / "scratch" / named_source(mount.source).name
    if mount.kind in ("scratch", "volume"):
        where.parent.mkdir(mode=0o700, exist_ok=True)
        where.mkdir(mode=0o700, exist_ok=True)
    return where


def mount_exports(plan: RunPlan, placed: dict[str, Path]) -> None:
    """Mount the run's NFS exports, in our own mount namespace: they go when the run goes."""
    for mount in _unique(plan, "nfs"):
        target = placed[mount.source]
        target.mkdir(parents=True, exist_ok=True)
        source = mount.source.removeprefix("nfs://")
        if ":" not in source:
            host, _, path = source.partition("/")
            source = f"{host}:/{path}"
        argv = ["mount", "-t", "nfs", *(["-o", "ro"] if mount.read_only else []), source]
        pid = os.posix_spawnp("mount", [*argv, str(target)], os.environ)
        if os.waitpid(pid, 0)[1] != 0:
            raise EngineError(
                f"cannot mount {mount.source} (its error is in the run's supervisor.log); "
                "mount it yourself and give the directory as the source"
            )


def _unique(plan: RunPlan, kind: str) -> list[MountPlan]:
    mounts = {m.source: m for g in plan.groups for m in g.mounts if m.kind == kind}
    return list(mounts.values())


def bind_mounts(mounts: Sequence[MountPlan], placed: dict[str, Path], folder: Path) -> None:
    """In the node's own mount namespace: show each mount at its path. folder: the node's own."""
    for mount in mounts:
        target = Path(mount.path)
        _make_mountpoint(target, folder)
        where = _shown(mount, placed, folder)
        linux.bind(str(where), str(target), read_only=mount.read_only)


def link_mounts(
    mounts: Iterable[MountPlan], placed: dict[str, Path], folder: Path
) -> dict[str, str]:
    """Without a mount namespace: links in the node's folder. Returns mount path -> link."""
    links: dict[str, str] = {}
    for mount in mounts:
        link = folder / "mnt" / mount.path.lstrip("/").replace("/", "-")
        link.parent.mkdir(parents=True, exist_ok=True)
        where = _shown(mount, placed, folder)
        if not link.is_symlink():
            link.symlink_to(where)
        links[mount.path] = str(link)
    return links


def _make_mountpoint(target: Path, folder: Path) -> None:
    """Have a directory at `target` without touching the machine's own file system.

    What is missing is made on an empty file system laid over the nearest folder that exists; what
    that folder held is shown again inside it.
    """
    if target.is_dir():
        return
    parent = target.parent
    while not parent.is_dir():
        parent = parent.parent
    if parent == Path("/"):
        _make_root(folder)
    else:
        kept = folder / "kept"
        kept.mkdir(parents=True, exist_ok=True)
        linux.bind(str(parent), str(kept))
        _empty(parent)
        _show_all(kept, parent)
        linux.unmount(str(kept))
    target.mkdir(parents=True)


def _make_root(folder: Path) -> None:
    """Have a root directory of the node's own, that holds what the machine's does."""
    root, old = folder / "root", Path("/.old")
    root.mkdir(parents=True, exist_ok=True)
    _empty(root)
    _show_all(Path("/"), root)
    (root / old.name).mkdir()
    linux.pivot_root(str(root), str(root / old.name))
    os.chdir("/")
    linux.unmount(str(old))
    old.rmdir()


def _empty(target: Path) -> None:
    linux.mount("tmpfs", str(target), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755")


def _show_all(there: Path, here: Path) -> None:
    """Show everything in one folder in another, which is empty."""
    for entry in there.iterdir():
        shown = here / entry.name
        if entry.is_symlink():
            shown.symlink_to(entry.readlink())
        elif entry.is_dir():
            shown.mkdir()
            linux.bind(str(entry), str(shown))
        else:
            shown.touch()
            linux.bind(str(entry), str(shown))
