"""The target of `muster run` as a spec: a spec file, manifests, code, a git repository, or only a
command.

`FILE#NAME` is one of several JobSets or Jobs in a file or a folder; `-` is standard input.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.errors import InvalidInput, NotFound, Problem
from muster.spec.files import STDIN, read_text
from muster.spec.kinds import ARCHIVES, KINDS
from muster.spec.models import JobSpec
from muster.spec.override_models import FLAGS, RunOverrides
from muster.spec.reader import (
    ParsedSpec,
    has_jobs,
    is_manifest,
    job_name_from,
    parse_file,
    parse_spec,
)
from muster.spec.wording import short

_SPEC_SUFFIXES = (".yaml", ".yml", ".json")
#: Fields of the Job that a run can override, so that they can be given with a spec file.
_OVERRIDABLE = ("engine", "processes_per_node", "network", "framework_options")
#: Text in the manifests of JobSets, which distinguishes them from code.
_JOBSET = "jobset.x-k8s.io"
#: Characters with a meaning for the shell.
_SHELL = re.compile(r"[|&;<>$`]")


def spec_for(
    target: str | Path | None, command: str | Sequence[str] | None, fields: Mapping[str, Any]
) -> JobSpec:
    """The spec of a target.

    command: the program, run inside the code if the target is code. fields: fields of the Job
    (framework, name, ...) for targets other than spec files. Raises InvalidInput.
    """
    return parse_target(target, command, fields).require_valid()


def parse_target(
    target: str | Path | None, command: str | Sequence[str] | None, fields: Mapping[str, Any]
) -> ParsedSpec:
    """As `spec_for`, with the problems of a spec file and the parts that are valid.

    Raises InvalidInput if no part can be read.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if isinstance(command, str):
        command = _words(command)
    if target is None:
        if not command and "image" in given:
            name = job_name_from(given["image"].rpartition("/")[2].partition(":")[0])
            return parse_spec({"name": name, **given})
        if not command:
            raise InvalidInput(
                Problem(
                    "",
                    "nothing to run",
                    "name a spec file, a script or a folder, or give a command after --",
                )
            )
        _refuse_quoted(command)
        name = given.pop("name", None) or job_name_from(Path(command[0]).name)
        return parse_spec({"name": name, "command": list(command), **given})
    if command:
        given["command"] = list(command)
    if is_address(target):
        from muster.client.git_target import git_fields, git_name

        git = git_fields(str(target))
        return parse_spec({"name": git_name(git), "git": git, **given})
    path, chosen = split_target(target)
    if _is_spec(path) or ("entrypoint" not in given and _has_manifests(path)):
        if problems := already_described(
            str(path), {name: given[name] for name in given if name not in _OVERRIDABLE}
        ):
            raise InvalidInput(*problems)
        return parse_file(path, chosen)
    if not os.path.exists(path):
        shown, hint = (
            (str(target), _other_address(str(target))) if "://" in str(target) else ("", "")
        )
        raise NotFound(
            Problem("TARGET", f"{shown or path.absolute()} not found", hint or _meant(path))
        )
    given.setdefault("name", _name_of(path))
    return parse_spec({"artifact": str(path.absolute()), **given})


def parse_as_is(
    target: str | Path | None, fields: Mapping[str, Any]
) -> tuple[ParsedSpec, tuple[str, ...]] | None:
    """The spec of a JobSet in a file that the engine is to run as it is, and notes; None if the
    target is no JobSet. fields: as for `parse_target`. Raises InvalidInput."""
    if target is None or is_address(target) or not _may_be_manifests(target, None):
        return None
    from muster.spec.formats.jobset.as_is import read_as_is
    from muster.spec.formats.manifests import find_jobset

    path, chosen = split_target(target)
    found = find_jobset(path, chosen)
    if found is None:
        return None
    given = {name: value for name, value in fields.items() if name not in _OVERRIDABLE}
    if problems := already_described(str(path), given):
        raise InvalidInput(*problems)
    document, notes = found
    return ParsedSpec(read_as_is(document), source=document.source), notes


