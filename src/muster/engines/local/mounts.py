"""Mounts of a run on this machine: where their contents are, and how nodes get to see them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from muster.engines.launch import emptied_mounts
from muster.engines.local import namespaces
from muster.plan.model import MountPlan, RunPlan
from muster.storage.home import Home, RunDir
from muster.storage.mount_sources import named_source, nfs_export

_PACKAGE = Path(__file__).parents[2]

#: Lifetime of a scratch folder -> its parent in the node's folder, and its mode. Folders that are
#: emptied for each incarnation are used like /tmp, by any user that a program becomes.
SCRATCH = {"node": ("scratch", 0o700), "incarnation": ("life", 0o1777)}


# --- where contents are


def source_folders(plan: RunPlan, home: Home, owner_home: Home) -> dict[str, Path]:
    """The folder of each mount source of the run, except those that each node has for itself.
    owner_home: has the volumes."""
    folders: dict[str, Path] = {}
    for mount in (mount for group in plan.groups for mount in group.mounts):
        if mount.source not in folders:
            folder = _source_folder(mount, owner_home, home.run_dir(plan.run_id), len(folders))
            folders |= {} if folder is None else {mount.source: folder}
    return folders


def _source_folder(mount: MountPlan, owner_home: Home, run: RunDir, number: int) -> Path | None:
    if mount.kind == "directory":
        return Path(mount.source)
    if mount.kind == "files":
        return None
    if mount.kind in ("nfs", "url"):
        return run.mounts / str(number)
    named = named_source(mount.source)
    if named.of in SCRATCH:
        return None
    return owner_home.volume(named.name) if named.of == "home" else run.scratch(named.name)


def _ensure_source(mount: MountPlan, sources: Mapping[str, Path], folder: Path) -> str:
    """The folder or file to show for a mount; a scratch folder or volume is created if it is
    missing, and so is a folder in it. folder: the node's."""
    whole = _ensure_whole(mount, sources, folder)
    if mount.sub_path is None:
        return whole
    part = os.path.join(whole, mount.sub_path)
    if mount.kind != "files" and not os.path.exists(part):
        os.makedirs(part, exist_ok=True)
    return part


def make_parts(mounts: Iterable[MountPlan], sources: Mapping[str, Path], folder: Path) -> None:
    """Make the folders that are mounted by themselves, in scratch folders that were emptied.
    folder: the node's."""
    for mount in mounts:
        if mount.sub_path is not None:
            _ensure_source(mount, sources, folder)


def _ensure_whole(mount: MountPlan, sources: Mapping[str, Path], folder: Path) -> str:
    if mount.kind == "files":  # the node writes them
        from muster.node.given_files import mount_folder  # few mounts have any

        return mount_folder(str(folder), mount.variable)
    source = sources.get(mount.source)
    if source is None:
        of, name = named_source(mount.source)
        parent, mode = SCRATCH[of]
        scratch = f"{folder}/{parent}/{name}"
        make_scratch(scratch, mode)
        return scratch
    if mount.kind in ("scratch", "volume"):
        make_scratch(str(source), 0o700)
    return str(source)


def make_scratch(folder: str, mode: int) -> None:
    """Create a scratch folder, if it is missing, in a parent that only its owner can access."""
    if os.path.lexists(folder):  # from an earlier node
        return
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.dirname(folder), 0o700)
    with contextlib.suppress(FileExistsError):  # made by another node just now
        os.mkdir(folder, 0o700)
        os.chmod(folder, mode)


def emptied_folders(mounts: Iterable[MountPlan], folder: Path) -> list[str]:
    """The scratch folders to empty before each incarnation of a node. folder: the node's."""
    parent = folder / SCRATCH["incarnation"][0]
    return [
        os.path.join(parent, named_source(mount.source).name, mount.sub_path or "").rstrip("/")
        for mount in emptied_mounts(mounts)
    ]


def nfs_mount_commands(plan: RunPlan, sources: Mapping[str, Path]) -> dict[str, list[str]]:
    """The commands that mount the run's NFS exports, by source.

    They run in the supervisor's mount namespace, so the mounts end with the run. A server that
    does not answer blocks the command for minutes.
    """
    found = {}
    for mount in (m for g in plan.groups for m in g.mounts if m.kind == "nfs"):
        options = ["-o", "ro"] if mount.read_only else []
        argv = ["mount", "-t", "nfs", *options, nfs_export(mount.source)]
        found[mount.source] = [*argv, str(sources[mount.source])]
    return found


