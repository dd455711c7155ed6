"""Where code comes from, if not from a file or folder at hand, and what it needs installed."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta, Struct

from muster.secrets import redacted
from muster.spec.values import Text, Words
from muster.spec.wording import Refused, short

# not compiled here: most runs have no use for them
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
#: git check-ref-format, the part of it that people run into.
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
        raise Refused(f"{short(value)} is no commit", hint)
    return value.lower() if isinstance(value, str) else value


def _inside(value: Any) -> Any:
    if isinstance(value, str) and (value.startswith("/") or ".." in value.split("/")):
        raise Refused(f"{short(value)} leads out of the repository", "start at its top, without ..")
    return value


def _variable(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(_VARIABLE, value):
        # not shown: it may well be the token itself
        raise Refused("is not the name of an environment variable", "write GIT_TOKEN, say")
    return value


def check_port(url: str) -> None:
    """Raises Refused for what looks like a port and may be the beginning of a password: such an
    address is not to be shown."""
    from urllib.parse import urlsplit

    try:
        _ = urlsplit(url).port if "://" in url else None
    except ValueError:
        hint = "in a user or password, write / as %2F, @ as %40 and # as %23; or use token_env"
        raise Refused("has a port that is no number", hint) from None


def _url(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.startswith("-") or "::" in value.partition("/")[0] or re.search(r"\s", value):
        shown = short(redacted(value))
        raise Refused(f"{shown} is no address of a repository", "write https://host/owner/repo.git")
    check_port(value)
    if "?" in value and "://" in value:
        hint = "leave out the question mark and what follows; a token goes into token_env"
        raise Refused("has a query, which may hold a secret and which git has no use for", hint)
    return value


class Git(Struct, frozen=True, kw_only=True):
    """Code from a git repository. It is cloned once, where the run is submitted; nodes get the
    files of that commit.

    url: https://, ssh://, git@host:owner/repo.git, file:// or a folder (relative to the spec's
        file). A password in it is used and not kept.
    branch: A branch or tag. Default: the repository's own.
    commit: This very one, whatever the branch has since. At least 4 digits; all of them spare a
        clone of the whole history. What was resolved is kept here.
    path: A folder of the repository that is the code. Default: all of it.
    token_env: The environment variable with the token, or password, for https. Default: what git
        itself is set up to use. Nodes do not get that variable.
    """

    url: Annotated[Text, Meta(extra={"parse": _url})]
    branch: Annotated[str, Meta(extra={"parse": _branch})] | None = None
    commit: Annotated[str, Meta(extra={"parse": _commit})] | None = None
    path: Annotated[str, Meta(extra={"parse": _inside})] | None = None
    token_env: Annotated[str, Meta(extra={"parse": _variable})] | None = None


class Notebook(Struct, frozen=True, kw_only=True):
    """How a notebook is executed.

    exclude_tags: Cells with any of these tags are not executed.
    """

    exclude_tags: Words = ()


def is_notebook(name: str | None) -> bool:
    """Whether a file of this name is a notebook."""
    return name is not None and name.lower().endswith(".ipynb")