def _refuse_quoted(command: Sequence[str]) -> None:
    """Refuse a whole command in quotes, which would be the name of a program. Raises
    InvalidInput."""
    program = command[0]
    if len(command) > 1 or len(program.split()) < 2 or os.path.exists(program):
        return
    import shutil

    if shutil.which(program) is None:
        hint = "leave out the quotes, or let a shell read it: sh -c '...'"
        text = f"{short(program)} is one word with spaces, and no program has that name"
        raise InvalidInput(Problem("command", text, hint))


def place_of_command(target: str | Path | None, *, copy: bool) -> dict[str, str]:
    """The field of the Job with the place where a command without a target runs: in the current
    directory or, with `copy`, in a copy of it. Empty for a target. Raises InvalidInput."""
    if target is None:
        return {"artifact" if copy else "working_dir": current_directory()}
    if copy:
        text = f"applies to a command without TARGET, and TARGET is {target}"
        raise InvalidInput(Problem("copy", text, "leave it out"))
    return {}


def current_directory() -> str:
    """The current directory, by the path with which the shell came there (`PWD`), links included.

    Raises InvalidInput if there is none.
    """
    try:
        physical = os.getcwd()
    except OSError as error:
        text = f"the current directory cannot be used: {error.strerror}"
        hint = "it was deleted or moved: cd to another"
        raise InvalidInput(Problem("working_dir", text, hint)) from None
    logical = os.environ.get("PWD", "")
    if os.path.isabs(logical) and os.path.normpath(logical) == logical:
        with contextlib.suppress(OSError):
            return logical if os.path.samefile(logical, physical) else physical
    return physical


def problems_of_job_fields(job: str, fields: Mapping[str, Any]) -> list[Problem]:
    """Problems with fields given for a run of an existing Job that a run cannot override."""
    given = [name for name, value in fields.items() if value is not None]
    hint = f"`muster run` with the file or code that {job} is from, changed, makes a new version"
    text = "belongs to the job; a run cannot change it"
    return [Problem(_flag(name), text, hint) for name in given if name not in _OVERRIDABLE]


def is_spec_target(target: str | Path | None) -> bool:
    """Whether a target is a spec file or a folder of manifests."""
    if target is None or is_address(target):
        return False
    path, _ = split_target(target)
    return _is_spec(path) or _has_manifests(path)


def already_described(what: str, fields: Mapping[str, Any]) -> list[Problem]:
    """The problem with fields given for a spec file or an existing Job, if there are any."""
    flags = ", ".join(_flag(name) for name, value in fields.items() if value is not None)
    problem = Problem(flags, f"{what} describes the job already", "change it there")
    return [problem] if flags else []


#: Fields of a Job whose flags have other names.
_FLAGS = {
    "framework_options": "--option",
    "mounts": "--mount",
    "tags": "--tag",
    "array": "--array",
    "failure": "--max-restarts",
    "args": "what follows --",
}
#: Overrides that only `--set` can give.
_SET = {*RunOverrides.__struct_fields__} - {*_FLAGS, *FLAGS, "nodes", "env", "command"}


def _flag(field: str) -> str:
    """The flag of a field of the Job."""
    if field in _SET:
        return f"--set {field}"
    return _FLAGS.get(field) or "--" + field.replace("_", "-")


def _meant(missing: Path) -> str:
    """A hint for a missing target, which may be meant as a command."""
    from shlex import quote
    from shutil import which

    from muster.spec.files import similar

    if str(missing) == "last":
        return "last is a run: `muster status last`; run a file, a folder or a job"
    if _SHELL.search(str(missing)):
        return f"a command comes after --: `muster run -- sh -c {quote(str(missing))}`"
    command = f"a command comes after --: `muster run -- {missing}`"
    if missing.name != str(missing) or missing.suffix:
        return similar(missing) or "check the path"
    return command if which(missing.name) else similar(missing) or f"check the path; {command}"


def _other_address(target: str) -> str:
    """A hint for an address that is not that of a repository."""
    scheme = target.partition("://")[0]
    if scheme in ("docker", "oci-archive", "docker-archive", "containers-storage"):
        return "for an image, write a job file: `image: NAME`, run with --engine container"
    return f"only git repositories and local paths are read; to mount it, add --mount {target}"


