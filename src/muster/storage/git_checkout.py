"""Fetch one commit of a git repository and check it out into a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, NotFound, Problem
from muster.spec.sources import Git
from muster.storage.git_program import (
    PROTOCOLS,
    GitFailed,
    GitProgram,
    explain,
    not_found,
    remote_of,
)
from muster.storage.ignore import MAX_FILES, check_link

_FULL = 40
_BRANCHES = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")


class Checkout(Struct, frozen=True):
    """A commit that was checked out."""

    #: The folder with the code.
    folder: Path
    #: Its files that are in the commit, relative to it.
    files: list[str]
    #: The requested source with its commit, without secrets.
    git: Git


def check_out(git: Git, into: Path, environ: Mapping[str, str]) -> Checkout:
    """Fetch one commit, shallow where possible, with its submodules, into an empty folder.

    environ: the environment of git, and of the variable that `token_env` names. Raises InvalidInput
    if git is not installed, or the repository, branch, commit or folder is missing or not readable.
    """
    remote = remote_of(git, environ)
    folder = into / _folder_name(remote.url)
    folder.mkdir()
    program = GitProgram(remote, folder, environ)
    try:
        program("init", "-q", "--template=")
        program.disable_prompts()
        program("remote", "add", "--", "origin", remote.url)
        ref = _fetch(program, git)
        commit = program("rev-parse", "--verify", "-q", f"{ref}^{{commit}}").strip()
        program("checkout", "-q", "--detach", commit)
    except GitFailed as failed:
        raise explain(failed, remote) from None
    _submodules(program, folder)
    found = replace(git, url=remote.url, commit=commit)
    code = _subfolder(folder, found)
    return Checkout(code, _files(program, folder, code, found), found)


def _folder_name(url: str) -> str:
    last = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip(".-") or "code"


def _fetch(program: GitProgram, git: Git) -> str:
    """Fetch the requested commit. Returns a revision that git resolves to it."""
    if git.commit is not None:
        return _fetch_commit(program, git.commit, git)
    if git.branch is None:
        if not program("ls-remote", "--", "origin", "HEAD").strip():
            text = f"{program.remote.url} has no commits on its default branch"
            raise InvalidInput(Problem("git.url", text, "name a branch, or push something"))
        return _shallow(program, "HEAD")
    for ref in (f"refs/heads/{git.branch}", f"refs/tags/{git.branch}"):
        if program("ls-remote", "--", "origin", ref).strip():
            return _shallow(program, ref)
    if re.fullmatch(r"[0-9a-f]{7,40}", git.branch):
        return _fetch_commit(program, git.branch, git)
    listed = program("ls-remote", "--refs", "--heads", "--tags", "--", "origin").splitlines()
    known = [line.partition("\t")[2].split("/", 2)[2] for line in listed]
    raise not_found("branch or tag", git.branch, program.remote.url, known)


def _shallow(program: GitProgram, ref: str) -> str:
    program("fetch", "-q", "--no-tags", "--depth", "1", "--", "origin", ref)
    return "FETCH_HEAD"


def _fetch_commit(program: GitProgram, commit: str, git: Git) -> str:
    if len(commit) == _FULL:
        try:
            return _shallow(program, commit)
        except GitFailed as failed:
            # not every server sends a commit that no branch or tag points to
            if "unadvertised object" not in str(failed) and "not our ref" not in str(failed):
                raise
    program("fetch", "-q", "--", "origin", *_BRANCHES)
    try:
        return program("rev-parse", "--verify", f"{commit}^{{commit}}").strip()
    except GitFailed as failed:
        url = program.remote.url
        if "ambiguous" in str(failed):
            text, hint = (
                f"{url} has several commits that start with {commit}",
                "write more of its digits",
            )
        else:
            text, hint = (
                f"{url} has no commit {commit}",
                "check that it was pushed, and that the branch exists",
            )
        path = "git.commit" if git.commit is not None else "git.branch"
        raise NotFound(Problem(path, text, hint)) from None


def _submodules(program: GitProgram, folder: Path) -> None:
    if not (folder / ".gitmodules").is_file():
        return
    # a remote repository must not read files of this machine
    local = "://" not in program.remote.url or program.remote.url.startswith("file:")
    protocols = PROTOCOLS if local else PROTOCOLS.removeprefix("file:")
    words = ("submodule", "update", "-q", "--init", "--recursive", "--depth", "1")
    try:
        program(*words, protocols=protocols)
    except GitFailed as failed:
        lines = str(failed).splitlines()
        text = f"a submodule of {program.remote.url} cannot be fetched: {lines[0] if lines else ''}"
        raise InvalidInput(
            Problem("git.url", text, "check that it exists and that you may read it")
        ) from None


def _subfolder(folder: Path, git: Git) -> Path:
    code = folder / (git.path or "")
    inside = Path(os.path.realpath(code)).is_relative_to(os.path.realpath(folder))
    if code.is_dir() and inside and ".git" not in Path(git.path or "").parts:
        return code
    known = sorted(
        str(Path(top).relative_to(folder) / name)
        for top, names, _ in os.walk(folder)
        for name in names
        if ".git" not in (*Path(top).relative_to(folder).parts, name)
    )
    problem = not_found("folder", git.path or "", git.url, known[:1000]).problems[0]
    raise NotFound(problem._replace(path="git.path"))


def _files(program: GitProgram, folder: Path, code: Path, git: Git) -> list[str]:
    """The committed files of the code; ignore files do not apply to them."""
    listed = program("ls-files", "-z", "--recurse-submodules", "--", git.path or ".").split("\0")
    root = os.path.realpath(code)
    found = []
    for name in filter(None, listed):
        path = os.path.relpath(folder / name, code)
        if (code / path).is_symlink():
            check_link(root, path, git.url)
        elif not (code / path).is_file():
            continue  # not in a sparse submodule
        found.append(path)
    if len(found) > MAX_FILES:
        text = f"{git.url} holds more than {MAX_FILES:,} files"
        raise InvalidInput(Problem("git.url", text, "name a folder of it: path"))
    return sorted(found)
