"""A user's requirements files: what they list, what cannot work inside an image, and how they are
combined with the framework's packages.

Source of the format: pip's user guide, "Requirements File Format". Requirements themselves
(PEP 508) are parsed by `packaging`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from muster.errors import InvalidInput, Problem
from muster.images.packages import Packages
from muster.secrets import has_secret
from muster.spec.paths import absolute_line

_INCLUDE = re.compile(r"(?:-r|-c|--requirement|--constraint)(?:\s+|=)(\S.*)|-[rc](\S+)")
#: `${NAME}` in an address: pip fills it in when it installs, so no secret is written there.
_VARIABLES = re.compile(r"((?::?\$\{\w+\})++)(@)?")
_COMMENT = re.compile(r"(?:^|\s)#")
#: How anaconda.org puts a token into an address.
_TOKEN = re.compile(r"/t/[^/\s$]{8,}/")
#: Options of a single requirement, which pip accepts after it: `--hash=...`.
_OPTIONS = re.compile(r"\s--\S.*$")
_ANY_FOLDER = Path("/anywhere")


class Line(Struct, frozen=True):
    """A logical line of a requirements file."""

    number: int
    """Line number where it starts, from 1; 0 if it is not from a file."""
    text: str


class Requirements(Struct, frozen=True):
    """A requirements file with the files that it includes."""

    texts: dict[str, str]
    """Contents by path, relative to the folder of the first file."""
    packages: tuple[Requirement, ...]


def lines_of(text: str) -> Iterator[Line]:
    """Logical lines: comments removed, lines that end in a backslash joined."""
    start, joined = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        comment = _COMMENT.search(line)
        joined += line if comment is None else line[: comment.start()].rstrip()
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        if joined.strip():
            yield Line(start, joined.strip())
        start, joined = 0, ""
    if joined.strip():
        yield Line(start, joined.strip())


def read_requirement(text: str) -> Requirement | None:
    """None for options (`--index-url`), paths, and addresses without a name."""
    try:
        return Requirement(_OPTIONS.sub("", text))
    except InvalidRequirement:
        return None


def check_lines(lines: Iterable[Line], source: str) -> list[Problem]:
    """Refuse passwords, which would end up in the image, and local paths, which would not."""
    problems = []
    for line in lines:
        where = f"{source}:{line.number}" if line.number else source
        if _TOKEN.search(line.text) or any(map(has_secret, _addresses(line.text))):
            text = "has a password in an address, which everyone who has the image could read"
            hint = "move it into a pip configuration and pass that with --pip-config"
            problems.append(Problem("", text, hint, where))
        elif _is_local(line.text):
            text = f"{line.text!r} is a path on this machine, which the image does not have"
            hint = "publish it as a package, or put the code into --source"
            problems.append(Problem("", text, hint, where))
    return problems


def _is_local(text: str) -> bool:
    if _INCLUDE.fullmatch(text):
        return False  # included files are copied into the image as well
    # lines that a spec would make absolute are paths: -e mine, wheels/mine-1.0-py3-none-any.whl
    if absolute_line(text, _ANY_FOLDER) != text:
        return True
    text = re.sub(r"^(-e|--editable)[\s=]+", "", text)
    if re.match(r"(-f|--find-links)(\s+|=)(?!\w+://)", text) or "file://" in text:
        return True
    return text.startswith("/")


def read_requirements(path: Path) -> Requirements:
    """Read the file and those it includes.

    Raises InvalidInput with everything that cannot work in an image.
    """
    texts: dict[str, str] = {}
    found: list[Requirement] = []
    problems: list[Problem] = []
    pending = [path.name]
    while pending:
        name = pending.pop()
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
                text = f"{line.text!r} is outside the folder of {path}"
                hint = "put both files into one folder"
                problems.append(Problem("", text, hint, f"{shown}:{line.number}"))
            else:
                pending.append(other)
    if problems:
        raise InvalidInput(*problems)
    return Requirements(texts, tuple(found))


def _unreadable(path: Path, name: str, error: OSError | UnicodeDecodeError) -> Problem:
    why = (error.strerror or str(error)) if isinstance(error, OSError) else "is not UTF-8 text"
    included = "" if name == path.name else f" (included by {path})"
    return Problem("--requirements", f"{path.parent / name}{included}: {why}")


def merge_requirements(
    packages: Packages, user: Iterable[Requirement], installed: Collection[str] = ()
) -> tuple[str, ...]:
    """The framework's requirements with the user's versions in place of ours.

    They are installed before the user's file, so a version that the user pins has to be used here
    already: the user's `dask==2026.1.0` turns our `dask[distributed]` into
    `dask[distributed]==2026.1.0`. Packages that the user installs from an address or under another
    name are left out. installed: names of packages that conda installs, also left out.
    """
    pinned = {canonicalize_name(item.name): item for item in user if item.marker is None}
    aliases = dict(packages.same)
    by_conda = set(map(canonicalize_name, installed))
    replaced = {aliases[name] for name in {*pinned, *by_conda} if name in aliases}
    merged = []
    for text in packages.pip:
        ours = Requirement(text)
        name = canonicalize_name(ours.name)
        if name in by_conda:
            continue
        own = pinned.get(name)
        if own is None and name not in replaced:
            merged.append(text)
        elif own is not None and own.url is None:
            extras = f"[{','.join(sorted(ours.extras))}]" if ours.extras else ""
            merged.append(f"{ours.name}{extras}{own.specifier or ours.specifier}")
    return tuple(merged)


def _addresses(text: str) -> list[str]:
    """URLs in a line, without the users and passwords that pip fills in."""
    text = _VARIABLES.sub(lambda match: "" if match[2] else match[0], text)
    return [word for word in text.split() if "://" in word]
