"""A user's requirements file: what it names, what of it cannot work inside an image, and how it
meets what the framework needs.

Source of the format: pip's user guide, "Requirements File Format", and PEP 508 for the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.images.packages import Packages
from muster.secrets import has_secret
from muster.spec.source_paths import absolute_line

_NAME = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(\[[^\]]*\])?\s*(.*)")
_INCLUDE = re.compile(r"(?:-r|-c|--requirement|--constraint)(?:\s+|=)(\S.*)|-[rc](\S+)")
#: pip fills these in when it installs: no secret stands there.
_VARIABLES = re.compile(r"((?::?\$\{\w+\})++)(@)?")
_COMMENT = re.compile(r"(?:^|\s)#")
#: anaconda.org's way of putting a token into an address
_TOKEN = re.compile(r"/t/[^/\s$]{8,}/")
_ANYWHERE = Path("/anywhere")
_ADDRESS = re.compile(r"(?:git|hg|svn|bzr)\+|https?://")


class Requirement(Struct, frozen=True):
    """One line. version: what is asked of it (`>=2,<3`), or ` @ ADDRESS`; "" for any."""

    name: str
    extras: str
    version: str
    marker: str = ""


class Line(Struct, frozen=True):
    """A line that says something, and where it stands."""

    number: int
    text: str


def lines_of(text: str) -> Iterator[Line]:
    """Without comments and what continues on the next line put together."""
    start, whole = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        comment = _COMMENT.search(line)
        whole += line if comment is None else line[: comment.start()].rstrip()
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        if whole.strip():
            yield Line(start, whole.strip())
        start, whole = 0, ""
    if whole.strip():
        yield Line(start, whole.strip())


def read_requirement(text: str) -> Requirement | None:
    """None for options (`--index-url`) and for addresses without a name."""
    if text.startswith("-") or _ADDRESS.match(text):
        return None
    match = _NAME.match(text)
    if match is None:
        return None
    version, _, marker = re.sub(r"\s--\S.*$", "", match[3]).partition(";")
    return Requirement(normal(match[1]), match[2] or "", version.strip(), marker.strip())


def normal(name: str) -> str:
    """PEP 503: how names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def check_lines(lines: Iterable[Line], source: str) -> list[Problem]:
    """What would end up in the image and must not, or could not be found there."""
    problems = []
    for line in lines:
        where = f"{source}:{line.number}" if line.number else source
        if _TOKEN.search(line.text) or any(map(has_secret, _addresses(_written(line.text)))):
            text = "has a password in an address, which everyone who has the image could read"
            hint = "move it into a pip configuration and give that with --pip-config"
            problems.append(Problem("", text, hint, where))
        elif _is_local(line.text):
            text = f"{line.text!r} is a place on this machine, which the image does not have"
            hint = "publish it as a package, or put the code into --source"
            problems.append(Problem("", text, hint, where))
    return problems


def _is_local(text: str) -> bool:
    if _INCLUDE.fullmatch(text):
        return False  # those files come along
    # what a spec would make absolute is a path: -e mine, wheels/mine-1.0-py3-none-any.whl
    if absolute_line(text, _ANYWHERE) != text:
        return True
    text = re.sub(r"^(-e|--editable)[\s=]+", "", text)
    if re.match(r"(-f|--find-links)(\s+|=)(?!\w+://)", text) or "file://" in text:
        return True
    return text.startswith("/")


def read_requirements(path: Path) -> tuple[dict[str, str], list[Requirement]]:
    """The file and those it includes, by the path each has beside the first; and what they name.

    Raises InvalidInput with everything that cannot work in an image.
    """
    texts: dict[str, str] = {}
    found: list[Requirement] = []
    problems: list[Problem] = []
    todo = [path.name]
    while todo:
        name = todo.pop()
        if name in texts:
            continue
        try:
            texts[name] = (path.parent / name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            problems.append(_unreadable(path, name, error))
            continue
        shown = str(path.parent / name)
        lines = list(lines_of(texts[name]))
        problems += check_lines(lines, shown)
        for line in lines:
            include = _INCLUDE.fullmatch(line.text)
            if include is None:
                requirement = read_requirement(line.text)
                found += [requirement] if requirement else []
                continue
            other = str(PurePosixPath(name).parent / (include[1] or include[2]).strip())
            if other.startswith("/") or ".." in PurePosixPath(other).parts:
                text = f"{line.text!r} leads out of the folder of {path}"
                hint = "put both files into one folder"
                problems.append(Problem("", text, hint, f"{shown}:{line.number}"))
            else:
                todo.append(other)
    if problems:
        raise InvalidInput(*problems)
    return texts, found


def _unreadable(path: Path, name: str, error: OSError | UnicodeDecodeError) -> Problem:
    why = (error.strerror or str(error)) if isinstance(error, OSError) else "is no UTF-8 text"
    included = "" if name == path.name else f" (which {path} includes)"
    return Problem("--requirements", f"{path.parent / name}{included}: {why}")


def settle(packages: Packages, theirs: Iterable[Requirement]) -> tuple[str, ...]:
    """The framework's requirements, where the owner's own word on a package goes before ours.

    Installed before the owner's file, so a version the owner asks for has to stand here already:
    `dask==2026.1.0` there makes ours `dask[distributed]==2026.1.0`. A package that comes from an
    address, or under another name, is the owner's alone.
    """
    same = dict(packages.same)
    asked = {item.name: item for item in theirs if not item.marker}
    meant = {same[name] for name in asked if name in same}
    settled = []
    for text in packages.pip:
        ours = read_requirement(text)
        assert ours is not None, "the table holds requirements only"
        own = asked.get(ours.name)
        if own is None and ours.name not in meant:
            settled.append(text)
        elif own is not None and not own.version.startswith("@"):
            version = own.version or ours.version
            settled.append(f"{ours.name}{ours.extras}{version}")
    return tuple(settled)


def _addresses(text: str) -> list[str]:
    return [word for word in text.split() if "://" in word]


def _written(text: str) -> str:
    """Without the users and passwords that pip fills in."""
    return _VARIABLES.sub(lambda match: "" if match[2] else match[0], text)
