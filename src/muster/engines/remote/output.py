"""Copies the output of nodes from their hosts to the log files of the run, as it grows."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from muster.engines.logs import NodeOutputs
from muster.engines.remote.contact import Contact
from muster.node.folder_access import open_regular_below
from muster.node.streams import Stream, Streams

_BLOCK = 1 << 20


class OutputFile:
    """One file. path: where it is copied to; it continues behind what is there already."""

    def __init__(self, path: str, remote_path: str) -> None:
        #: Where it is on the host.
        self.remote_path = remote_path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        #: Bytes that were copied.
        self.size = os.fstat(self._descriptor).st_size
        self._stream: Stream | None = None
        self._streams: Streams | None = None  # of the connection of the stream
        self._last = False
        #: Whether it is complete, as far as its host has it.
        self.done = False

    def connect(self, contact: Contact) -> None:
        """Follow the file over a connection, from where it has been copied to."""
        self._streams = contact.streams
        self._stream = self._streams.open(
            {"kind": "read", "path": self.remote_path, "offset": self.size, "follow": True}
        )
        if self._last:
            self._stream.finish({})

    def finish(self) -> None:
        """Copy what the file has by now, and no more."""
        self._last = True
        if self._stream is not None:
            self._stream.finish({})

    def step(self, contact: Contact) -> None:
        """Copy what has arrived."""
        if self._stream is None and not self.done and contact.up:
            self.connect(contact)
        stream = self._stream
        if stream is None or self.done:
            return
        data = stream.take()
        contact.wake()  # to make room for more
        self._append(data)
        if stream.result is not None:
            self.close()
        elif stream.canceled:
            self._stream = None
            if self._streams is contact.streams and contact.up:
                text = f"muster: {self.remote_path} is not copied any more: {stream.canceled}"
                sys.stderr.write(f"{text}\n")
                self.close()

    def take_rest(self, folder: str) -> None:
        """Copy the rest at once: "the host" is this machine. folder: of programs, with the file;
        no link in it is followed. Nothing if there is no such file. Raises OSError."""
        try:
            with contextlib.suppress(FileNotFoundError):
                place = os.path.relpath(self.remote_path, folder)
                with open(open_regular_below(folder, place), "rb") as file:
                    file.seek(self.size)
                    while data := file.read(_BLOCK):
                        self._append(data)
        finally:
            self.close()

    def _append(self, data: bytes) -> None:
        while data:
            written = os.write(self._descriptor, data)
            self.size += written
            data = data[written:]

    def close(self) -> None:
        """Copy no more. May be repeated."""
        if not self.done:
            self.done = True
            os.close(self._descriptor)


class NodeOutput:
    """The output of one node in one attempt. local: its files here; remote: on its host. services:
    the names of its services that have files of their own."""

    def __init__(
        self, local: NodeOutputs, remote: NodeOutputs, services: Sequence[str] = ()
    ) -> None:
        pairs = zip(_paths(local, services), _paths(remote, services), strict=True)
        self._files = [OutputFile(*pair) for pair in pairs if pair[0] != os.devnull]
        #: Of its first process, on the host.
        self.first = next(iter(remote.processes), (os.devnull, os.devnull))

    @property
    def sizes(self) -> dict[str, int]:
        """File on the host -> bytes of it that are here."""
        return {file.remote_path: file.size for file in self._files if file.size}

    @property
    def done(self) -> bool:
        """Whether everything is copied."""
        return all(file.done for file in self._files)

    def step(self, contact: Contact) -> None:
        """Copy what has arrived. contact: with the node's server."""
        for file in self._files:
            file.step(contact)

    def finish(self) -> None:
        """The node has ended."""
        for file in self._files:
            file.finish()

    def take_rest(self, folder: str) -> None:
        """See `OutputFile.take_rest`."""
        try:
            for file in self._files:
                file.take_rest(folder)
        finally:
            self.close()

    def close(self) -> None:
        """Copy no more."""
        for file in self._files:
            file.close()


def _paths(outputs: NodeOutputs, services: Sequence[str]) -> Iterable[str]:
    for pair in (*outputs.processes, *outputs.ranks):
        yield from pair
    for name in services:
        yield outputs.service(name)


def on_host(outputs: NodeOutputs, folder: str) -> NodeOutputs:
    """The files on a host. folder: there, for those of one attempt."""

    def moved(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((_moved(out, folder), _moved(err, folder)) for out, err in pairs)

    return NodeOutputs(
        processes=moved(outputs.processes),
        folder=None if outputs.folder is None else Path(folder),
        stem=outputs.stem,
        ranks=moved(outputs.ranks),
    )


def _moved(path: str, folder: str) -> str:
    return path if path == os.devnull else os.path.join(folder, os.path.basename(path))
