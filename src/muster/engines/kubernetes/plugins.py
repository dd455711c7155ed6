"""Credential plug-ins: programs that log in, and write the credentials to their output
(Kubernetes: ExecCredential).

kubectl waits for them as long as they take. Here, what waits is a run, and whoever cancels it; so a
plug-in that hangs is killed, and the call that needs it has failed. So is any other program that
logs in (`output_of`).
"""

from __future__ import annotations

import json
import math
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import msgspec
from msgspec import Struct

from muster.engines.kubernetes.kubeconfig import Entry
from muster.engines.kubernetes.refusals import CannotCall
from muster.escapes import visible_line
from muster.unix_account import process_options

#: Seconds that a program may take; and one that can ask a person, who has to log in meanwhile.
_TIMEOUT, _LOGIN_TIMEOUT = 60.0, 300.0
#: Bytes at the end of what it writes to standard error that are read.
_MOST_ERROR = 4096
#: Bytes that it may write to its output.
_MOST_OUTPUT = 1 << 20
#: A word that may be a token: a long one with a digit.
_MAYBE_TOKEN = re.compile(
    r"(?<![A-Za-z0-9._~+/=-])(?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{20,}"
)
#: Kubernetes: the extension of a cluster that its plug-in gets.
_EXTENSION = "client.authentication.k8s.io/exec"


class Issued(Struct, frozen=True):
    """The credentials of a plug-in."""

    token: str = ""
    #: In PEM.
    certificate: bytes | None = None
    key: bytes | None = None
    #: Epoch seconds.
    expires: float = math.inf


class Program(Struct, frozen=True):
    """A program that logs in."""

    #: For people.
    name: str
    argv: list[str]
    environ: Mapping[str, str]
    #: In which it runs.
    folder: Path
    #: How it is installed.
    hint: str = ""
    #: Whether it can ask a person at the terminal.
    is_interactive: bool = False
    #: Whether what it writes to standard error may be shown.
    says_why: bool = True


def run_plugin(user: Entry, plugin: Entry, cluster: Entry, environ: Mapping[str, str]) -> Issued:
    """Run the plug-in of a user. environ: its variables, but for those that the file gives it.
    Raises CannotCall."""
    command, version = plugin.text("command"), plugin.text("apiVersion")
    if not command or not version:
        raise user.wrong("exec", "has to have a `command` and an `apiVersion`")
    is_interactive = _is_interactive(user, plugin)
    info: dict[str, Any] = {"interactive": is_interactive}
    if plugin.flag("provideClusterInfo"):
        info["cluster"] = _cluster_info(cluster)
    own = {one.text("name"): one.text("value") for one in plugin.parts("env")}
    request = {"apiVersion": version, "kind": "ExecCredential", "spec": info}
    text = json.dumps(request, default=str)  # an extension may have dates
    given = {**os.environ, **environ, **own, "KUBERNETES_EXEC_INFO": text}
    name = f"the credential plug-in {command} of {user.owner} in {user.file}"
    program = Program(
        name,
        [command, *plugin.texts("args")],
        given,
        user.file.absolute().parent,
        plugin.text("installHint"),
        is_interactive,
    )
    return _issued(name, version, output_of(program))


def _is_interactive(user: Entry, plugin: Entry) -> bool:
    """Whether a plug-in can ask a person. Raises CannotCall if it has to, and cannot."""
    mode = plugin.text("interactiveMode")
    has_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    if mode == "Always" and not has_terminal:
        raise user.wrong("exec", "needs a terminal: log in with kubectl, and try again")
    return has_terminal and mode != "Never"


def _cluster_info(cluster: Entry) -> dict[str, Any]:
    names = ("server", "tls-server-name", "proxy-url")
    info: dict[str, Any] = {name: text for name in names if (text := cluster.text(name))}
    if cluster.flag("insecure-skip-tls-verify"):
        info["insecure-skip-tls-verify"] = True
    if authority := cluster.data("certificate-authority"):
        info["certificate-authority-data"] = b64encode(authority).decode()
    for one in cluster.parts("extensions"):
        if one.text("name") == _EXTENSION:
            info["config"] = one.fields.get("extension")
    return info


def output_of(one: Program) -> bytes:
    """What a program has written to its output, which has to end in time, as it has to itself.
    Raises CannotCall."""
    # not a pipe: what a program leaves running may hold it open
    with _unnamed(one.name) as errors:
        process = _started(one, errors)
        output = _finished(one, process)
        if process.returncode:
            words = _without_tokens(_end_of(errors)) if one.says_why else ""
            text = f"{one.name} has failed with exit code {process.returncode}"
            raise CannotCall(f"{text}: {words[-300:]}" if words else text, refused=True)
    return output