def required_paths(plan: RunPlan, home: Home) -> list[Path]:
    """Folders that every node needs and a mount could hide: Python, Muster, and the run's files."""
    paths = [Path(sys.prefix), Path(sys.base_prefix), _PACKAGE, home.root]
    if plan.log_directory is not None:
        paths.append(Path(plan.log_directory))
    return list(dict.fromkeys(paths))


# --- with a mount namespace


class OrderedMount(Struct, frozen=True):
    """A mount, with what can be known about it before its node is forked."""

    mount: MountPlan
    #: Whether its path is inside another mount.
    nested: bool
    #: Required folders that it hides, and that are therefore shown again inside it.
    hidden: tuple[Path, ...]


@lru_cache(maxsize=64)
def order_mounts(
    mounts: tuple[MountPlan, ...], required: tuple[Path, ...] = ()
) -> tuple[OrderedMount, ...]:
    """Mounts in the order to mount them: outer ones before those inside them.

    Cached: the supervisor calls it before it forks a node, so that the nodes of a group share the
    work. required: see `required_paths`.
    """
    paths = {mount.path for mount in mounts}
    return tuple(
        OrderedMount(
            mount,
            any(str(parent) in paths for parent in Path(mount.path).parents),
            tuple(_hidden(Path(mount.path), required)),
        )
        for mount in sorted(mounts, key=lambda mount: len(Path(mount.path).parts))
    )


def _hidden(target: Path, required: Iterable[Path]) -> list[Path]:
    """The required folders that a mount at `target` hides. A mount of the folder itself does not
    count: it replaces the folder on purpose."""
    return [p for p in required if p != target and p.is_relative_to(target) and p.is_dir()]


def bind_mounts(
    mounts: Sequence[MountPlan],
    sources: Mapping[str, Path],
    folder: Path,
    required: Sequence[Path] = (),
) -> None:
    """Show each mount at its path, in the calling process's mount namespace.

    A mount path inside another mount is created if it is missing (as Kubernetes does). sources:
    see `source_folders`; folder: the node's; required: see `required_paths`.
    """
    ordered = order_mounts(tuple(mounts), tuple(required))
    created: set[int] = set()
    shown = [_ensure_source(one.mount, sources, folder) for one in ordered]
    for one, source in zip(ordered, shown, strict=True):
        if not one.nested:
            make_mountpoint(one.mount.path, folder, created, is_file=os.path.isfile(source))
    with ExitStack() as opened:
        # held by descriptor: an earlier mount may hide the source of a later one
        held: dict[str, str] = {}
        for one, source in zip(ordered, shown, strict=True):
            for path in one.hidden:
                inside = Path(source) / path.relative_to(one.mount.path)
                inside.mkdir(parents=True, exist_ok=True)
            held[one.mount.path] = hold(source, opened)
        for one in ordered:
            again = [(hold(str(path), opened), str(path)) for path in one.hidden]
            if one.nested:
                _make_inside(one.mount.path, held)
            source = held[one.mount.path]
            namespaces.bind(source, one.mount.path, read_only=one.mount.read_only)
            for required_source, path_again in again:
                namespaces.bind(required_source, path_again)


def _make_inside(path: str, held: Mapping[str, str]) -> None:
    """Make a mount point inside another mount: in its source, as the mount may be read-only. held:
    the sources of all mounts, by their paths."""
    around = next(str(parent) for parent in Path(path).parents if str(parent) in held)
    place = os.path.join(held[around], os.path.relpath(path, around))
    if os.path.isdir(held[path]):
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "ab"):
            pass


