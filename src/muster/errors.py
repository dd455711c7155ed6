"""Errors that users can act on, with the exit code of each kind.

A command shows a `MusterError` as a message; any other exception is a defect of Muster and is shown
with its traceback. Every package may import this module.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from muster.escapes import visible_line
from muster.secrets import redacted

#: Documented exit codes of the `muster` command (docs/reference/cli.md).
EXIT_OK = 0
EXIT_RUN_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_CANCELED = 3
EXIT_PLATFORM = 4
EXIT_HUNG_UP = 129
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class MusterError(Exception):
    """Base class of the errors that Muster raises on purpose.

    The text names the problem, its place and what to do. Secrets in it are hidden, as it may be
    logged.
    """

    #: Exit code of a command that ends with this error.
    exit_code: int = EXIT_PLATFORM

    def __init__(self, *args: object) -> None:
        super().__init__(*(redacted(arg) if isinstance(arg, str) else arg for arg in args))


#: Characters of a problem's path in its text.
_MAX_PATH = 1000


class Problem(NamedTuple):
    """One problem with the user's input."""

    #: A path into the spec (`node_groups[1].env.PATH`), a flag (`--nodes`) or "".
    path: str
    #: The problem, with the wrong value.
    message: str
    #: What to do, or "".
    hint: str = ""
    #: File and line (`job.yaml:12`) where known, or "".
    source: str = ""
    #: For an unknown field: the path of the field that was probably meant, or "".
    meant: str = ""

    def __str__(self) -> str:
        path = self.path
        if len(path) > _MAX_PATH:  # an unknown key of a file may be as long as the file
            path = f"{path[: _MAX_PATH // 2]}...{path[-_MAX_PATH // 2 :]}"
        where = ": ".join(part for part in (self.source, path) if part)
        text = f"{where}: {self.message}" if where else self.message
        # one line, even if a file name or a value in it has line breaks
        return visible_line(f"{text} ({self.hint})" if self.hint else text)


class InvalidInput(MusterError):  # noqa: N818
    """The user's input cannot be used. Reports all problems at once."""

    exit_code = EXIT_BAD_INPUT

    def __init__(self, *problems: Problem | str) -> None:
        given = (p if isinstance(p, Problem) else Problem("", p) for p in problems)
        self.problems = tuple(Problem(*map(redacted, problem)) for problem in given)
        super().__init__("\n".join(str(p) for p in self.problems))


class LargeArray(InvalidInput):
    """An array has so many parameter sets that it is probably a mistake.

    sets: their number. `large_array=True` allows it.
    """

    def __init__(self, *problems: Problem | str, sets: int = 0) -> None:
        super().__init__(*problems)
        self.sets = sets


class NotFound(InvalidInput):
    """No job, run or file has the given name or id."""


class AlreadyExists(InvalidInput):
    """What is to be added is there already."""


class Unreadable(MusterError):  # noqa: N818
    """An output of a run cannot be read."""

    exit_code = EXIT_BAD_INPUT


class Forbidden(MusterError):  # noqa: N818
    """The caller lacks the right to do this."""


class NotAuthenticated(MusterError):  # noqa: N818
    """Nobody knows who the caller is: the token is missing, wrong, expired or revoked."""

    exit_code = EXIT_BAD_INPUT


class Conflict(MusterError):  # noqa: N818
    """What is to be changed has changed meanwhile, or a request was repeated with another
    content."""

    exit_code = EXIT_BAD_INPUT


class TooManyRequests(MusterError):  # noqa: N818
    """A server refuses a request because of the number of those before it."""


class ServerUnavailable(MusterError):  # noqa: N818
    """A server cannot be reached, or does not answer."""


class StoreError(MusterError):
    """The database or MUSTER_HOME cannot be used: unwritable, full or corrupt.

    The user has to repair it, so it counts as bad input.
    """

    exit_code = EXIT_BAD_INPUT


class StoreBusy(StoreError):  # noqa: N818
    """The database cannot be written at the moment: another process holds it, or the disk is
    full."""


class StoreFull(StoreBusy):
    """The database cannot be written because its disk is full."""


class RunFailed(MusterError):  # noqa: N818
    """A run has no result: it failed, was canceled or is suspended."""

    exit_code = EXIT_RUN_FAILED


class MusterWarning(UserWarning):
    """A warning about a run or MUSTER_HOME; commands show it as a message."""


class NotAnswering(MusterWarning):
    """The supervisor of a run is stopped or hangs."""


class LowSpace(MusterWarning):
    """The disk of MUSTER_HOME is full or nearly full."""


class NotRecovered(MusterWarning):
    """A run without a supervisor is left alone: its engine is not installed here, or the key of its
    secrets is missing."""


class LargeCode(MusterWarning):
    """A large folder is stored as code."""


class NoLogs(MusterWarning):
    """A workload is adopted, and what its programs write cannot be read."""


class HomeGone(MusterError):  # noqa: N818
    """MUSTER_HOME, or the folder of a run, was deleted or moved away while the run was running."""


class EngineError(MusterError):
    """The engine failed to do what a run needs."""


class ResourceShortage(MusterError):  # noqa: N818
    """The machine lacks a resource that Muster needs: space, open files, a working directory."""


#: errno -> what to do.
_HINTS = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or request a larger quota",
    errno.EROFS: "set MUSTER_HOME to a folder you can write to",
    errno.EACCES: "check its owner and permissions",
    errno.EPERM: "check its owner and permissions",
    errno.EMFILE: "allow more: `ulimit -n 1024`",
    errno.ENFILE: "end some programs, or raise fs.file-max",
    errno.ENOMEM: "end some programs",
    errno.EAGAIN: "end some programs, or allow more processes: `ulimit -u`",
    errno.EIO: "look at the disk: `dmesg` may say more",
    errno.ENAMETOOLONG: "give it a shorter name, or a shorter folder",
    errno.EISDIR: "a file is expected there: move the folder away",
    errno.ENOTDIR: "a folder is expected there: move the file away",
    errno.ELOOP: "symbolic links there form a loop: remove them",
}


def shortage_from(error: OSError) -> ResourceShortage | None:
    """The ResourceShortage for an OSError; None if the error has another reason."""
    if isinstance(error, FileNotFoundError) and error.filename is None and _in_deleted_folder():
        return ResourceShortage("the working directory was deleted; `cd` to another one")
    hint = _HINTS.get(error.errno or 0)
    if hint is None:
        return None
    why = error.strerror or str(error)
    if error.errno == errno.ENOSPC and without_inodes(os.path.dirname(str(error.filename or ""))):
        why, hint = "its disk has no inodes left", "delete some files"
    subject = f"{error.filename}: " if error.filename else ""
    return ResourceShortage(f"{subject}{why} ({hint})")


def _in_deleted_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def without_inodes(folder: str | os.PathLike[str]) -> bool:
    """Whether the disk of a folder has no inodes left, so that no file can be created."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    # file systems without a fixed number of inodes (btrfs) report 0 of 0
    return disk.f_files > 0 and disk.f_favail == 0