def _unnamed(name: str) -> IO[bytes]:
    """A file for what a program says. Raises CannotCall."""
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        text = f"{name} cannot be started: there is no temporary file: {error.strerror}"
        raise CannotCall(text, refused=False) from None


def _started(one: Program, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """Raises CannotCall."""
    try:
        return subprocess.Popen(
            one.argv,
            stdin=None if one.is_interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if one.is_interactive else errors,
            cwd=one.folder,
            env=one.environ,
            # with a terminal, it has to stay among those that may read from it
            start_new_session=not one.is_interactive,
            **process_options(),
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it has a field that no program can get"
        more = f"; {' '.join(one.hint.split())[:300]}" if one.hint else ""
        raise CannotCall(f"{one.name} cannot be started: {why}{more}", refused=True) from None


def _finished(one: Program, process: subprocess.Popen[bytes]) -> bytes:
    """The output of a program that has ended. Raises CannotCall."""
    timeout = _LOGIN_TIMEOUT if one.is_interactive else _TIMEOUT
    guard = _guard(process)
    deadline = time.monotonic() + timeout
    try:
        output = _read(one, process, deadline)
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        text = f"{one.name} was killed, as it has not ended within {timeout:g} seconds"
        raise CannotCall(
            f"{text}: run it by hand to see what it waits for", refused=False
        ) from None
    finally:
        _end(process)
        if guard is not None:
            guard.communicate(b"ended\n")
    return output


def _read(one: Program, process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """What a program writes until its output ends. Raises CannotCall if that is too much, and
    TimeoutExpired."""
    assert process.stdout is not None
    output = bytearray()
    with process.stdout as source, selectors.DefaultSelector() as ready:
        ready.register(source, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not ready.select(left):
                raise subprocess.TimeoutExpired(one.argv, left)
            chunk = os.read(source.fileno(), 1 << 16)
            if not chunk:
                return bytes(output)
            output += chunk
            if len(output) > _MOST_OUTPUT:
                text = f"{one.name} has written more than {_MOST_OUTPUT >> 20} MiB"
                raise CannotCall(text, refused=True)


def _end_of(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_ERROR))
    return file.read().decode(errors="replace")


def _without_tokens(text: str) -> str:
    """What a program says, on one line, without words that may be tokens."""
    return _MAYBE_TOKEN.sub("***", visible_line(" ".join(text.split())))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program, unless it has ended: with its children, if it has a group of its own. With a
    terminal it has none, and its children may outlive it."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _guard(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes] | None:
    """A process that kills a program if this one ends before it, however that is, such as when a
    run is canceled; None where there is no shell. It ends without that when it gets `ended`: the
    number of a program that has ended may belong to others."""
    whom = -process.pid if os.getpgid(process.pid) == process.pid else process.pid
    # it reads nothing if the pipe has no other end any more
    script = 'read -r word; test "$word" = ended || kill -s KILL -- "$1"'
    argv = ["/bin/sh", "-c", script, "sh", str(whom)]
    silent = subprocess.DEVNULL
    try:
        return subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=silent, stderr=silent, start_new_session=True
        )
    except OSError:
        return None


class _Status(Struct, rename="camel"):
    """See `Issued`."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _Credential(Struct, rename="camel"):
    """What a plug-in writes."""

    api_version: str
    kind: Literal["ExecCredential"]
    status: _Status


def _issued(name: str, version: str, output: bytes) -> Issued:
    """The credentials in the output of a plug-in. Raises CannotCall, without any of it."""
    try:
        found = msgspec.json.decode(output, type=_Credential)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = f"{name} has not written an ExecCredential of {version}"
        raise CannotCall(text, refused=True) from None
    if found.api_version != version:
        text = f"{name} has another apiVersion than {version}, which the file says"
        raise CannotCall(text, refused=True)
    one = found.status
    has_certificate = bool(one.client_certificate_data)
    if has_certificate != bool(one.client_key_data) or not (one.token or has_certificate):
        text = f"{name} has written neither a token nor a certificate with its key"
        raise CannotCall(text, refused=True)
    expires = one.expiration_timestamp
    return Issued(
        one.token or "",
        (one.client_certificate_data or "").encode() or None,
        (one.client_key_data or "").encode() or None,
        math.inf if expires is None else expires.timestamp(),
    )
