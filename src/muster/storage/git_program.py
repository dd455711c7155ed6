"""Run `git` with credentials, and translate its errors into problems with hints."""

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
from muster.spec.wording import alternatives, close_to
from muster.unix_account import process_options

#: Variables that pass the secret to the helper below; arguments would be visible to others.
_USER, _PASSWORD = "MUSTER_GIT_USER", "MUSTER_GIT_PASSWORD"
# git-credential(1): a helper that starts with ! is shell code
_HELPER = (
    '!f() { test "$1" = get && '
    f'printf "username=%s\\npassword=%s\\n" "${_USER}" "${_PASSWORD}"; }}; f'
)
#: Variables of the user that would direct git to another repository.
_REPOSITORY_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
)
#: ssh that fails instead of asking for a passphrase, a password or about a host's key.
_SSH = "ssh -oBatchMode=yes -oConnectTimeout=30"
#: The protocols that git may use, in the format of GIT_ALLOW_PROTOCOL.
PROTOCOLS = "file:git:http:https:ssh"


class Remote(Struct, frozen=True):
    """The address of a repository and its credentials."""

    #: Without credentials.
    url: str
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"<Remote {self.url}>"  # never the secret


def remote_of(git: Git, environ: Mapping[str, str]) -> Remote:
    """The remote of a source. Raises InvalidInput if the variable for the token is not set."""
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
        user, password = "", user  # https://TOKEN@host: the token is in place of the user
    host = parts.netloc.rpartition("@")[2]
    clean = urlunsplit((parts.scheme, host, parts.path, parts.query, parts.fragment))
    # GitHub, GitLab and Gitea accept a token with any user
    secret = token or password
    return Remote(clean, (user or "oauth2") if secret else user, secret)


class GitProgram:
    """`git`, for one remote repository, in one folder."""

    def __init__(self, remote: Remote, folder: Path, environ: Mapping[str, str]) -> None:
        self.remote = remote
        self._folder = folder
        self._env = _environment(remote, environ)

    def disable_prompts(self) -> None:
        """Keep ssh from prompting, unless the user has configured an ssh command. Call it after
        `git init`: git would read the configuration of a surrounding repository before. Raises as a
        call does."""
        if "GIT_SSH_COMMAND" in self._env or "GIT_SSH" in self._env:
            return
        try:
            self("config", "core.sshCommand")
        except GitFailed:  # it is not set
            self._env["GIT_SSH_COMMAND"] = _SSH

    def __call__(self, *words: str, protocols: str = PROTOCOLS) -> str:
        """Run git with these arguments. Returns its output. Raises GitFailed."""
        argv = ["git", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", *words]
        try:
            result: subprocess.CompletedProcess[bytes] = subprocess.run(
                argv,
                cwd=self._folder,
                env={**self._env, "GIT_ALLOW_PROTOCOL": protocols},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                **process_options(),
            )
        except FileNotFoundError:
            hint = "install it (apt-get install git), or clone by hand and give the folder"
            raise InvalidInput(Problem("git", "the program git is not installed", hint)) from None
        if result.returncode:
            known = (self.remote.password, self._env.get(_PASSWORD, ""))
            raise GitFailed(redacted(result.stderr.decode(errors="replace"), known).strip())
        return result.stdout.decode(errors="surrogateescape")


def _environment(remote: Remote, environ: Mapping[str, str]) -> dict[str, str]:
    env = {name: value for name, value in environ.items() if name not in _REPOSITORY_VARIABLES}
    env["LC_ALL"] = "C"  # its messages are parsed
    env["GIT_TERMINAL_PROMPT"] = "0"  # no prompts
    env["GIT_ASKPASS"] = ""  # nor dialogs; the empty value also keeps git from using SSH_ASKPASS
    env["SSH_ASKPASS_REQUIRE"] = "never"
    env.setdefault("GIT_HTTP_LOW_SPEED_LIMIT", "1")  # bytes a second
    env.setdefault("GIT_HTTP_LOW_SPEED_TIME", "60")  # seconds below the limit until git gives up
    if not remote.password:
        return env
    parts = urlsplit(remote.url)
    # only for this host: the secret is not sent to the targets of redirects
    name = f"credential.{parts.scheme}://{parts.netloc}.helper"
    count = int(env.get("GIT_CONFIG_COUNT", "0") or "0")
    for value in ("", _HELPER):  # the empty value removes configured helpers
        env[f"GIT_CONFIG_KEY_{count}"], env[f"GIT_CONFIG_VALUE_{count}"] = name, value
        count += 1
    return env | {
        "GIT_CONFIG_COUNT": str(count),
        _USER: remote.user,
        _PASSWORD: remote.password,
    }


class GitFailed(Exception):  # noqa: N818
    """git failed. The text is its error output without secrets."""


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
#: Git's message for every failure of ssh.
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


def explain(failed: GitFailed, remote: Remote) -> InvalidInput:
    """The problem behind an error of a command that contacted the remote."""
    output, url = str(failed), remote.url
    low = output.lower()
    last = _main_line(output)
    if any(text in low for text in _UNREACHABLE):
        return InvalidInput(Problem("git.url", f"cannot reach {url}: {last}", "check the address"))
    if "dubious ownership" in low:
        hint = f"if you trust it: git config --global --add safe.directory {url}"
        return InvalidInput(Problem("git.url", f"{url} belongs to another user", hint))
    if re.search(r"transport '.*' not allowed|not a supported|unable to find remote helper", low):
        hint = f"supported are {', '.join(PROTOCOLS.split(':'))}"
        return InvalidInput(Problem("git.url", f"{url} cannot be cloned: {last}", hint))
    if "host key verification failed" in low:
        hint = "connect to it with ssh once, and accept its key"
        return InvalidInput(Problem("git.url", f"the host of {url} is not known to ssh", hint))
    denied = any(text in low for text in _DENIED)
    if denied or any(text in low for text in _MISSING):
        if remote.url.startswith(("http:", "https:")):
            hint = "check the address; for a private one, the token in token_env or git's own login"
        elif ":" in remote.url and not remote.url.startswith("file:"):
            hint = "check the address, and that your SSH key is known there"
        else:
            hint = "check the path"
        return NotFound(Problem("git.url", f"{url} not found, or access denied: {last}", hint))
    return InvalidInput(Problem("git.url", f"{url} cannot be cloned: {last}"))


def _main_line(output: str) -> str:
    """The most useful line without its prefix: git's first `fatal:` line; if that only reports that
    ssh failed, the line of ssh."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "remote:", "ERROR:"))]
    if fatal and _BY_SSH in fatal[0].lower():
        own = [line for line in lines if ": " in line and line not in fatal]
        fatal = [line for line in own if not line.startswith("Warning:")] or fatal
    return (fatal or lines or ["git printed no error"])[0].partition(": ")[
        2
    ] or "git printed no error"


def not_found(what: str, name: str, url: str, known: list[str]) -> NotFound:
    """The error for a missing branch, tag or folder. known: the names that exist."""
    close = close_to(name, known, 3)
    hint = f"did you mean {' or '.join(close)}?" if close else ""
    if not hint and known:
        more = [f"one of {len(known) - 8} others"] if len(known) > 8 else []
        hint = f"use {alternatives([*known[:8], *more])}"
    return NotFound(Problem("git.branch", f"{url} has no {what} {name}", hint))
