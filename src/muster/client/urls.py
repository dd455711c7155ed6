"""Check whether the URLs in a job can be used, for `muster check`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from types import TracebackType

from msgspec import Struct

from muster.api.prepared import PreparedRun
from muster.secrets import redacted

#: Seconds to wait for an answer; the storage libraries retry meanwhile.
_TIMEOUT = 45.0
#: The variable with a folder that the program writes to. (OCI__WORK_DIR repeats ADS's workDir,
#: which a run does not use.)
_WORK_DIR = "WORK_DIR"


class Url(Struct, frozen=True):
    """A URL in a job."""

    url: str
    #: The mount or variable that contains it.
    where: str
    #: Whether the job writes to it.
    write: bool


def urls_of(prepared: PreparedRun) -> list[Url]:
    """The URLs of a run, each once; written to if any of its mounts or variables is."""
    found: dict[str, Url] = {}
    for url in _urls_with_place(prepared):
        before = found.get(url.url)
        if before is None or (url.write and not before.write):
            found[url.url] = url
    return list(found.values())


def _urls_with_place(prepared: PreparedRun) -> Iterator[Url]:
    for group in prepared.plan.groups:
        for mount in group.mounts:
            if mount.kind == "url":
                yield Url(mount.source, mount.path, write=not mount.read_only)
    for env in (prepared.spec.env, *(group.env for group in prepared.spec.node_groups)):
        text = env.get(_WORK_DIR, "")
        if "://" in text:
            yield Url(text, _WORK_DIR, write=True)


class UrlChecks:
    """Checks URLs in another process within the context; `results` waits for it."""

    def __init__(self, urls: list[Url]) -> None:
        self._urls = urls
        self._program: subprocess.Popen[str] | None = None

    def __enter__(self) -> UrlChecks:
        if self._urls:
            self._program = subprocess.Popen(
                [sys.executable, "-P", "-m", "muster.storage.url_check"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            # its output is short, so that it never blocks on a full pipe
            stdin, self._program.stdin = self._program.stdin, None
            assert stdin is not None
            with contextlib.suppress(BrokenPipeError), stdin:
                json.dump([{"url": one.url, "write": one.write} for one in self._urls], stdin)
        return self

    def __exit__(
        self, _1: type[BaseException] | None, _2: BaseException | None, _3: TracebackType | None
    ) -> None:
        if self._program is not None:
            self._program.kill()
            self._program.communicate()

    def results(self) -> list[tuple[bool, str]]:
        """For each URL, in order: whether it can be used, and a sentence."""
        if self._program is None:
            return []
        try:
            out, errors = self._program.communicate(timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._program.kill()
            out, errors = self._program.communicate()
        answers: dict[int, tuple[bool, str]] = {}
        for line in out.splitlines():
            with contextlib.suppress(ValueError):  # printed by a storage library, or half a line
                number, ok, text = json.loads(line)
                answers[number] = bool(ok), str(text)
        reason = _no_answer(errors, ended=self._program.returncode >= 0)
        return [
            (ok, f"{text} ({one.where})" if ok else f"{one.where}: {text}")
            for number, one in enumerate(self._urls)
            for ok, text in [answers.get(number, (False, f"{redacted(one.url)} {reason}"))]
        ]


def _no_answer(errors: str, *, ended: bool) -> str:
    """Why there is no result for a URL. ended: whether the process ended by itself."""
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
    text = "could not be checked" if ended else f"did not answer within {_TIMEOUT:g} s"
    return f"{text}: {redacted(last)[:300]}" if last else text
