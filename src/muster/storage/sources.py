"""Make a spec self-contained: store its code, pin the git commit, and inline requirements files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from muster.errors import InvalidInput, NotFound, Problem
from muster.spec.files import read_text
from muster.spec.kinds import holds_files, kind_of
from muster.spec.models import JobSpec
from muster.spec.oci_variables import entrypoint_variable
from muster.spec.paths import (
    CONDA,
    absolute_line,
    is_file,
    is_requirements_file,
    path_in,
)
from muster.spec.sources import entrypoint_of, has_sources, needs_entrypoint
from muster.storage.artifacts import ArtifactRef, store_files
from muster.storage.home import Home
from muster.storage.owners import owner_home
from muster.storage.script_modules import check_code, store_code
from muster.submission import Submission
from muster.unix_account import acting_as

_MAX_DEPTH = 10


def store_sources(
    home: Home, spec: JobSpec, submission: Submission
) -> tuple[JobSpec, ArtifactRef | None]:
    """Store what a Job consists of. Returns the spec with what was found: the commit of a
    repository, the packages of a requirements file, the entry point. Raises InvalidInput."""
    with with_entrypoint(spec) as chosen:
        if has_sources(chosen):
            return gather(home, chosen, submission)
        if chosen.artifact is None:
            return chosen, None
        artifact, entrypoint = store_code(home, Path(chosen.artifact), entrypoint_of(chosen))
        return replace(chosen, entrypoint=entrypoint or None), artifact


def before_reading(spec: JobSpec, place: str | None) -> JobSpec:
    """A Job's spec as it was before its code was read. place: of the code."""
    if spec.git is not None:
        return replace(spec, git=replace(spec.git, commit=None))
    if spec.artifact is None or place is None:
        return spec
    # that of a script was found, and it may import modules now
    script = os.path.isfile(place) and kind_of(os.path.basename(place)) in ("python", "notebook")
    return replace(spec, artifact=place, entrypoint=None if script else spec.entrypoint)


def gather(home: Home, spec: JobSpec, submission: Submission) -> tuple[JobSpec, ArtifactRef | None]:
    """Store the code and inline the files of a spec, so that a run needs nothing else.

    Returns the new spec and its artifact. Raises InvalidInput.
    """
    entrypoint = entrypoint_of(spec)
    if spec.git is None:
        spec = _with_lists(spec, submission.folder)
        if spec.artifact is None:
            return spec, None
        code, entrypoint = store_code(home, Path(spec.artifact), entrypoint)
        return replace(spec, entrypoint=entrypoint or None), code
    from muster.storage.git_checkout import check_out
    from muster.storage.temporary_folder import temporary_folder

    account = submission.account
    parent = owner_home(home, account).checkouts
    with acting_as(account), temporary_folder(parent) as folder:
        found = check_out(spec.git, folder, submission.environ)
        code = store_files(home, found.folder, found.files, entrypoint, found.git.url)
        return replace(_with_lists(spec, found.folder), git=found.git), code


@contextmanager
def with_entrypoint(spec: JobSpec) -> Iterator[JobSpec]:
    """The spec with the entry point of its variables (OCI: JOB_RUN_ENTRYPOINT), if the code has
    several files and no field names one. Problems with the entry point name the variable."""
    found = entrypoint_variable(spec) if holds_files(spec) and needs_entrypoint(spec) else None
    if found is None:
        yield spec
        return
    path, entrypoint = found
    try:
        yield replace(spec, entrypoint=entrypoint)
    except InvalidInput as error:
        problems = (p._replace(path=path) if p.path == "entrypoint" else p for p in error.problems)
        raise type(error)(*problems) from None


def check_gathering(
    home: Home, spec: JobSpec, folder: Path, *, entrypoint_known: bool
) -> list[Problem]:
    """Check as `gather` does, without storing anything or contacting a repository.

    folder: the base of relative paths. entrypoint_known: whether the entry point is valid;
    otherwise only the code is checked.
    """
    if spec.git is not None:
        return []  # lists are files of the repository
    checks: list[Callable[[], object]] = [
        lambda: _requirements(spec, folder),
        lambda: _conda(spec, folder),
    ]
    if spec.artifact is not None:
        checks.insert(0, lambda: _check_code(home, spec, entrypoint_known=entrypoint_known))
    problems: list[Problem] = []
    for check in checks:
        try:
            check()
        except InvalidInput as error:
            problems += error.problems
    return problems


def _check_code(home: Home, spec: JobSpec, *, entrypoint_known: bool) -> None:
    with with_entrypoint(spec) as chosen:
        entrypoint = entrypoint_of(chosen) if entrypoint_known else ""
        check_code(home, Path(str(chosen.artifact)), entrypoint)


def _with_lists(spec: JobSpec, folder: Path) -> JobSpec:
    """The spec with its requirements files inlined. folder: the base of relative paths."""
    requirements = _requirements(spec, folder)
    return replace(spec, requirements=requirements, conda=_conda(spec, folder))


def _requirements(spec: JobSpec, folder: Path) -> tuple[str, ...] | None:
    lines = list(_expand(spec.requirements or (), folder))
    if not lines and spec.requirements:
        raise InvalidInput(Problem("requirements", "contains nothing to install", "leave it out"))
    for path in map(path_in, lines):
        # an installer would block on a device or a pipe
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
    if depth > _MAX_DEPTH:
        raise InvalidInput(Problem("requirements", f"{path} includes itself", "remove the cycle"))
    for line in _logical(_read(path, "requirements")):
        made = absolute_line(line, path.parent)
        option, _, name = made.replace("=", " ", 1).partition(" ")
        if option in ("-r", "--requirement") and "://" not in name:
            yield from _lines_of(Path(name.strip()), depth + 1)
        else:
            yield made


def _logical(content: str) -> Iterator[str]:
    """pip: Requirements File Format. A backslash joins lines; ` #` starts a comment."""
    for line in content.replace("\\\n", " ").splitlines():
        text = line if not line.lstrip().startswith("#") else ""
        text = text.partition(" #")[0].strip()
        if text:
            yield text


def _read(path: Path, field: str) -> str:
    try:
        return read_text(path)
    except NotFound:
        raise NotFound(Problem(field, f"{path} not found", "check the path")) from None
    except InvalidInput as error:
        (found,) = error.problems
        raise InvalidInput(Problem(field, f"{path} {found.message}", found.hint)) from None
