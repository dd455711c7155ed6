"""The outputs of a run whose nodes are on other machines: a node finds what was collected.

When a node starts, its folder on its host may lack files of its output directories: all of them if
the folder is new, as after a suspension or on another machine, otherwise those that other nodes
have brought back since, into the directory that nodes share. It is sent these files only. A replica
of an array is sent its own directory only: replicas do not share what they write on their hosts.

The folder `RunDir.sent`/outputs has

    SHA256        an archive of files, until the nodes that need it have unpacked it
    SLOT.json     what the folder of a slot on its host has: what the server calls the incarnation
                  that was last launched in it, its rank, and the versions here of the files of that
                  node which the folder has as well; written when there are any
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

from msgspec import Struct

from muster.engines.base import RunContext
from muster.engines.loop import RunLoop
from muster.engines.remote.code import RUN, find_archive, write_archive
from muster.engines.remote.collection import Receive, Wanted, receive_tree
from muster.node import messages
from muster.node.files import read_regular, replace_file
from muster.node.folder_access import Listing, in_folder, is_part, open_below, walk
from muster.node.tree_streams import Version, version, version_at
from muster.plan.model import RunPlan
from muster.spec.quantities import format_size

#: The most bytes that are sent to a node. They have come over the same connection, and an archive
#: of them needs room here and there.
LIMIT = 4 << 30
#: What a folder has for a version.
_FOLDER: Version = []
#: Path in the output directory of the run -> version.
Files = dict[str, Version]


class _Held(Struct):
    """What a slot's folder on its host has. An incarnation is what the slot's server calls it, also
    below (`RemoteNode.number`)."""

    #: The newest that was launched in it; -1: none.
    incarnation: int
    #: The rank of the node; -1: not known. What the folder has for other nodes does not count.
    rank: int = -1
    #: The files that are the same here; None: that is not known.
    files: Files | None = None
    #: Whether that incarnation has unpacked what it was sent.
    joined: bool = False


class _Lacking(Struct, frozen=True):
    """What a node is sent. held: what it had. incarnation: for which it is."""

    held: _Held
    incarnation: int
    #: What it has then.
    files: Files = {}
    #: Path in the output directory of the run -> SHA-256 of the archive to unpack there.
    archives: Mapping[str, str] = {}
    #: Why it cannot be sent; "" if it can.
    failure: str = ""


class SentOutputs:
    """What nodes are sent of the outputs of their run. changed: called in the loop's thread when
    something is packed. A slot is a position in `RunPlan.nodes`."""

    def __init__(self, context: RunContext, loop: RunLoop, changed: Callable[[], None]) -> None:
        run_dir = context.home.run_dir(context.plan.run_id)
        self._loop, self._changed = loop, changed
        self._folder = run_dir.sent / "outputs"
        self._packer = _Packer(
            run_dir.outputs,
            self._folder,
            context.plan.policy.size if context.plan.node_outputs else 0,
            _ranks_of_arrays(context.plan),
        )
        self._held: dict[int, _Held] = {}  # by slot, as all that follows
        self._is_empty: bool | None = None  # whether there are no outputs; None: not looked at yet
        self._asked: dict[int, tuple[_Held, int]] = {}  # for which incarnation is to be packed
        self._packing = False
        self._lacking: dict[int, _Lacking] = {}
        self._needed: dict[int, list[str]] = {}  # archives, until nodes have unpacked them
        self._uses = Counter[str]()  # of these
        self._unneeded: set[str] = set()  # archives without uses that may still be there

    # --- what nodes have

    def found(self, slot: int, incarnation: int) -> None:
        """The server of a slot has said what was last launched in its folder: -1 if the folder is
        new."""
        if incarnation < 0 or incarnation != self._read(slot).incarnation:
            self._held[slot] = _Held(incarnation)
            self._drop(slot)

    def _read(self, slot: int) -> _Held:
        """What a slot has, also as an earlier supervisor knew it."""
        if slot not in self._held:
            self._held[slot] = _read_held(self._folder / f"{slot}.json")
        return self._held[slot]

    def _read_for(self, slot: int, rank: int) -> _Held:
        """What a slot has of the outputs of a node that it is given to, or was."""
        held = self._read(slot)
        if held.rank != rank:  # of those of another one, nothing is known that is of use
            held = self._held[slot] = _Held(held.incarnation, rank, joined=held.joined)
            self._drop(slot)
        return held

    def _write(self, slot: int) -> None:
        held, path = self._held[slot], self._folder / f"{slot}.json"
        if not (held.files or path.exists()):
            return
        content = json.dumps([held.incarnation, held.rank, held.files])
        with contextlib.suppress(OSError):  # another supervisor sends more than is needed then
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, content.encode(), 0o600)

    def learn(self, slot: int, message: messages.Message) -> None:
        """The server of a slot has said something."""
        if isinstance(message, messages.HostFacts):
            self.found(slot, message.incarnation)
        elif isinstance(message, (messages.Joined, messages.Started)):
            if message.incarnation == self._read(slot).incarnation:
                self._held[slot].joined = True
                self._drop(slot)
        elif isinstance(message, messages.Ended):
            held = self._read(slot)
            if message.incarnation == held.incarnation and not held.joined:
                held.files = None  # it may have unpacked some of them
            self._drop(slot)

    def gone(self, slot: int) -> None:
        """A slot's host is gone."""
        self._held[slot] = _Held(-1)
        self._drop(slot)

    # --- before a launch

    def starting(self) -> None:
        """Nodes are about to start: they get outputs as they are now."""
        self._is_empty = None

    def ask(self, slot: int, rank: int, incarnation: int) -> bool:
        """Have packed what a node lacks that is to be launched in a slot. Returns whether it is.
        Raises OSError with why it cannot be."""
        if self._is_empty is None:
            self._is_empty = self._packer.is_empty()
        if self._is_empty or not self._packer.may_have(rank):
            return True
        held, lacking = self._read_for(slot, rank), self._lacking.get(slot)
        if lacking is None or lacking.incarnation != incarnation:
            self._asked[slot] = held, incarnation
            self._pack()
            return False
        if lacking.failure:
            raise OSError(f"the run's outputs cannot be sent to its machine: {lacking.failure}")
        return True

    def _pack(self) -> None:
        if self._packing or not self._asked:
            return
        self._packing = True
        wanted, self._asked = self._asked, {}
        self._loop.in_thread(lambda: dict(self._packer.pack(wanted)), self._take)

    def _take(self, found: Mapping[int, _Lacking]) -> None:
        for slot, lacking in found.items():
            archives = list(lacking.archives.values())
            self._unneeded.update(archives)
            if lacking.held is self._read(slot):  # else it has another host or node by now
                self._drop(slot)
                self._lacking[slot], self._needed[slot] = lacking, archives
                self._uses.update(archives)
        self._packing = False
        self._remove_unneeded()
        self._pack()
        self._changed()

    def launch(
        self, slot: int, rank: int, incarnation: int, folder: str
    ) -> messages.Outputs | None:
        """What a node gets whose needs are packed; None: it lacks nothing. folder: the node
        server's."""
        held, lacking = self._read_for(slot, rank), self._lacking.pop(slot, None)
        if lacking is None or lacking.incarnation != incarnation:
            files, archives = held.files or {}, {}
        else:
            files, archives = lacking.files, dict(lacking.archives)
        self._held[slot] = _Held(incarnation, rank, files)
        self._write(slot)
        if not archives:
            return None
        return messages.Outputs(f"{folder}/{RUN}/{self._packer.root.name}", archives)

    def archive(self, sha256: str) -> Path | None:
        """See `find_archive`."""
        return find_archive(self._folder, sha256)

    def _drop(self, slot: int) -> None:
        """A slot does not need the archives any more that were packed for it."""
        self._lacking.pop(slot, None)
        if archives := self._needed.pop(slot, None):
            self._uses.subtract(archives)
            self._unneeded.update(archives)
            self._remove_unneeded()

    def _remove_unneeded(self) -> None:
        """Remove archives that no slot needs. What a thread is about to announce is not known yet:
        then they stay until it has."""
        if self._packing:
            return
        for sha256 in self._unneeded:
            if self._uses[sha256] <= 0:
                del self._uses[sha256]
                (self._folder / sha256).unlink(missing_ok=True)
        self._unneeded.clear()

    # --- after the end

    def receiver(self, slot: int, rank: int, wanted: Wanted) -> Receive:
        """Unpacks, in another thread, what comes back from a node that has ended."""

        held = self._read_for(slot, rank)

        def receive(spool: IO[bytes], target: Path) -> None:
            places: list[str] = []

            def wanted_and_noted(folder: Path, name: str) -> bool:
                is_wanted = wanted(folder, name)
                if is_wanted:
                    places.append(os.path.normpath(name))
                return is_wanted

            try:
                receive_tree(spool, target, wanted_and_noted)
            finally:  # also of what was unpacked before a disk was full
                found = {place: version_at(str(target), place) for place in places}
                if files := {place: now for place, now in found.items() if now is not None}:
                    held.files = {**(held.files or {}), **files}
                    self._is_empty = None
                    if held is self._held[slot]:  # else it has another host by now
                        self._write(slot)

        return receive


