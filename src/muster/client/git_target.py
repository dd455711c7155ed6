"""Repositories as targets: `git+https://host/owner/repo.git@branch#folder`, as in pip."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit

from muster.errors import InvalidInput, Problem
from muster.secrets import redacted
from muster.spec.sources import check_port
from muster.spec.wording import Refused

_FORM = "write git+https://host/owner/repo.git@branch#folder"


def is_git(target: object) -> bool:
    """Whether a target looks like the address of a repository."""
    return (
        isinstance(target, str) and re.match(r"git\+|(https?|ssh|git)://|git@", target) is not None
    )


def git_fields(target: str) -> dict[str, Any]:
    """The `git` field of a spec for a target. Raises InvalidInput."""
    try:
        check_port(target.removeprefix("git+"))
    except Refused as error:
        raise InvalidInput(Problem("git.url", error.message, error.hint)) from None
    shown = redacted(target)
    if not target.startswith("git+"):
        hint = (
            _FORM if "@" not in shown.partition("/")[0] else "write git+ssh://git@host/owner/repo"
        )
        raise InvalidInput(Problem("", f"{shown} is an address, not a file", hint))
    url, _, path = target.removeprefix("git+").partition("#")
    if "://" not in url:
        hint = "write git+ssh://git@host/owner/repo, or git+file:///folder"
        if "@" not in url.partition("/")[0] and ":" not in url.partition("/")[0]:
            hint = f"write git+file://{os.path.abspath(os.path.expanduser(url))}"
        raise InvalidInput(Problem("", f"{shown} has no scheme", hint))
    url, ref = _split_ref(url)
    git: dict[str, Any] = {"url": url}
    if re.fullmatch(r"[0-9a-fA-F]{40}", ref):
        git["commit"] = ref
    elif ref:
        git["branch"] = ref
    path = path.removeprefix("subdirectory=").strip("/")
    return {**git, "path": path} if path else git


def git_name(git: dict[str, Any]) -> str:
    """The default name of its Job: the last part of the folder or the repository."""
    url, path = git["url"].rstrip("/"), git.get("path", "")
    last = re.split(r"[/:]", path or url)[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).strip("._-") or "job"


def _split_ref(url: str) -> tuple[str, str]:
    """The address and the branch, tag or commit after its @, "" if it has none."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    if scheme == "file" and os.path.exists(urlsplit(url).path):
        return url, ""
    if "@" not in path:
        return url, ""
    # a branch name may contain slashes; the path of a repository hardly ever contains an @
    path, _, ref = path.partition("@")
    return f"{scheme}://{host}{slash}{path}", ref
