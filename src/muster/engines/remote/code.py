"""Packs a run's code for nodes on other machines, and sends it to them, with other archives.

The archive has the layout of a node server's folder: `node/work` is where the node's program finds
its code, `run` is what stands there for the run's folder on this machine. All copies of one run's
code are the same bytes, so a host that has it needs no other, whoever has packed it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from io import RawIOBase
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from msgspec import Struct

from muster.engines.base import RunContext
from muster.engines.loop import RunLoop
from muster.engines.remote.contact import Contact
from muster.errors import MusterError
from muster.node.code import NODE
from muster.node.files import remove_tree
from muster.node.folder_access import Walk, in_folder, walk
from muster.node.streams import Stream
from muster.plan.model import RunPlan
from muster.storage.artifacts import ArtifactRef, entry_command, place_artifact
from muster.storage.entrypoint import folder_name

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: The part of a node server's folder that stands for the run's folder.
RUN = "run"
#: Its folder with the output of nodes: a folder for each attempt.
LOGS = "logs"
WORK = "work"
#: What stands for paths on the host in a packed command. No path and no argument has a NUL.
_PYTHON, _WORK, _NODE = "\0python", "\0work", "\0node"
#: Bytes that are read at once.
_CHUNK = 1 << 18


class CommandPaths(Struct, frozen=True):
    """Paths on a host."""

    #: The Python that runs the job.
    python: str
    #: The folder of the code.
    work: str
    #: The folder of `muster.node`.
    node: str


class PackedCode(Struct, frozen=True):
    """The code as nodes get it."""

    #: The archive, and its SHA-256.
    path: Path
    sha256: str
    #: Group -> the command that runs the code, of groups without a command of their own.
    commands: Mapping[str, tuple[str, ...]]

    def command(self, group: str, paths: CommandPaths) -> list[str] | None:
        """The command of a group on a host; None if it has one of its own."""
        words = self.commands.get(group)
        if words is None:
            return None
        there = {_PYTHON: paths.python, _WORK: paths.work, _NODE: paths.node}
        for standing, path in there.items():
            words = tuple(word.replace(standing, path) for word in words)
        return list(words)


def work_name(plan: RunPlan) -> str:
    """The name of the code's folder below `node/work`: programs may import it as a package. Empty
    for a single file, and without code."""
    return "" if plan.artifact is None else folder_name(plan.artifact.kind, plan.artifact.file_name)


def pack(context: RunContext, target: Path) -> PackedCode:
    """Write the archive of a run to a path. Raises MusterError, OSError."""
    tree = Path(f"{target}.tree")
    if tree.exists():  # of a supervisor that was killed
        remove_tree(str(tree))
    work, run = tree / NODE / WORK / work_name(context.plan), tree / RUN
    work.mkdir(parents=True)
    run.mkdir()
    try:
        commands = _place(context, work)
        arguments = context.home.run_dir(context.plan.run_id).arguments
        if arguments.exists():
            (run / arguments.name).write_bytes(arguments.read_bytes())
        _set_times(tree)
        return PackedCode(target, _write(tree, target), commands)
    finally:
        remove_tree(str(tree))


def _place(context: RunContext, work: Path) -> dict[str, tuple[str, ...]]:
    """Put the code into a folder. Returns the commands of groups that run it."""
    plan, code = context.plan, context.plan.artifact
    if code is None:
        return {}
    ref = ArtifactRef(code.sha256, code.file_name, code.kind, code.size)
    place_artifact(context.home, ref, work)
    return {
        group.name: entry_command(
            ref,
            plan.entrypoint_of(group),
            _PYTHON,
            work,
            from_elsewhere=group.working_dir is not None,
            shown=_WORK,
            node=_NODE,
        )
        for group in plan.groups
        if group.role.program and not group.command
    }


def _set_times(tree: Path) -> None:
    """Forget when the files were made here: another copy is to be the same archive."""
    for folder, folders, files in os.walk(tree):
        for name in (*folders, *files):
            os.utime(os.path.join(folder, name), (0, 0), follow_symlinks=False)
    os.utime(tree, (0, 0))


def _write(tree: Path, target: Path) -> str:
    """Returns the SHA-256."""
    with in_folder(str(tree)) as descriptor:
        digest, left_out = write_archive(descriptor, target)
    if left_out:
        raise OSError(f"the code cannot be packed: {left_out[0]}")
    return digest


def write_archive(descriptor: int, target: Path, each_folder: Walk = walk) -> tuple[str, list[str]]:
    """Write what is in an open folder to an archive. Returns its SHA-256, and what cannot be read.
    Raises OSError."""
    from muster.node.transfer import send  # few runs have nodes elsewhere

    left_out: list[str] = []
    with open(target, "wb") as file:
        os.chmod(target, 0o600)
        hashing = _Hashing(file)
        send(descriptor, ".", cast(IO[bytes], hashing), left_out.append, each_folder)
    return hashing.digest.hexdigest(), left_out


def find_archive(folder: Path, sha256: str) -> Path | None:
    """The archive in a folder that a host asks for; None if there is none."""
    path = folder / sha256
    return path if re.fullmatch("[0-9a-f]{64}", sha256) and path.exists() else None


class _Hashing(RawIOBase):
    """A file whose content is hashed as it is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        """Whether it can be written."""
        return True

    def write(self, data: WriteableBuffer) -> int:
        """Write bytes."""
        self.digest.update(data)
        return self._file.write(data)


