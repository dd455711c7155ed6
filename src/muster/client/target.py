"""What `muster run` was pointed at, as a spec: a spec file, manifests, code, a git repository, or
a bare command.

`FILE#NAME` is one JobSet of several in a file or a folder; `-` is standard input.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.errors import InvalidInput, NotFound, Problem
from muster.spec.files import STDIN, read_text
from muster.spec.models import JobSpec
from muster.spec.override_models import RunOverrides
from muster.spec.reader import Written, is_manifest, read_written, written_from
from muster.storage.entrypoint import ARCHIVES

_SPEC_SUFFIXES = (".yaml", ".yml", ".json")
#: What a run may change of the job that a spec file describes.
_OF_RUN = ("processes_per_node", "network", "framework_options")
#: What is looked for in a folder, to tell manifests from code.
_JOBSET = "jobset.x-k8s.io"


def spec_for(
    target: str | Path | None, command: str | Sequence[str] | None, fields: Mapping[str, Any]
) -> JobSpec:
    """The Job that is meant.

    command: what is run; with code as the target, inside of that. fields: what the Job is given
    besides (framework, name, ...), for targets that are no spec file. Raises InvalidInput.
    """
    return written_for(target, command, fields).whole()


def written_for(
    target: str | Path | None, command: str | Sequence[str] | None, fields: Mapping[str, Any]
) -> Written:
    """As `spec_for`, with whatever could be read. Raises InvalidInput where that is nothing."""
    given = {name: value for name, value in fields.items() if value is not None}
    if isinstance(command, str):
        command = _words(command)
    if target is None:
        if not command:
            raise InvalidInput(
                Problem(
                    "",
                    "nothing to run",
                    "name a spec file, a script or a folder, or give a command after --",
                )
            )
        name = given.pop("name", None) or Path(command[0]).name
        return written_from({"name": name, "command": list(command), **given})
    if command:
        given["command"] = list(command)
    if is_address(target):
        from muster.client.git_target import git_fields, git_name

        git = git_fields(str(target))
        return written_from({"name": git_name(git), "git": git, **given})
    path, chosen = split_target(target)
    if _is_spec(path) or ("entrypoint" not in given and _has_jobsets(path)):
        if problems := describes_already(
            str(path), {name: given[name] for name in given if name not in _OF_RUN}
        ):
            raise InvalidInput(*problems)
        return read_written(path, chosen)
    if not os.path.exists(path):
        raise NotFound(Problem("artifact", f"there is no {path.absolute()}", _meant(path)))
    given.setdefault("name", _name_of(path))
    return written_from({"artifact": str(path.absolute()), **given})


def of_the_job(job: str, fields: Mapping[str, Any]) -> list[Problem]:
    """What is said beside the name of a Job that is there, and is not for a run to change."""
    said = [name for name, value in fields.items() if value is not None and name not in _OF_RUN]
    hint = f"`muster run` with the file or code that {job} is from, changed, makes a new version"
    text = "belongs to the Job; a run cannot change it"
    return [Problem(_flag(name), text, hint) for name in said]


def describes_itself(target: str | Path | None) -> bool:
    """Whether it is a file or folder that says all there is to say of a Job."""
    if target is None or is_address(target):
        return False
    path, _ = split_target(target)
    return _is_spec(path) or _has_jobsets(path)


def describes_already(what: str, fields: Mapping[str, Any]) -> list[Problem]:
    """The fields that cannot be given for what describes a Job by itself."""
    flags = ", ".join(_flag(name) for name, value in fields.items() if value is not None)
    problem = Problem(flags, f"{what} describes the job already", "change it there")
    return [problem] if flags else []


#: Fields of a Job whose flags are called otherwise.
_FLAGS = {
    "framework_options": "--option",
    "mounts": "--mount",
    "tags": "--tag",
    "failure": "--max-restarts",
    "args": "what follows --",
}
#: Those that have no flag of their own.
_FLAGS_OF_RUNS = {*_FLAGS, *_OF_RUN, "nodes", "env", "max_runtime", "command"}
_SET = frozenset(RunOverrides.__struct_fields__) - _FLAGS_OF_RUNS


def _flag(field: str) -> str:
    """What a field of the Job is called on the command line."""
    if field in _SET:
        return f"--set {field}"
    return _FLAGS.get(field) or "--" + field.replace("_", "-")


def _meant(missing: Path) -> str:
    """What to do about a target that is not there: it may be a program, which is no file here."""
    from shutil import which

    from muster.spec.files import similar

    command = f"a command stands after --: `muster run -- {missing}`"
    if missing.name != str(missing) or missing.suffix:
        return similar(missing) or "check the path"
    return command if which(missing.name) else similar(missing) or f"check the path; {command}"


def _words(command: str) -> list[str]:
    """As in a spec file. Raises InvalidInput."""
    from muster.spec.values import words_of
    from muster.spec.wording import Refused

    try:
        return words_of(command)
    except Refused as error:
        raise InvalidInput(Problem("command", error.message, error.hint)) from None


def takes_command(target: str | None, entrypoint: str | None, env: Sequence[str]) -> bool:
    """Whether words for it are a command to run there, as it does not say itself what to run.

    env: variables as `--env` has them; one may choose the entry point.
    """
    from muster.spec.oci_variables import ENTRYPOINT

    if target is None:
        return True
    if entrypoint is not None or any(_name(word) == ENTRYPOINT for word in env):
        return False
    if is_address(target):
        return True
    path = Path(target)
    if os.path.isdir(path):
        return not _has_jobsets(path)
    return path.name.lower().endswith(ARCHIVES) and os.path.isfile(path)


def _name(word: str) -> str:
    """The variable of K=V or GROUP:K=V."""
    return word.partition("=")[0].rpartition(":")[2]


def is_address(target: str | Path) -> bool:
    """Whether it says where a repository is. A file that is called so is one all the same."""
    text = str(target)
    marked = "://" in text or "@" in text or text.startswith("git+")
    return isinstance(target, str) and marked and _is_git(text)


def _is_git(text: str) -> bool:
    from muster.client.git_target import is_git

    return is_git(text) and not os.path.exists(text)


def split_target(target: str | Path) -> tuple[Path, str | None]:
    """The file or folder, and the name of the JobSet in it that is meant, if one is named."""
    path = Path(target)
    file, mark, name = str(target).rpartition("#")
    return (Path(file), name) if mark and name and not os.path.exists(path) else (path, None)


def single_targets(target: str | None, entrypoint: str | None = None) -> list[str | None]:
    """The target, or one for each JobSet in it. Raises InvalidInput."""
    if target is None or is_address(target) or not _may_be_manifests(target, entrypoint):
        return [target]
    from muster.spec.formats.manifests import read_manifests

    path, chosen = split_target(target)
    found = read_manifests(path, chosen)
    return [target] if len(found) == 1 else [f"{target}#{item.spec.name}" for item in found]


def notes_for(target: str | Path | None, entrypoint: str | None = None) -> tuple[str, ...]:
    """What is not as a manifest says, one sentence each; nothing for any other target."""
    if target is None or is_address(target) or not _may_be_manifests(target, entrypoint):
        return ()
    from muster.spec.formats.manifests import read_manifest

    return read_manifest(*split_target(target)).notes


def _may_be_manifests(target: str | Path, entrypoint: str | None) -> bool:
    path, _ = split_target(target)
    if _is_spec(path):
        return (path == STDIN or os.path.exists(path)) and is_manifest(read_text(path))
    return entrypoint is None and _has_jobsets(path)


def _is_spec(path: Path) -> bool:
    return path == STDIN or (path.suffix in _SPEC_SUFFIXES and not os.path.isdir(path))


def _has_jobsets(path: Path) -> bool:
    """Whether it is a folder with manifests of JobSets in it, not below it."""
    return os.path.isdir(path) and any(
        file.suffix in _SPEC_SUFFIXES and file.is_file() and _holds_jobset(file)
        for file in path.iterdir()
    )


def _holds_jobset(file: Path) -> bool:
    try:
        text = read_text(file)
    except InvalidInput:
        return False  # it is only one of a folder's
    return _JOBSET in text and is_manifest(text)


def _name_of(path: Path) -> str:
    name = path.absolute().name
    for suffix in (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", path.suffix):
        if suffix and name.endswith(suffix) and name != suffix:
            name = name[: -len(suffix)]
            break
    cleaned = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip("._-")
    return cleaned or "job"
