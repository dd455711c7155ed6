"""Sources of code: git repositories and notebooks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from muster.secrets import redacted
from muster.spec.values import Text, Words
from muster.spec.wording import Refused, short

if TYPE_CHECKING:
    from muster.spec.models import JobSpec

# compiled when used: most runs need none of them
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
#: Invalid in names of branches (git check-ref-format), the common cases.
_NO_REF = r"^$|^-|[\s~^:?*\\]"
_COMMIT = r"[0-9a-fA-F]{4,40}"


def _branch(value: Any) -> Any:
    if isinstance(value, str) and re.search(_NO_REF, value):
        raise Refused(f"{short(value)} cannot name a branch or tag", "`git branch -r` lists them")
    return value


def _commit(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        raise Refused(f"{value} was read as a number", f'put it in quotes: "{value}"')
    if isinstance(value, str) and not re.fullmatch(_COMMIT, value):
        hint = "write the hexadecimal digits that `git log` shows; branches and tags go into branch"
        raise Refused(f"{short(value)} is not a commit", hint)
    return value.lower() if isinstance(value, str) else value


def _inside(value: Any) -> Any:
    if isinstance(value, str) and (value.startswith("/") or ".." in value.split("/")):
        raise Refused(
            f"{short(value)} leads out of the repository", "write a path from its root, without .."
        )
    return value


def _variable(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(_VARIABLE, value):
        # not shown: it may be the token itself
        raise Refused("is not the name of an environment variable", "such as GIT_TOKEN")
    return value


def check_port(url: str) -> None:
    """Raises Refused, without the address, for a port that is not a number: it may be part of a
    password."""
    from urllib.parse import urlsplit

    try:
        _ = urlsplit(url).port if "://" in url else None
    except ValueError:
        hint = "in a user or password, write / as %2F, @ as %40 and # as %23; or use token_env"
        raise Refused("has a port that is not a number", hint) from None


def _url(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.startswith("-") or "::" in value.partition("/")[0] or re.search(r"\s", value):
        shown = short(redacted(value))
        raise Refused(f"{shown} is not a repository's address", "write https://host/owner/repo.git")
    check_port(value)
    if "?" in value and "://" in value:
        hint = "leave out the question mark and what follows; a token goes into token_env"
        raise Refused("has a query, which git does not use and which may contain a secret", hint)
    return value


class Git(Struct, frozen=True, kw_only=True):
    """Code from a git repository. Cloned once, where the run is submitted; nodes get the files of
    that commit."""

    url: Annotated[Text, Meta(extra={"parse": _url})]
    """https://, ssh://, git@host:owner/repo.git, file:// or a folder (relative to the spec's
    file). A password in it is used but not stored."""
    branch: Annotated[str, Meta(extra={"parse": _branch})] | None = None
    """Branch or tag. Default: the repository's default branch."""
    commit: Annotated[str, Meta(extra={"parse": _commit})] | None = None
    """A fixed commit, at least 4 digits of it; with all 40, only that commit is fetched. A stored
    job has the commit that its branch pointed to."""
    path: Annotated[str, Meta(extra={"parse": _inside})] | None = None
    """Folder of the repository with the code. Default: the whole repository."""
    token_env: Annotated[str, Meta(extra={"parse": _variable})] | None = None
    """Environment variable with the token or password for https. Nodes do not get it. Default:
    git's own credentials."""


class Notebook(Struct, frozen=True, kw_only=True):
    """How a notebook is executed."""

    exclude_tags: Words = ()
    """Skip cells with any of these tags."""


def is_notebook(name: str | None) -> bool:
    """Whether a file of this name is a notebook."""
    return name is not None and name.lower().endswith(".ipynb")


def has_sources(spec: JobSpec) -> bool:
    """Whether a spec names more than a file or folder that a Job consists of: a repository, or what
    it requires."""
    return spec.git is not None or bool(spec.requirements) or spec.conda is not None


def needs_entrypoint(spec: JobSpec) -> bool:
    """Whether a node runs the code itself, rather than a command."""
    groups = spec.node_groups
    commands = bool(groups) and all(group.command is not None for group in groups)
    return spec.command is None and not commands


def entrypoint_of(spec: JobSpec) -> str | None:
    """The file of the code that runs: None if not given, "" if not needed."""
    return spec.entrypoint if needs_entrypoint(spec) else spec.entrypoint or ""
