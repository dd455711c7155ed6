"""Which file systems can be a WORK_DIR: all nodes have to see there what each of them writes."""

from __future__ import annotations

import fsspec

from muster.errors import Problem
from muster.secrets import redacted

_INSTEAD = "use a folder that all nodes mount, or a bucket: s3://bucket/clusters"
_GIT = "holds what was committed; nothing can be written there"
_ARCHIVE = "is one archive, in which nodes cannot write beside each other"
_CACHE = "reads from a copy, so nodes would not see what others write"
_WEB = "can only be read"
#: Why a file system of fsspec cannot be one, by its protocol.
_USELESS = {
    "memory": "lives in the memory of one process; no other node sees it",
    **dict.fromkeys(("git", "gitfs", "github", "gist"), _GIT),
    **dict.fromkeys(("zip", "tar", "libarchive"), _ARCHIVE),
    **dict.fromkeys(("cached", "blockcache", "filecache", "simplecache"), _CACHE),
    **dict.fromkeys(("http", "https", "dvc", "pyscript", "reference"), _WEB),
}
_GIT_HINT = f"keep code there and clone it into CODE_DIR; for WORK_DIR, {_INSTEAD}"


def work_dir_problem(work_dir: str, variable: str = "WORK_DIR") -> Problem | None:
    """Why that folder or URL cannot be one, as far as its text says; None if it may be. variable:
    where it is set."""
    chain, separator, rest = work_dir.partition("://")
    protocol = chain.partition("::")[0].lower()
    shown = redacted(work_dir)
    if work_dir.lower().startswith("data:"):  # the one whose URLs have no //
        return Problem(variable, f"{shown}: data: {_WEB}", _INSTEAD)
    if "::" not in work_dir and not separator:
        return None
    if protocol in _USELESS:
        why = _USELESS[protocol]
        hint = _GIT_HINT if why == _GIT else _INSTEAD
        return Problem(variable, f"{shown}: {protocol}:// {why}", hint)
    try:
        fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:  # a package is missing; no such protocol
        return Problem(variable, f"{shown}: {error}", _INSTEAD)
    if not rest.strip("/"):
        return Problem(variable, f"{shown} names no bucket or folder", _INSTEAD)
    return None
