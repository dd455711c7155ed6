"""Running `git`, with a secret it may need, and what it says in words a person can act on."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from msgspec import Struct

from muster.errors import InvalidInput, NotFound, Problem
from muster.secrets import redacted, without_credentials
from muster.spec.sources import Git
from muster.spec.wording import close_to

#: Where the secret is for the helper below: in git's environment, never among its arguments.
_USER, _PASSWORD = "MUSTER_GIT_USER", "MUSTER_GIT_PASSWORD"
# git-credential(1): a helper that begins with ! is a piece of shell
_HELPER = (
    '!f() { test "$1" = get && '
    f'printf "username=%s\\npassword=%s\\n" "${_USER}" "${_PASSWORD}"; }}; f'
)
#: What of the submitter's environment would make git look at another repository.
_LEADING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
#: ssh that fails where it would ask for a passphrase, a password or about a host's key.
_SSH = "ssh -oBatchMode=yes -oConnectTimeout=30"
#: What git may speak, as GIT_ALLOW_PROTOCOL has it.
PROTOCOLS = "file:git:http:https:ssh"


class Remote(Struct, frozen=True):
    """Where a repository is, and how to get in. url: without credentials."""

    url: str
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"<Remote {self.url}>"  # never the secret


def remote_of(git: Git, environ: Mapping[str, str]) -> Remote:
    """Raises InvalidInput if the variable that should hold the token does not."""
    token = ""
    if git.token_env is not None:
        token = environ.get(git.token_env, "")
        if not token:
            text = f"{git.token_env} is not set in your environment"
            raise InvalidInput(Problem("git.token_env", text, f"export {git.token_env}=..."))
    if "://" not in git.url:
        return Remote(git.url)
    parts = urlsplit(git.url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if parts.scheme not in ("http", "https"):
        return Remote(without_credentials(git.url))
    if not password and user and not token:
        user, password = "", user  # https://TOKEN@host: the token stands in for the user
    host = parts.netloc.rpartition("@")[2]
    clean = urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment))
    # GitHub, GitLab and Gitea take a token with any user at all
    secret = token or password
    return Remote(clean, (user or "oauth2") if secret else user, secret)


class GitProgram:
    """`git`, for one remote repository, in one folder."""

    def __init__(self, remote: Remote, folder: Path, environ: Mapping[str, str]) -> None:
        self.remote = remote
        self._folder = folder
        self._env = _environment(remote, environ)

    def quiet(self) -> None:
        """Have ssh ask nothing, unless its user has said how it is called. Once the folder is a
        repository: before, git would look into that around it. Raises as a call does."""
        if "GIT_SSH_COMMAND" in self._env or "GIT_SSH" in self._env:
            return
        try:
            self("config", "core.sshCommand")
        except GitFailed:  # it is not set
            self._env["GIT_SSH_COMMAND"] = _SSH

    def __call__(self, *words: str, protocols: str = PROTOCOLS) -> str:
        """What it prints. Raises GitFailed."""
        argv = ["git", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", *words]
        try:
            done = subprocess.run(
                argv,
                cwd=self._folder,
                env={**self._env, "GIT_ALLOW_PROTOCOL": protocols},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except FileNotFoundError:
            hint = "install it (apt-get install git), or clone by hand and give the folder"
            raise InvalidInput(Problem("git", "the program git is not installed", hint)) from None
        if done.returncode:
            known = (self.remote.password, self._env.get(_PASSWORD, ""))
            raise GitFailed(redacted(done.stderr.decode(errors="replace"), known).strip())
        return done.stdout.decode(errors="surrogateescape")


def _environment(remote: Remote, environ: Mapping[str, str]) -> dict[str, str]:
    env = {name: value for name, value in environ.items() if name not in _LEADING}
    env["LC_ALL"] = "C"  # what it says is looked into
    env["GIT_TERMINAL_PROMPT"] = "0"  # nobody may be there to answer
    env["GIT_ASKPASS"] = ""  # nor to look at a dialog; empty, it keeps git from SSH_ASKPASS as well
    env["SSH_ASKPASS_REQUIRE"] = "never"
    env.setdefault("GIT_HTTP_LOW_SPEED_LIMIT", "1")  # bytes a second
    env.setdefault("GIT_HTTP_LOW_SPEED_TIME", "60")  # for so many seconds: it has died
    if not remote.password:
        return env
    parts = urlsplit(remote.url)
    # for this host only: wherever else the server sends us, the secret does not go
    name = f"credential.{parts.scheme}://{parts.netloc}.helper"
    count = int(env.get("GIT_CONFIG_COUNT", "0") or "0")
    for value in ("", _HELPER):  # the empty one: instead of those that are set up
        env[f"GIT_CONFIG_KEY_{count}"], env[f"GIT_CONFIG_VALUE_{count}"] = name, value
        count += 1
    return env | {
        "GIT_CONFIG_COUNT": str(count),
        _USER: remote.user,
        _PASSWORD: remote.password,
    }


class GitFailed(Exception):  # noqa: N818
    """git ended with an error. Its text is what git said, with no secret in it."""


_DENIED = (
    "authentication failed",
    "could not read username",
    "could not read password",
    "permission denied",
    "terminal prompts disabled",
    "invalid username or",
    "error: 403",
    "error: 401",
)
#: What git says whatever ssh has failed of.
_BY_SSH = "could not read from remote repository"
_MISSING = ("not found", "does not exist", "does not appear to be a git repository", "no such file")
_UNREACHABLE = (
    "could not resolve host",
    "failed to connect",
    "couldn't connect",
    "connection refused",
    "connection timed out",
    "network is unreachable",
    "operation too slow",
)


def explained(failed: GitFailed, remote: Remote) -> InvalidInput:
    """What git said when it asked the repository for something."""
    said, url = str(failed), remote.url
    low = said.lower()
    last = _last(said)
    if any(text in low for text in _UNREACHABLE):
        return InvalidInput(Problem("git.url", f"cannot reach {url}: {last}", "check the address"))
    if "dubious ownership" in low:
        hint = f"if you trust it: git config --global --add safe.directory {url}"
        return InvalidInput(Problem("git.url", f"{url} belongs to another user", hint))
    if re.search(r"transport '.*' not allowed|not a supported|unable to find remote helper", low):
        hint = f"known are {', '.join(PROTOCOLS.split(':'))}"
        return InvalidInput(Problem("git.url", f"{url} cannot be cloned: {last}", hint))
    if "host key verification failed" in low:
        hint = "look at its key by hand, once: ssh-keyscan, or ssh to it and answer"
        return InvalidInput(Problem("git.url", f"the host of {url} is not known to ssh", hint))
    denied = any(text in low for text in _DENIED)
    if denied or any(text in low for text in _MISSING):
        if remote.url.startswith(("http:", "https:")):
            hint = "check the address; for a private one, the token in token_env or git's own login"
        elif ":" in remote.url and not remote.url.startswith("file:"):
            hint = "check the address, and that your SSH key is known there"
        else:
            hint = "check the path"
        return NotFound(Problem("git.url", f"{url} is not there, or not for you: {last}", hint))
    return InvalidInput(Problem("git.url", f"{url} cannot be cloned: {last}"))


def _last(said: str) -> str:
    """The line that says most: git's first `fatal:`, unless that only says that ssh has failed;
    then ssh's own."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "remote:", "ERROR:"))]
    if fatal and _BY_SSH in fatal[0].lower():
        own = [line for line in lines if ": " in line and line not in fatal]
        fatal = [line for line in own if not line.startswith("Warning:")] or fatal
    return (fatal or lines or ["git says nothing"])[0].partition(": ")[2] or "git says nothing"


def no_such(what: str, name: str, url: str, known: list[str]) -> NotFound:
    """No branch, tag or file of that name."""
    close = close_to(name, known, 3)
    hint = f"did you mean {' or '.join(close)}?" if close else ""
    if not hint and known:
        hint = f"there are: {', '.join(known[:8])}{', ...' if len(known) > 8 else ''}"
    return NotFound(Problem("git.branch", f"{url} has no {what} {name}", hint))
