"""Errors a person can act on, and the exit code each kind ends a command with.

This module may be imported from every room. Anything that is not a `MusterError` is a defect of
Muster and is shown with its traceback; a `MusterError` never is.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from muster.escapes import visible_line
from muster.secrets import redacted

#: Documented exit codes of the `muster` command (docs/cli.md).
EXIT_OK = 0
EXIT_RUN_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_CANCELED = 3
EXIT_PLATFORM = 4
EXIT_HUNG_UP = 129
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class MusterError(Exception):
    """Root of all errors Muster raises on purpose.

    The text says what is wrong, where, and what to do about it. Secrets in it are hidden, as it may
    end up in any log.
    """

    exit_code: int = EXIT_PLATFORM

    def __init__(self, *args: object) -> None:
        super().__init__(*(redacted(arg) if isinstance(arg, str) else arg for arg in args))


class Problem(NamedTuple):
    """One thing wrong with what the user gave.

    path: where, as a path into the spec (`node_groups[1].env.PATH`), a flag (`--nodes`) or "".
    message: what is wrong, with the offending value.
    hint: what to do, or "".
    source: file and line (`job.yaml:12`) where known, or "".
    meant: of an unknown field, the path of the one whose name was probably meant, or "".
    """

    path: str
    message: str
    hint: str = ""
    source: str = ""
    meant: str = ""

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.source, self.path) if part)
        text = f"{where}: {self.message}" if where else self.message
        # one line, whatever the name of a file or a value in it holds
        return visible_line(f"{text} ({self.hint})" if self.hint else text)


class InvalidInput(MusterError):  # noqa: N818
    """What the user gave cannot be used; every problem is reported together."""

    exit_code = EXIT_BAD_INPUT

    def __init__(self, *problems: Problem | str) -> None:
        given = (p if isinstance(p, Problem) else Problem("", p) for p in problems)
        self.problems = tuple(Problem(*map(redacted, problem)) for problem in given)
        super().__init__("\n".join(str(p) for p in self.problems))


class NotFound(InvalidInput):
    """No job, run or artifact goes by the name or id that was given."""


class StoreError(MusterError):
    """The database or MUSTER_HOME cannot be used (unwritable, full, corrupt): the user's to mend,
    so it counts as bad input."""

    exit_code = EXIT_BAD_INPUT


class StoreBusy(StoreError):  # noqa: N818
    """The database cannot be written right now, but may be later: another process holds it, or
    the disk is full."""


class StoreFull(StoreBusy):
    """The database cannot be written because its disk is full."""


class RunFailed(MusterError):  # noqa: N818
    """A run whose result was asked for has none: it failed, was canceled or is suspended."""

    exit_code = EXIT_RUN_FAILED


class MusterWarning(UserWarning):
    """Something that whoever waits for a run, or looks at runs, should act on."""


class NotAnswering(MusterWarning):
    """The supervisor of a run that somebody waits for is stopped, or hangs."""


class LowSpace(MusterWarning):
    """The disk of MUSTER_HOME is full, or nearly."""


class HomeGone(MusterError):  # noqa: N818
    """MUSTER_HOME, or the folder of a run, was deleted or moved away while the run was running."""


class EngineError(MusterError):
    """The engine could not do what was asked of it."""


class SystemLack(MusterError):  # noqa: N818
    """The machine lacks what Muster needs: space, open files, a working directory."""


#: errno -> what to do about it.
_HINTS = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or ask for a larger quota",
    errno.EROFS: "set MUSTER_HOME to a folder you can write to",
    errno.EACCES: "check whose it is and its permissions",
    errno.EPERM: "check whose it is and its permissions",
    errno.EMFILE: "allow more: `ulimit -n 1024`",
    errno.ENFILE: "end some programs, or raise fs.file-max",
    errno.ENOMEM: "end some programs",
    errno.EAGAIN: "end some programs, or allow more processes: `ulimit -u`",
    errno.EIO: "look at the disk: `dmesg` may say more",
    errno.ENAMETOOLONG: "give it a shorter name, or a shorter folder",
    errno.EISDIR: "a file belongs there: move the folder away",
    errno.ENOTDIR: "a folder belongs there: move the file away",
    errno.ELOOP: "links there lead to each other: remove them",
}


def lack_of(error: OSError) -> SystemLack | None:
    """What the machine lacks, as an error a person can act on; None if that is not the reason."""
    if isinstance(error, FileNotFoundError) and error.filename is None and _adrift():
        return SystemLack("the working directory was deleted; `cd` to another one")
    hint = _HINTS.get(error.errno or 0)
    if hint is None:
        return None
    why = error.strerror or str(error)
    if error.errno == errno.ENOSPC and without_inodes(os.path.dirname(str(error.filename or ""))):
        why, hint = "its disk has no inodes left", "delete some files"
    subject = f"{error.filename}: " if error.filename else ""
    return SystemLack(f"{subject}{why} ({hint})")


def _adrift() -> bool:
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def without_inodes(folder: str | os.PathLike[str]) -> bool:
    """Whether no more files can be made on the disk of a folder, however much space it has."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    # file systems without a fixed number of inodes (btrfs) say 0 of 0
    return disk.f_files > 0 and disk.f_favail == 0
