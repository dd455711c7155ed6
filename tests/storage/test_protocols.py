"""What Muster does itself where file systems differ."""

from __future__ import annotations

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from muster.storage.protocols import remove_file


class WithoutRmFile(MemoryFileSystem):  # type: ignore[misc]
    """Removes files as ocifs does."""

    cachable = False

    def rm_file(self, path: str) -> None:
        raise NotImplementedError

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        super().rm_file(path)


@pytest.mark.parametrize("file_system", [fsspec.filesystem("memory"), WithoutRmFile()])
def test_a_file_is_removed_however_the_back_end_does_it(file_system: MemoryFileSystem) -> None:
    file_system.pipe_file("/of-a-test/a", b"1")
    remove_file(file_system, "/of-a-test/a")
    assert not file_system.exists("/of-a-test/a")
    with pytest.raises(FileNotFoundError):
        remove_file(file_system, "/of-a-test/a")
