"""`git+https://host/owner/repo.git@branch#folder`, as pip writes it."""

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
    """Whether a target is a repository's address, and not a file's name."""
    return (
        isinstance(target, str) and re.match(r"git\+|(https?|ssh|git)://|git@", target) is not None
    )


def git_fields(target: str) -> dict[str, Any]:
    """The `git` field of a spec that a target stands for. Raises InvalidInput."""
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
    """What a job from there is called, if nobody says: after the repository, or its folder."""
    url, path = git["url"].rstrip("/"), git.get("path", "")
    last = re.split(r"[/:]", path or url)[-1].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).strip("._-") or "job"


def _split_ref(url: str) -> tuple[str, str]:
    """The address, and the branch, tag or commit behind its last @, if it has one."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    if scheme == "file" and os.path.exists(urlsplit(url).path):
        return url, ""
    if "@" not in path:
        return url, ""
    # a branch may have slashes in its name, a repository hardly ever has an @
    path, _, ref = path.partition("@")
    return f"{scheme}://{host}{slash}{path}", ref