def _read_held(path: Path) -> _Held:
    try:
        incarnation, rank, files = json.loads(read_regular(path))
        return _Held(int(incarnation), int(rank), None if files is None else dict(files))
    except (OSError, ValueError, TypeError):  # there is none, or of a supervisor that was killed
        return _Held(-1)


# --- packing


def _ranks_of_arrays(plan: RunPlan) -> Sequence[range]:
    """The ranks of the nodes of arrays."""
    arrays = (group for group in plan.groups if group.is_array)
    return [range(group.first_rank, group.first_rank + group.size) for group in arrays]


class _Packer:
    """Packs outputs. root: the output directory of the run. folder: for archives. nodes: how many
    of these have a directory of their own in it. arrays: ranks of those that are sent nothing
    else."""

    def __init__(self, root: Path, folder: Path, nodes: int, arrays: Sequence[range]) -> None:
        self.root, self._folder, self._nodes, self._arrays = root, folder, nodes, arrays

    def is_empty(self) -> bool:
        """Whether there are no outputs of any node."""
        try:
            with os.scandir(self.root) as found:
                return next(found, None) is None
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # packing says what is wrong
            return False

    def may_have(self, rank: int) -> bool:
        """Whether there may be outputs for a node, if there are any at all. Most replicas of an
        array have not run before."""
        return not self._in_array(rank) or (self.root / f"rank-{rank}").exists()

    def _in_array(self, rank: int) -> bool:
        return any(rank in ranks for ranks in self._arrays)

    def pack(self, wanted: Mapping[int, tuple[_Held, int]]) -> Iterator[tuple[int, _Lacking]]:
        """What nodes lack. wanted: slot -> what the slot has, and the incarnation for which it
        is."""
        packed: dict[tuple[str, frozenset[str]], str] = {}  # for the other nodes
        ranks = {held.rank for held, _ in wanted.values()}
        try:
            listed, failure = self._list(ranks), ""
        except OSError as error:
            listed, failure = {}, _why(error)
        for slot, (held, incarnation) in wanted.items():
            rank = held.rank
            shared = {} if self._in_array(rank) else listed.get(None, {})
            files = {**shared, **listed.get(rank, {})}
            lacking = {
                place: now
                for place, now in files.items()
                if (held.files is None or now != _FOLDER) and (held.files or {}).get(place) != now
            }
            archives: dict[str, str] = {}
            try:
                self._check_size(lacking)
                for below, places in self._parts(rank, lacking).items():
                    part = below, frozenset(places)
                    if part not in packed:
                        packed[part] = self._write(below, places)
                    archives[below] = packed[part]
            except OSError as error:
                yield slot, _Lacking(held, incarnation, failure=_why(error))
                continue
            kept = {place: now for place, now in files.items() if now != _FOLDER}
            yield slot, _Lacking(held, incarnation, kept, archives, failure)

    def _owner(self, place: str) -> int | None:
        """The node in whose directory a path is; None if it is in that of all."""
        found = re.match(r"rank-(0|[1-9]\d*)(/|$)", place)
        rank = int(found[1]) if found is not None else self._nodes
        return rank if rank < self._nodes else None

    def _list(self, ranks: Collection[int]) -> dict[int | None, Files]:
        """The outputs of these nodes, and those of all nodes, by their owners. Raises OSError."""
        listed: dict[int | None, Files] = {}
        if not self.root.is_dir():
            return listed
        owners = {None, *ranks}
        with in_folder(str(self.root)) as descriptor:
            for here, names, opened in walk(descriptor, _fail):
                if here == ".":  # an array has any number of others
                    names[:] = [name for name in names if self._owner(name) in owners]
                for name in names:
                    place = os.path.normpath(os.path.join(here, name))
                    owner = self._owner(place)
                    if (owner is None or "/" in place) and not is_part(name):
                        listed.setdefault(owner, {})[place] = version(name, opened) or _FOLDER
        return listed

    def _check_size(self, files: Files) -> None:
        """Raises OSError if they are too large."""
        if sum(found[1] for found in files.values() if found) > LIMIT:
            raise OSError(
                errno.EFBIG,
                f"the files that it lacks there have more than {format_size(LIMIT)}: delete those "
                f"that it can do without, in {self.root}, or have checkpoints written to a mount",
            )

    def _parts(self, rank: int, files: Iterable[str]) -> dict[str, set[str]]:
        """Path in the root -> paths below it of the files there that are packed together, with the
        folders that they are in: those of a node, and those of all."""
        parts: dict[str, set[str]] = {}
        for place in files:
            below = "" if self._owner(place) is None else f"rank-{rank}"
            path = Path(place).relative_to(below)
            folders = (str(folder) for folder in path.parents if folder.name)
            parts.setdefault(below, set()).update((str(path), *folders))
        return parts

    def _write(self, below: str, places: set[str]) -> str:
        """Write an archive. Returns its SHA-256. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._folder / f"part-{os.urandom(8).hex()}"
        descriptor = open_below(str(self.root), below)
        try:
            digest, left_out = write_archive(descriptor, part, partial(_only, places))
            if left_out:
                raise OSError(errno.EIO, left_out[0])
            part.rename(self._folder / digest)
        finally:
            os.close(descriptor)
            part.unlink(missing_ok=True)
        return digest


def _only(
    places: set[str], descriptor: int, on_error: Callable[[OSError], None]
) -> Iterator[Listing]:
    """As `walk`, with these files and folders only."""
    for here, names, opened in walk(descriptor, on_error):
        kept = [name for name in names if os.path.normpath(os.path.join(here, name)) in places]
        yield here, [name for name in kept if _is_there(name, opened)], opened


def _is_there(name: str, folder: int) -> bool:
    """Whether a file was not deleted just now."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _why(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename not in (None, ".") else ""
    return f"{where}{error.strerror or error}"


def _fail(error: OSError) -> None:
    raise error
