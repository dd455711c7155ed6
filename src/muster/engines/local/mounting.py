"""Mounts of a run on this machine: where their bytes are, and how a node gets to see them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from muster.engines.local import linux
from muster.engines.local.clearing import SCRATCH, make_scratch
from muster.plan.model import MountPlan, RunPlan
from muster.storage.home import Home, RunDir
from muster.storage.mounts import named_source

_PACKAGE = Path(__file__).parents[2]


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
    if named.of in SCRATCH:
        return None
    return home.volume(named.name) if named.of == "home" else run.scratch(named.name)


def _shown(mount: MountPlan, placed: dict[str, Path], folder: Path) -> Path:
    """The directory a node sees. folder: the node's own."""
    where = placed.get(mount.source)
    if where is None:
        of, name = named_source(mount.source)
        place, mode = SCRATCH[of]
        where = folder / place / name
        make_scratch(where, mode)
    elif mount.kind in ("scratch", "volume"):
        make_scratch(where, 0o700)
    return where


def mount_commands(plan: RunPlan, placed: dict[str, Path]) -> dict[str, list[str]]:
    """What mounts each of the run's NFS exports, by source: to be run in our own mount namespace,
    so that they go when the run goes. A server that is away keeps it waiting for minutes."""
    found = {}
    for mount in (m for g in plan.groups for m in g.mounts if m.kind == "nfs"):
        source = mount.source.removeprefix("nfs://")
        if ":" not in source:
            host, _, path = source.partition("/")
            source = f"{host}:/{path}"
        argv = ["mount", "-t", "nfs", *(["-o", "ro"] if mount.read_only else []), source]
        found[mount.source] = [*argv, str(placed[mount.source])]
    return found


def fresh(mounts: Iterable[MountPlan], folder: Path) -> list[str]:
    """Folders that each life of a node is to find empty. folder: the node's own."""
    named = [named_source(mount.source) for mount in mounts if mount.kind == "scratch"]
    return [str(folder / SCRATCH["life"][0] / name) for of, name in named if of == "life"]


def lifelines(plan: RunPlan, home: Home) -> list[Path]:
    """What nodes live on and a mount could hide: where they find Muster, and their files."""
    places = [Path(sys.prefix), Path(sys.base_prefix), _PACKAGE, home.root]
    if plan.log_directory is not None:
        places.append(Path(plan.log_directory))
    return list(dict.fromkeys(places))


def bind_mounts(
    mounts: Sequence[MountPlan],
    placed: dict[str, Path],
    folder: Path,
    needed: Sequence[Path] = (),
) -> None:
    """In the node's own mount namespace: show each mount at its path. folder: the node's own.

    A path inside another mount is made there if it is missing (as Kubernetes does). needed: what
    nodes live on; where a mount hides it, it is shown there again.
    """
    ordered = sorted(mounts, key=lambda mount: len(Path(mount.path).parts))
    paths = {mount.path for mount in mounts}
    outer = [mount for mount in ordered if not _within(mount, paths)]
    made: set[int] = set()
    for mount in outer:
        make_mountpoint(Path(mount.path), folder, made)
    with ExitStack() as held:
        # by descriptor: what is to be shown may be hidden by then
        sources = []
        for mount in ordered:
            where = _shown(mount, placed, folder)
            for path in _hidden(mount, needed):
                (where / path.relative_to(mount.path)).mkdir(parents=True, exist_ok=True)
            sources.append(_hold(where, held))
        for mount, source in zip(ordered, sources, strict=True):
            again = [(_hold(path, held), path) for path in _hidden(mount, needed)]
            if mount not in outer:
                Path(mount.path).mkdir(parents=True, exist_ok=True)
            linux.bind(source, mount.path, read_only=mount.read_only)
            for place, path in again:
                linux.bind(place, str(path))


def _hidden(mount: MountPlan, needed: Iterable[Path]) -> list[Path]:
    """Which folders of those needed a mount hides; none, if it is one of them."""
    target = Path(mount.path)
    return [p for p in needed if p != target and p.is_relative_to(target) and p.is_dir()]


def _within(mount: MountPlan, paths: Container[str]) -> bool:
    """Whether it is inside another one."""
    return any(str(parent) in paths for parent in Path(mount.path).parents)


def _hold(path: Path, held: ExitStack) -> str:
    """A name for a folder that stays good whatever is mounted over its path."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    held.callback(os.close, descriptor)
    return f"/proc/self/fd/{descriptor}"


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


def lay_links(mounts: Iterable[MountPlan], start: Path, environ: Mapping[str, str]) -> None:
    """Show mounts where processes start, too. environ: names where each is.

    What the code has in that place already is moved into the mount, unless that has it.
    """
    linked = [(mount, mount.link) for mount in mounts if mount.link is not None]
    for mount, link in sorted(linked, key=lambda one: len(Path(one[1]).parts)):
        target, place = Path(environ[mount.variable]), start / link
        file = target / mount.source.rstrip("/").rpartition("/")[2]
        if mount.kind == "url" and [*target.iterdir()] == [file] and file.is_file():
            target = file
        if place.is_dir() and not place.is_symlink():
            _move_all(place, target)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target)


def _move_all(folder: Path, target: Path) -> None:
    """What is in a folder into another; what that has already goes."""
    for here, _, names in os.walk(folder):
        for name in names:
            source = Path(here, name)
            new = target / source.relative_to(folder)
            if target.is_dir() and os.access(target, os.W_OK) and not new.exists():
                new.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(source, new)
    shutil.rmtree(folder)


def make_mountpoint(target: Path, folder: Path, made: set[int]) -> None:
    """Have a directory at `target` without touching the machine's own file system.

    What is missing is made on an empty file system laid over the nearest folder that exists; what
    that folder held is shown again inside it. made: the device numbers of those, which grows; on
    them directories are simply made.
    """
    if target.is_dir():
        return
    parent = target.parent
    while not parent.is_dir():
        parent = parent.parent
    if parent.stat().st_dev not in made:
        _lay_over(parent, folder)
        made.add(parent.stat().st_dev)
    target.mkdir(parents=True)


def _lay_over(parent: Path, folder: Path) -> None:
    """Lay an empty file system over a folder, and show in it what that holds."""
    if parent == Path("/"):
        _make_root(folder)
    else:
        with ExitStack() as held:
            there = Path(_hold(parent, held))  # what it held may be where our own files are
            _empty(parent)
            _show_all(there, parent)


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
