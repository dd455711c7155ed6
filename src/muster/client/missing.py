"""A program that found no module or file which lay beside its code: what was not sent, and how it
would be."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from muster.plan.model import LeftBehind

_MODULE = re.compile(r"No module named '?([\w.]+)")
#: As Python says it, and as shells and their programs do.
_FILE = re.compile(
    r"No such file or directory: b?(['\"])(?P<python>.+?)\1"
    r"|(?:^|[\s'\"\u2018:])(?P<shell>[^\s:'\"\u2018\u2019]+)['\u2019]?"
    r": (?:No such file or directory|not found)",
    re.MULTILINE,
)


def hint_for(left: LeftBehind, message: str, run_id: str) -> str:
    """What to do about a failure, if it is of something that was left behind; else ""."""
    for name in _names(message, run_id):
        for entry in (f"{name}.py", name) if name.isidentifier() else (name,):
            if entry in left.names:
                return _sentence(left, entry)
    return ""


def _names(message: str, run_id: str) -> Iterator[str]:
    """Of what was missing: where it begins, below the folder that programs start in."""
    for found in _MODULE.findall(message):
        yield found.partition(".")[0]
    for match in _FILE.finditer(message):
        path = match["python"] or match["shell"]
        _, inside, rest = path.rpartition(f"/{run_id}/")
        if inside:
            yield from reversed(rest.split("/"))  # below folders of ours, whatever they are called
        elif not path.startswith("/"):
            yield next((part for part in path.split("/") if part not in ("", ".")), "")


def _sentence(left: LeftBehind, entry: str) -> str:
    beside = f"beside {left.script}" if left.script else f"in {left.folder}"
    text = f"{entry} lies {beside} and was not sent: "
    if entry in left.ignored:
        return f"{text}.musterignore (or else .gitignore) there names it; take it out"
    folder, script = shlex.quote(left.folder), shlex.quote(left.script)
    return f"{text}`muster run {folder} --entrypoint {script}` sends the folder"
