"""A spec that points elsewhere into one that holds what it needs: code in the store, the commit
that it is, the lines of requirements files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from muster.errors import InvalidInput, NotFound, Problem
from muster.spec.files import read_text
from muster.spec.models import JobSpec
from muster.spec.oci_variables import entrypoint_in
from muster.spec.source_paths import (
    CONDA,
    absolute_line,
    is_file,
    is_requirements_file,
    path_in,
)
from muster.spec.source_rules import entrypoint_of, needs_entrypoint
from muster.storage.artifacts import ArtifactRef, store_files
from muster.storage.entrypoint import kind_of
from muster.storage.home import Home
from muster.storage.neighbours import check_code, store_code

_DEEPEST = 10


def gather(
    home: Home, spec: JobSpec, environ: Mapping[str, str]
) -> tuple[JobSpec, ArtifactRef | None]:
    """Everything a run will need is in the spec or in the store afterwards, so that it can be
    taken up by anybody at any time. environ: what git starts from. Raises InvalidInput."""
    entrypoint = entrypoint_of(spec)
    if spec.git is None:
        spec = _with_lists(spec, Path.cwd())
        if spec.artifact is None:
            return spec, None
        code, entrypoint = store_code(home, Path(spec.artifact), entrypoint)
        return replace(spec, entrypoint=entrypoint or None), code
    from muster.storage.git import check_out
    from muster.storage.scratch import scratch

    with scratch(home.checkouts) as folder:
        found = check_out(spec.git, folder, environ)
        code = store_files(home, found.folder, found.files, entrypoint, found.git.url)
        return replace(_with_lists(spec, found.folder), git=found.git), code


def holds_files(spec: JobSpec) -> bool:
    """Whether its code is files, of which one is run: a folder, archive or repository."""
    code = spec.artifact
    if code is None:
        return spec.git is not None
    return os.path.isdir(code) or kind_of(code) == "archive"


@contextmanager
def with_entrypoint(spec: JobSpec) -> Iterator[JobSpec]:
    """The spec with the entry point that its variables choose (OCI: JOB_RUN_ENTRYPOINT), if no
    field does, and there is more than one file. What is wrong with it is told of the variable."""
    found = entrypoint_in(spec) if holds_files(spec) and needs_entrypoint(spec) else None
    if found is None:
        yield spec
        return
    path, said = found
    try:
        yield replace(spec, entrypoint=said)
    except InvalidInput as error:
        problems = (p._replace(path=path) if p.path == "entrypoint" else p for p in error.problems)
        raise type(error)(*problems) from None


def check_gathering(home: Home, spec: JobSpec, *, entrypoint_known: bool) -> list[Problem]:
    """What `gather` refuses, with nothing stored and no repository asked.

    entrypoint_known: whether it is known what is to run; else only the code itself is looked at.
    """
    if spec.git is not None:
        return []  # lists are files of the repository
    folder = Path.cwd()
    looks: list[Callable[[], object]] = [
        lambda: _requirements(spec, folder),
        lambda: _conda(spec, folder),
    ]
    if spec.artifact is not None:
        looks.insert(0, lambda: _check_code(home, spec, entrypoint_known=entrypoint_known))
    problems: list[Problem] = []
    for look in looks:
        try:
            look()
        except InvalidInput as error:
            problems += error.problems
    return problems


def _check_code(home: Home, spec: JobSpec, *, entrypoint_known: bool) -> None:
    with with_entrypoint(spec) as chosen:
        entrypoint = entrypoint_of(chosen) if entrypoint_known else ""
        check_code(home, Path(str(chosen.artifact)), entrypoint)


def _with_lists(spec: JobSpec, folder: Path) -> JobSpec:
    """With what is in its lists of requirements. folder: of relative paths."""
    requirements = _requirements(spec, folder)
    return replace(spec, requirements=requirements, conda=_conda(spec, folder))


def _requirements(spec: JobSpec, folder: Path) -> tuple[str, ...] | None:
    lines = list(_expand(spec.requirements or (), folder))
    if not lines and spec.requirements:
        raise InvalidInput(Problem("requirements", "holds nothing to install", "leave it out"))
    for path in map(path_in, lines):
        # an installer reads a device or a pipe for ever
        if path is not None and os.path.exists(path) and not (path.is_file() or path.is_dir()):
            text = f"{path} is neither a file nor a folder"
            hint = "name a package, a .txt file with several, or a folder with a project"
            raise InvalidInput(Problem("requirements", text, hint))
    return tuple(lines) or None


def _conda(spec: JobSpec, folder: Path) -> str | None:
    return _read(folder / str(spec.conda), "conda") if is_file(spec.conda, CONDA) else spec.conda


def _expand(lines: tuple[str, ...], folder: Path) -> Iterator[str]:
    for line in lines:
        if is_requirements_file(line):
            yield from _lines_of(folder / line, 0)
        else:
            yield from (absolute_line(part, folder) for part in _logical(line))


def _lines_of(path: Path, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise InvalidInput(Problem("requirements", f"{path} leads to itself", "break the circle"))
    for line in _logical(_read(path, "requirements")):
        made = absolute_line(line, path.parent)
        option, _, name = made.replace("=", " ", 1).partition(" ")
        if option in ("-r", "--requirement") and "://" not in name:
            yield from _lines_of(Path(name.strip()), depth + 1)
        else:
            yield made


def _logical(text: str) -> Iterator[str]:
    """pip: Requirements File Format. A backslash joins lines; ` #` begins a comment."""
    for line in text.replace("\\\n", " ").splitlines():
        said = line if not line.lstrip().startswith("#") else ""
        said = said.partition(" #")[0].strip()
        if said:
            yield said


def _read(path: Path, field: str) -> str:
    try:
        return read_text(path)
    except NotFound:
        raise NotFound(Problem(field, f"there is no {path}", "check the path")) from None
    except InvalidInput as error:
        (found,) = error.problems
        raise InvalidInput(Problem(field, f"{path} {found.message}", found.hint)) from None