def _words(command: str) -> list[str]:
    """A command as words, as in a spec file. Raises InvalidInput."""
    from muster.spec.values import command_of
    from muster.spec.wording import Refused

    try:
        return command_of(command)
    except Refused as error:
        raise InvalidInput(Problem("command", error.message, error.hint)) from None


def takes_command(target: str | None, entrypoint: str | None, env: Sequence[str]) -> bool:
    """Whether words after `--` are a command: the target does not determine its program.

    env: values of `--env`; one of them may name the entry point.
    """
    from muster.spec.oci_variables import options_set_entrypoint

    if target is None:
        return True
    if entrypoint is not None or options_set_entrypoint(env):
        return False
    if is_address(target):
        return True
    path = Path(target)
    if os.path.isdir(path):
        return not _has_manifests(path)
    return path.name.lower().endswith(ARCHIVES) and os.path.isfile(path)


def is_address(target: str | Path) -> bool:
    """Whether a target is the address of a repository; an existing file with such a name is not."""
    text = str(target)
    marked = "://" in text or "@" in text or text.startswith("git+")
    return isinstance(target, str) and marked and _is_git(text)


def _is_git(text: str) -> bool:
    from muster.client.git_target import is_git

    return is_git(text) and not os.path.exists(text)


def split_target(target: str | Path) -> tuple[Path, str | None]:
    """The file or folder, and the name after `#` of one JobSet or Job in it, if there is one."""
    path = Path(target)
    file, mark, name = str(target).rpartition("#")
    return (Path(file), name) if mark and name and not os.path.exists(path) else (path, None)


def single_targets(target: str | None, entrypoint: str | None = None) -> list[str | None]:
    """The target, or one target for each JobSet and Job in it. Raises InvalidInput."""
    if target is None or is_address(target) or not _may_be_manifests(target, entrypoint):
        return [target]
    from muster.spec.formats.manifests import count_jobs, read_manifests

    path, chosen = split_target(target)
    if count_jobs(path, chosen) == 1:
        return [target]  # it is read when it is known where it runs
    found = read_manifests(path, chosen)
    return [target] if len(found) == 1 else [f"{target}#{item.spec.name}" for item in found]


def notes_for(target: str | Path | None, entrypoint: str | None = None) -> tuple[str, ...]:
    """Sentences on fields of a manifest that Muster does not apply; none for other targets."""
    if target is None or is_address(target) or not _may_be_manifests(target, entrypoint):
        return ()
    from muster.spec.formats.manifests import read_manifest

    return read_manifest(*split_target(target)).notes


def _may_be_manifests(target: str | Path, entrypoint: str | None) -> bool:
    path, _ = split_target(target)
    if _is_spec(path):
        return (path == STDIN or os.path.exists(path)) and is_manifest(read_text(path))
    return entrypoint is None and _has_manifests(path)


def _is_spec(path: Path) -> bool:
    return path == STDIN or (path.suffix in _SPEC_SUFFIXES and not os.path.isdir(path))


def _has_manifests(path: Path) -> bool:
    """Whether the path is a folder that directly contains manifests of JobSets or Jobs. Code often
    has the manifest of a Job beside it; such a folder is code."""
    if not os.path.isdir(path):
        return False
    files = list(path.iterdir())
    is_code = any(file.suffix.lower() in KINDS for file in files)
    return any(
        file.suffix in _SPEC_SUFFIXES and file.is_file() and _is_manifest(file, is_code=is_code)
        for file in files
    )


def _is_manifest(file: Path, *, is_code: bool) -> bool:
    try:
        text = read_text(file)
    except InvalidInput:
        return False  # not text: one of many files of a folder
    found = _JOBSET in text if is_code else has_jobs(text)
    return found and is_manifest(text)


def _name_of(path: Path) -> str:
    name = path.absolute().name
    for suffix in (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", path.suffix):
        if suffix and name.endswith(suffix) and name != suffix:
            name = name[: -len(suffix)]
            break
    return job_name_from(name)
