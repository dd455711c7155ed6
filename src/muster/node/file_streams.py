"""Sends files of the node over streams: output as it grows, and files as a whole.

What a stream is about:

    kind    "read"
    path    the file
    offset  where to begin, in bytes
    follow  whether to continue as it grows, until the other end is done; then to its present end

The result has the `offset` at which it ends.
"""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Dict

from muster.node.file_watch import Watcher
from muster.node.files import open_regular
from muster.node.streams import Stream

#: Bytes that are read at once.
_CHUNK = 1 << 18


class FileStreams:
    """The files that are being sent."""

    def __init__(self) -> None:
        self._files: Dict[Stream, _File] = {}
        self._watcher: Watcher | None = None

    def add(self, stream: Stream) -> None:
        """Begin to send a file."""
        path, offset = stream.about.get("path"), stream.about.get("offset", 0)
        follow = stream.about.get("follow", False)
        if not (isinstance(path, str) and _is_offset(offset) and type(follow) is bool):
            stream.cancel("a file is read from a path, an offset, and to its end or as it grows")
            return
        try:
            descriptor = open_regular(path)
        except (OSError, ValueError) as error:
            stream.cancel(getattr(error, "strerror", None) or str(error))
            return
        try:
            if follow:
                self._watch(path)
        except OSError as error:  # it was removed meanwhile
            os.close(descriptor)
            stream.cancel(error.strerror or str(error))
            return
        self._files[stream] = _File(stream, path, descriptor, offset, follow=follow)

    def interest(self) -> Dict[int, int]:
        """What to wait for: descriptor -> events of `select.poll`."""
        descriptor = None if self._watcher is None else self._watcher.fileno()
        return {} if descriptor is None else {descriptor: select.POLLIN}

    def timeout(self) -> float | None:
        """Seconds after which to call `step` though nothing is ready; None for never."""
        return None if self._watcher is None else self._watcher.timeout()

    def step(self) -> None:
        """Send what there is room for."""
        grown = {str(path) for path in self._watcher.drain()} if self._watcher is not None else ()
        for stream, file in list(self._files.items()):
            if file.path in grown:
                file.at_end = False
            if file.step():
                file.close()
                del self._files[stream]
        if not self._files and self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def close(self) -> None:
        """Close the files: the connection is lost."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self.step()

    def _watch(self, path: str) -> None:
        """Raises OSError."""
        if self._watcher is None:
            self._watcher = Watcher()
        if all(file.path != path for file in self._files.values()):
            self._watcher.add(Path(path))


def _is_offset(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


class _File:
    def __init__(
        self, stream: Stream, path: str, descriptor: int, offset: int, *, follow: bool
    ) -> None:
        self._stream = stream
        self.path = path
        self._descriptor = descriptor
        self._offset = offset
        self._follow = follow
        #: Whether everything was read, as far as is known.
        self.at_end = False

    def step(self) -> bool:
        """Send what there is room for. Returns whether it is done."""
        stream = self._stream
        stream.take()  # nothing; notices that the other end is done
        if stream.canceled:
            return True
        last = not self._follow or stream.result is not None
        while stream.room and (last or not self.at_end):
            try:
                data = os.pread(self._descriptor, min(_CHUNK, stream.room), self._offset)
            except OSError as error:
                stream.cancel(error.strerror or repr(error))
                return True
            self._offset += len(data)
            stream.send(data)
            if not data:
                self.at_end = True
                if last:
                    stream.finish({"offset": self._offset})
                    return True
        return False

    def close(self) -> None:
        os.close(self._descriptor)
