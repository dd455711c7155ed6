"""Hints for programs that fail because the job does not have a file that is next to its code."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping

from muster.plan.model import UnsentFiles

_MODULE = re.compile(r"No module named '?([\w.]+)")
#: The messages of Python, and of shells and their programs.
_FILE = re.compile(
    r"No such file or directory: b?(['\"])(?P<python>.+?)\1"
    r"|(?:^|[\s'\"\u2018:])(?P<shell>[^\s:'\"\u2018\u2019]+)['\u2019]?"
    r": (?:No such file or directory|not found)",
    re.MULTILINE,
)


def hint_for(
    left: UnsentFiles, message: str, run_id: str, mounts: Mapping[str, str] | None = None
) -> str:
    """What to do about a failure whose message names a file that the job does not have; else "".

    mounts: the path of each mount, with the variable that has it.
    """
    mounted = {posixpath.basename(path): path for path in mounts or {}}
    for name in _names(message, run_id):
        for entry in (f"{name}.py", name) if name.isidentifier() else (name,):
            if mounts and entry in mounted:
                path = mounted[entry]
                return f"{entry} is mounted at {path}: use that path or ${mounts[path]}"
            if entry in left.names:
                return _sentence(left, entry)
    return ""


def _names(message: str, run_id: str) -> Iterator[str]:
    """The missing files and folders, by their first path component below the working directory."""
    for found in _MODULE.findall(message):
        yield found.partition(".")[0]
    for match in _FILE.finditer(message):
        path = match["python"] or match["shell"]
        _, inside, rest = path.rpartition(f"/{run_id}/")
        if inside:
            yield from reversed(rest.split("/"))  # below folders of Muster, which may have any name
        elif not path.startswith("/"):
            yield next((part for part in path.split("/") if part not in ("", ".")), "")


def _sentence(left: UnsentFiles, entry: str) -> str:
    place = f"next to {left.script}" if left.script else f"in {left.folder}"
    text = f"{entry} is {place} and was not stored with the job: "
    if entry in left.ignored:
        return f"{text}delete the line in its .musterignore or .gitignore that excludes it"
    folder, script = shlex.quote(left.folder), shlex.quote(left.script)
    return f"{text}`muster run {folder} --entrypoint {script}` stores the whole folder"
