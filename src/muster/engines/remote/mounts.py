"""The mounts of a run whose nodes are on other machines.

A directory that the host of a node has is used there. Otherwise the node gets a copy of the
submitter's, and what has changed in it comes back when an incarnation has ended, before its end is
reported. A new node gets the directory as it is then, so it finds what others have brought back. A
URL has a folder on the submitter's machine (`url_folders`), of which nodes get copies as well. An
NFS export is used where the host has mounted it.

The folder `RunDir.sent` has

    SHA256        the archive of a directory as nodes were given it
    SHA256.json   the versions of the files in it
    SLOT.json     which of them a node has, by source, and what it has brought back since
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from muster.engines.base import RunContext
from muster.engines.credentials import access_of_copies
from muster.engines.launch import emptied_mounts
from muster.engines.loop import RunLoop
from muster.engines.remote.code import RUN, find_archive
from muster.engines.remote.collection import Receive, TreeCopy, Unpacker
from muster.engines.remote.hosts import Host
from muster.engines.remote.mount_copies import LIMIT, Given, Packed, pack, take_back
from muster.engines.remote.url_folders import UrlFolders
from muster.node import messages
from muster.node.code import NODE
from muster.node.files import read_regular, remove_tree, replace_file
from muster.node.given_files import mount_folder
from muster.plan.model import MountPlan, RunPlan
from muster.secrets import without_credentials
from muster.spec.kinds import MountKind, classify_source
from muster.storage.mount_sources import named_source, nfs_export

#: Kinds of mounts of which nodes get copies.
_COPIED = ("directory", "url")
#: Owner of a scratch folder -> the folder it is in, below the node server's, and its mode.
_SCRATCH = {
    "node": (f"{NODE}/scratch", 0o700),
    "incarnation": (f"{NODE}/life", 0o1777),
    "run": (f"{RUN}/scratch", 0o700),
}


# --- where they are


def copied_sources(mounts: Sequence[MountPlan]) -> list[str]:
    """The sources of which nodes get copies: URLs, and directories where the host does not have
    them."""
    return list(dict.fromkeys(mount.source for mount in mounts if mount.kind in _COPIED))


def _sources(mounts: Sequence[MountPlan], kind: MountKind) -> list[str]:
    return list(dict.fromkeys(mount.source for mount in mounts if mount.kind == kind))


class NodeMounts(Struct, frozen=True):
    """The mounts of a node on its host. folder: the node server's. found: source -> where the host
    has it. packed: those that are sent there. at_paths, shared: see `Host`."""

    mounts: tuple[MountPlan, ...]
    folder: str
    found: Mapping[str, str] = {}
    packed: Mapping[str, Packed] = {}
    at_paths: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()

    def path(self, mount: MountPlan) -> str:
        """Where the node sees one. Mounts of one source are one directory."""
        return mount.path if mount.path in self.at_paths else self._writable(mount)

    def _writable(self, mount: MountPlan) -> str:
        """Where the server has it."""
        whole = self._whole(mount)
        return whole if mount.sub_path is None else f"{whole}/{mount.sub_path}"

    def _whole(self, mount: MountPlan) -> str:
        if mount.source in self.found:
            return self.found[mount.source]
        if mount.kind == "files":
            return mount_folder(f"{self.folder}/{NODE}", mount.variable)
        if mount.kind in _COPIED:
            return self.copy(mount.source)
        named = named_source(mount.source)
        if named.of == "home":
            return f"{os.path.dirname(self.folder)}/volumes/{named.name}"
        return f"{self.folder}/{_SCRATCH[named.of][0]}/{named.name}"

    def copy(self, source: str) -> str:
        """Where the copy of a source is, if there is one."""
        number = copied_sources(self.mounts).index(source)
        # a URL may have a password
        name = "url" if classify_source(source) == "url" else Path(source).name or "root"
        return f"{self.folder}/{NODE}/mnt/{number}/{name}"

    @property
    def mounted(self) -> dict[str, str]:
        """See `EngineValues.mounted`."""
        elsewhere = (mount for mount in self.mounts if mount.path not in self.at_paths)
        return {mount.path: self.path(mount) for mount in elsewhere}

    @property
    def fresh(self) -> list[str]:
        """The folders that are emptied before each incarnation."""
        own = [mount for mount in self.mounts if mount.source not in self.shared]
        return [self._writable(mount) for mount in emptied_mounts(own)]

    @property
    def of_node(self) -> list[str]:
        """The folders of a node that its host has already: they are emptied for a new node."""
        own = [mount for mount in self.mounts if mount.source not in self.shared]
        there = [mount for mount in own if mount.path in self.at_paths]
        parts = emptied_mounts(there, ("node", "incarnation"))
        return list(dict.fromkeys(self._writable(mount) for mount in parts))

    def messages(self, start: str) -> list[messages.Mount]:
        """What the host is told. start: the folder there in which programs start."""
        # links inside a folder that is itself replaced by a link come later
        depth = [len(Path(mount.link or "").parts) for mount in self.mounts]
        ordered = sorted(zip(depth, self.mounts, strict=True), key=lambda one: one[0])
        made = []
        for _, mount in ordered:
            link = "" if mount.link is None else os.path.join(start, mount.link)
            if mount.path in self.at_paths:
                made.append(messages.Mount(mount.path, link=link))
                continue
            whole = messages.Mount(
                path=self._whole(mount),
                mode=self._mode(mount),
                sha256=self.packed[mount.source].sha256 if mount.source in self.packed else "",
                link=link if mount.sub_path is None else "",
                file=self._file(mount),
            )
            made.append(whole)
            if mount.sub_path is not None:  # a directory in it is made if it is missing
                made.append(messages.Mount(self._writable(mount), mode=0o755, link=link))
        return made

    def _file(self, mount: MountPlan) -> str:
        """The file that a URL names; "" if it names a folder."""
        name = mount.source.rstrip("/").rpartition("/")[2]
        packed = self.packed.get(mount.source)
        is_file = packed is not None and [*packed.versions] == [name] and packed.versions[name]
        return name if mount.kind == "url" and is_file else ""

    def _mode(self, mount: MountPlan) -> int:
        if mount.kind == "scratch":
            return _SCRATCH[named_source(mount.source).of][1]
        return 0 if mount.source in self.found else 0o700


# --- the run's


class RemoteMounts:
    """The mounts of a run's nodes. changed: called in the loop's thread when something is packed or
    kept."""

    def __init__(
        self, context: RunContext, loop: RunLoop, unpacker: Unpacker, changed: Callable[[], None]
    ) -> None:
        self._plan: RunPlan = context.plan
        self._loop, self._unpacker, self._changed = loop, unpacker, changed
        run_dir = context.home.run_dir(context.plan.run_id)
        self._urls = UrlFolders(context.plan, run_dir, access_of_copies(context), LIMIT)
        self._unsent: set[str] = set()  # URLs that lack what a node has brought back
        self._found: dict[int, dict[str, str]] = {}  # by slot: source -> where its host has it
        self._mounted: dict[int, Mapping[str, str]] = {}  # by slot, see `Host.mounted`
        self._at_paths: dict[int, frozenset[str]] = {}  # by slot, see `Host.at_paths`
        self._shared: dict[int, frozenset[str]] = {}  # by slot, see `Host.shared`
        self._folder = run_dir.sent
        self._packed: dict[str, Packed] = {}
        self._outdated: set[str] = set()  # sources that may have changed since
        self._packing: set[str] = set()
        self._failures: dict[str, str] = {}
        self._given: dict[int, dict[str, Given]] = {}  # by slot and source
        self._kept: set[int] = set()  # slots whose nodes were kept with what they have

    def _of(self, slot: int) -> tuple[MountPlan, ...]:
        return self._plan.group(self._plan.nodes[slot].group).mounts

    # --- before a launch

    def placed(self, slot: int, host: Host) -> None:
        """A slot has a host."""
        self._mounted[slot], self._at_paths[slot] = host.mounted, host.at_paths
        self._shared[slot] = host.shared

    def request(self, slot: int) -> messages.FindFolders | None:
        """What to ask the host of a node for; None: nothing."""
        mounted = self._mounted.get(slot, {})
        mounts = [one for one in self._of(slot) if one.source not in mounted]
        paths, exports = _sources(mounts, "directory"), _sources(mounts, "nfs")
        if not (paths or exports):
            self._found[slot] = dict(mounted)
            return None
        return messages.FindFolders(paths, [nfs_export(source) for source in exports])

    def answered(self, slot: int, answer: messages.FoldersFound) -> None:
        """The host of a node has answered."""
        exports = {
            source: answer.exports[nfs_export(source)]
            for source in _sources(self._of(slot), "nfs")
            if nfs_export(source) in answer.exports
        }
        found = {path: path for path in answer.paths}
        self._found[slot] = {**found, **exports, **self._mounted.get(slot, {})}

    def starting(self) -> None:
        """Nodes are about to start: they get directories as they are now."""
        self._outdated.update(self._packed)
        self._failures.clear()
        self._urls.starting()

    def ask(self, slot: int) -> bool:
        """Have packed what a node needs. Returns whether it is. Raises OSError with why it cannot
        be."""
        mounts = self._of(slot)
        sources = copied_sources(mounts)
        if mounts and slot not in self._found:
            return False
        for source in _sources(mounts, "nfs"):
            if source not in self._found[slot]:
                raise OSError(
                    f"its machine has not mounted {nfs_export(source)}: have it mounted there, at "
                    "any path, or mount a directory or a URL instead"
                )
        ready = True
        for source in sources:
            if source in self._found[slot]:
                continue
            if source in self._failures:
                shown, why = without_credentials(source), self._failures[source]
                raise OSError(f"{shown} cannot be copied to a host: {why}")
            if source in self._packing:
                ready = False
            elif source not in self._packed or source in self._outdated:
                ready = False
                self._packing.add(source)
                self._outdated.discard(source)
                self._loop.in_thread(partial(self._pack, source), partial(self._take, source))
        return ready

    def _pack(self, source: str) -> Packed | str:
        """In a thread. Returns why it cannot be packed otherwise."""
        folder = str(self._place(source))
        try:
            if self._urls.folder(source) is not None:
                self._urls.fetch(source)
            return pack(folder, self._folder, self._packed.get(source))
        except OSError as error:
            failure = error.strerror or str(error)
            shows_path = error.filename not in (None, ".", folder)
            return f"{error.filename}: {failure}" if shows_path else failure

    def _place(self, source: str) -> Path:
        """The folder here of which nodes get copies."""
        return self._urls.folder(source) or Path(source)

    def _take(self, source: str, result: Packed | str) -> None:
        self._packing.discard(source)
        if isinstance(result, str):
            self._failures[source] = result
        else:
            self._packed[source] = result
        self._changed()

    def _remove_unused(self) -> None:
        """Remove archives that no node has or will get. One that a thread is about to announce is
        not known yet: then they stay until the next time, or the end of the run."""
        if self._packing:
            return
        used = {one.sha256 for one in self._packed.values()}
        for slot in range(len(self._plan.nodes)):
            used.update(one.sha256 for one in self._read(slot).values())
        for path in self._folder.iterdir():
            if re.fullmatch("[0-9a-f]{64}", path.stem) and path.stem not in used:
                path.unlink()

    def launch(self, slot: int, folder: str, mounts: tuple[MountPlan, ...]) -> NodeMounts:
        """What a node gets whose needs are packed. folder: the node server's; mounts: its own.
        Raises OSError."""
        found = self._found.get(slot, {})
        copied = [source for source in copied_sources(mounts) if source not in found]
        packed = {source: self._packed[source] for source in copied}
        if packed and slot not in self._kept:
            self._give(slot, packed)
        at_paths, shared = (
            of_slot.get(slot, frozenset()) for of_slot in (self._at_paths, self._shared)
        )
        return NodeMounts(mounts, folder, found, packed, at_paths, shared)

    def _give(self, slot: int, packed: Mapping[str, Packed]) -> None:
        """A node gets these directories. Raises OSError."""
        before = {one.sha256 for one in self._read(slot).values()}
        self._given[slot] = {
            source: Given(one.sha256, {}, one.versions) for source, one in packed.items()
        }
        self._write(slot)
        if before.difference(one.sha256 for one in packed.values()):
            self._remove_unused()

    def archive(self, sha256: str) -> Path | None:
        """See `find_archive`."""
        return find_archive(self._folder, sha256)

    # --- after the end

    def copies(
        self, slot: int, rank: int, folder: str, changed: Callable[[], None], *, kept: bool
    ) -> list[TreeCopy]:
        """What comes back from a node that has ended. folder: the node server's; changed: see
        `TreeCopy`; kept: whether it may be restarted in place."""
        self._kept.add(slot) if kept else self._kept.discard(slot)
        there = NodeMounts(self._of(slot), folder)
        writable = {one.source for one in there.mounts if not one.read_only}
        return [
            TreeCopy(
                there.copy(source),
                self._place(source),
                self._unpacker,
                changed,
                self._receiver(slot, rank, source),
                self._folder.parent,
            )
            for source in copied_sources(there.mounts)
            if source in writable  # where there is no copy, nothing comes back
        ]

    def _receiver(self, slot: int, rank: int, source: str) -> Receive:
        given = self._read(slot).setdefault(source, Given("", {}, {}))

        def receive(spool: IO[bytes], target: Path) -> None:
            is_url = self._urls.folder(source) is not None
            try:
                if take_back(spool, str(target), given, rank) and is_url:
                    self._unsent.add(source)
            finally:
                self._write(slot)
            if source in self._unsent:
                self._send(source, slot)

        return receive

    def _send(self, source: str, slot: int) -> None:
        """Copy what has come back to its URL. Raises OSError."""
        shown = without_credentials(source)
        try:
            self._urls.send(source, slot)
        except OSError as error:
            raise OSError(errno.EIO, f"it cannot be written: {error}", shown) from None
        self._unsent.discard(source)

    def canceled(self, slots: Collection[int]) -> None:
        """The ends of the nodes in these slots are not to wait for URLs."""
        self._urls.cancel(slots)

    def _read(self, slot: int) -> dict[str, Given]:
        """What a node was given, also by an earlier supervisor."""
        if slot not in self._given:
            self._given[slot] = {}
            for source, (digest, own) in _read_json(self._folder / f"{slot}.json").items():
                versions = _read_json(self._folder / f"{digest}.json")
                self._given[slot][source] = Given(digest, own, versions)
        return self._given[slot]

    def _write(self, slot: int) -> None:
        """Raises OSError."""
        data = {source: [one.sha256, one.own] for source, one in self._given[slot].items()}
        self._folder.mkdir(mode=0o700, exist_ok=True)
        replace_file(self._folder / f"{slot}.json", json.dumps(data).encode(), 0o600)

    def released(self, slot: int) -> None:
        """A node that was kept is given up."""
        self._kept.discard(slot)

    def gone(self, slot: int) -> None:
        """A node's host is gone: the next one may have other directories."""
        self._found.pop(slot, None)
        self._kept.discard(slot)

    def close(self, *, remove: bool) -> None:
        """remove: whether no node needs the archives any more."""
        self._urls.close()
        if remove and self._folder.exists():
            remove_tree(str(self._folder))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_regular(path))
    except (OSError, ValueError):  # of a supervisor that was killed
        return {}
    return found if isinstance(found, dict) else {}