def hold(path: str, opened: ExitStack) -> str:
    """A path that keeps leading to this folder after something is mounted over `path`."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    opened.callback(os.close, descriptor)
    return f"/proc/self/fd/{descriptor}"


def make_mountpoint(path: str, folder: Path, created: set[int], *, is_file: bool = False) -> None:
    """Have a directory, or a file, at `path` without changing the machine's file systems.

    Missing directories are created in a tmpfs that is mounted over the nearest existing parent and
    shows what the parent contains. created: device numbers of the tmpfs mounted so far; the call
    adds to it, and creates directories on these devices directly. folder: the node's or the run's.
    """
    if os.path.isfile(path) if is_file else os.path.isdir(path):
        return
    target = Path(path)
    parent = target.parent
    while not parent.is_dir():
        parent = parent.parent
    if parent.stat().st_dev not in created:
        _mount_overlay(parent, folder)
        created.add(parent.stat().st_dev)
    if not is_file:
        target.mkdir(parents=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()


def _mount_overlay(parent: Path, folder: Path) -> None:
    """Mount a tmpfs over a folder and show in it what the folder contains."""
    if parent == Path("/"):
        _replace_root(folder)
    else:
        with ExitStack() as opened:
            before = Path(hold(str(parent), opened))  # may contain our own files
            _mount_tmpfs(parent)
            _show_entries(before, parent)


def _replace_root(folder: Path) -> None:
    """Make a tmpfs the root directory, and show in it what the machine's root contains."""
    root, old = folder / "root", Path("/.old")
    root.mkdir(parents=True, exist_ok=True)
    _mount_tmpfs(root)
    _show_entries(Path("/"), root)
    (root / old.name).mkdir()
    namespaces.pivot_root(str(root), str(root / old.name))
    os.chdir("/")
    namespaces.unmount(str(old))
    old.rmdir()


def _mount_tmpfs(target: Path) -> None:
    namespaces.mount_tmpfs(str(target), "755")


def _show_entries(source: Path, target: Path) -> None:
    """Show every entry of one folder in another, which is empty."""
    for entry in source.iterdir():
        shown = target / entry.name
        if entry.is_symlink():
            shown.symlink_to(entry.readlink())
        elif entry.is_dir():
            shown.mkdir()
            namespaces.bind(str(entry), str(shown))
        else:
            shown.touch()
            namespaces.bind(str(entry), str(shown))


def show_only(root: Path, visible: Sequence[Path]) -> None:
    """Hide everything below a folder, in the calling process's mount namespace, except some files
    and folders that are in it."""
    with ExitStack() as opened:
        held = [hold(str(path), opened) for path in visible]
        namespaces.mount("tmpfs", str(root), "tmpfs", namespaces.MS_NOSUID, "mode=711")
        for path, source in zip(visible, held, strict=True):
            for parent in (*reversed(path.relative_to(root).parents[:-1]),):
                (root / parent).mkdir(0o711, exist_ok=True)
            if os.path.isdir(source):
                path.mkdir()
            else:
                path.touch()
            namespaces.bind(source, str(path))


# --- without a mount namespace


def link_mounts(
    mounts: Iterable[MountPlan], sources: Mapping[str, Path], folder: Path
) -> dict[str, str]:
    """Create a symbolic link for each mount in the node's folder. Returns mount path -> link."""
    links: dict[str, str] = {}
    for mount in mounts:
        link = folder / "mnt" / mount.path.lstrip("/").replace("/", "-")
        link.parent.mkdir(parents=True, exist_ok=True)
        source = _ensure_source(mount, sources, folder)
        if link.is_symlink() and os.readlink(link) != source:
            link.unlink()  # of another replica of an array
        if not link.is_symlink():
            link.symlink_to(source)
        links[mount.path] = str(link)
    return links


# --- links in the working directory


def link_into_working_dir(
    mounts: Iterable[MountPlan], start: Path, environ: Mapping[str, str]
) -> None:
    """Create the links that mounts ask for in the folder where processes start.

    If the code has files at the place of a link, they are moved into the mount, except those that
    the mount has already. environ: the node's; a variable of each mount says where it is.
    """
    linked = [(mount, mount.link) for mount in mounts if mount.link is not None]
    if not linked:
        return
    from muster.node.mounts import link as make_link  # few mounts have any

    for mount, link in sorted(linked, key=lambda one: len(Path(one[1]).parts)):
        target, place = Path(environ[mount.variable]), start / link
        file = target / mount.source.rstrip("/").rpartition("/")[2]
        if mount.kind == "url" and [*target.iterdir()] == [file] and file.is_file():
            target = file
        make_link(str(target), str(place))