class CodeSource:
    """The code of a run, packed by a thread when a node first needs it.

    changed: called in the loop's thread when that is done. other: finds another archive that nodes
    may ask for, by its SHA-256.
    """

    def __init__(
        self,
        context: RunContext,
        loop: RunLoop,
        changed: Callable[[], None],
        other: Callable[[str], Path | None],
    ) -> None:
        run_dir = context.home.run_dir(context.plan.run_id)
        self._context, self._loop, self._changed = context, loop, changed
        self._other = other
        self._path = run_dir.path / "code.tar"
        #: Whether nodes need it.
        self.needed = context.plan.artifact is not None or run_dir.arguments.exists()
        self.packed: PackedCode | None = None
        self._packing = False
        self._failure = ""
        self._waiting: list[tuple[Contact, Stream]] = []
        self._sending: dict[Contact, list[_Sending]] = {}

    def ask(self) -> bool:
        """Have it packed. Returns whether it is, or is not needed. Raises OSError with why it
        cannot be packed; it is tried again at the next call."""
        if self._failure:
            failure, self._failure = self._failure, ""
            raise OSError(failure)
        if self.packed is None and self.needed and not self._packing:
            self._packing = True
            self._loop.in_thread(self._pack, self._take)
        return self.packed is not None or not self.needed

    def _pack(self) -> PackedCode | str:
        """In a thread. Returns why it cannot be packed otherwise."""
        try:
            return pack(self._context, self._path)
        except (MusterError, OSError) as error:
            return str(error)

    def _take(self, result: PackedCode | str) -> None:
        self._packing = False
        if isinstance(result, str):
            self._failure = result
        else:
            self.packed = result
        self._changed()

    def step(self, contact: Contact) -> None:
        """Answer what a node's server has asked for, and send it what there is room for."""
        for stream in contact.streams.opened():
            self._waiting.append((contact, stream))
        if self._waiting:
            self.answer()
        if sending := self._sending.pop(contact, None):
            for one in sending:
                one.step()
            if left := [one for one in sending if not one.done]:
                self._sending[contact] = left

    def answer(self) -> None:
        """Answer what servers have asked for, if the code is packed."""
        waiting, self._waiting = self._waiting, []
        for asking, stream in waiting:
            if stream.about.get("kind") != "code":
                stream.cancel("unknown kind of stream")
                asking.wake()
            elif (path := self._other(str(stream.about.get("sha256")))) is not None:
                self._send(asking, stream, path)
            elif self.packed is not None or not self.needed:
                self._begin(asking, stream, self.packed)
            elif not stream.canceled:  # for a launch of an earlier session, if not of this one
                self._waiting.append((asking, stream))
        if self._waiting:
            self._answer_failure()

    def forget(self, contact: Contact) -> None:
        """Contact with a server was ended: send it nothing more."""
        for one in self._sending.pop(contact, ()):
            one.close()
        self._waiting = [one for one in self._waiting if one[0] is not contact]

    def _begin(self, contact: Contact, stream: Stream, packed: PackedCode | None) -> None:
        if packed is None or stream.about.get("sha256") != packed.sha256:
            stream.cancel("the supervisor has other files")
            contact.wake()
        else:
            self._send(contact, stream, packed.path)

    def _send(self, contact: Contact, stream: Stream, path: Path) -> None:
        try:
            made = _Sending(contact, stream, os.open(path, os.O_RDONLY))
        except OSError as error:
            stream.cancel(error.strerror or str(error))
            contact.wake()
            return
        made.step()
        if not made.done:
            self._sending.setdefault(contact, []).append(made)

    def _answer_failure(self) -> None:
        try:
            self.ask()
        except OSError as error:
            for contact, stream in self._waiting:
                stream.cancel(str(error))
                contact.wake()
            self._waiting.clear()

    def close(self, *, remove: bool) -> None:
        """Send nothing more. remove: whether no node needs the archive any more."""
        for sending in self._sending.values():
            for one in sending:
                one.close()
        self._sending.clear()
        if remove:
            self._path.unlink(missing_ok=True)


class _Sending:
    """An archive on its way to a server. descriptor: of the archive, which it closes."""

    def __init__(self, contact: Contact, stream: Stream, descriptor: int) -> None:
        self._contact, self._stream, self._descriptor = contact, stream, descriptor
        self._offset = 0
        self.done = False

    def step(self) -> None:
        """Send what there is room for."""
        stream = self._stream
        while not stream.canceled and stream.room:
            try:
                data = os.pread(self._descriptor, min(_CHUNK, stream.room), self._offset)
            except OSError as error:
                stream.cancel(error.strerror or str(error))
                data = b""
            if not data:
                stream.finish({})
                self.close()
                self._contact.wake()
                return
            stream.send(data)
            self._offset += len(data)
            self._contact.wake()
        if stream.canceled:
            self.close()

    def close(self) -> None:
        """Send no more. May be repeated."""
        if not self.done:
            self.done = True
            os.close(self._descriptor)
