"""The URLs that a job names, and whether they can be used: for `muster check`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from types import TracebackType

from msgspec import Struct

from muster.drafting import Draft
from muster.secrets import redacted

#: Seconds to wait for a store's answer; back ends retry by themselves meanwhile.
_TIMEOUT = 45.0
#: The variable that names a folder in which a program writes; of others it is not known. (A run of
#: ADS's YAML uses no workDir, which OCI__WORK_DIR only repeats.)
_WORK_DIR = "WORK_DIR"


class Url(Struct, frozen=True):
    """where: what names it, for people. write: whether it has to be written to."""

    url: str
    where: str
    write: bool


def urls_of(draft: Draft) -> list[Url]:
    """Each once: as one that is written to, where any of those who name it writes."""
    found: dict[str, Url] = {}
    for url in _named(draft):
        before = found.get(url.url)
        if before is None or (url.write and not before.write):
            found[url.url] = url
    return list(found.values())


def _named(draft: Draft) -> Iterator[Url]:
    for group in draft.plan.groups:
        for mount in group.mounts:
            if mount.kind == "url":
                yield Url(mount.source, mount.path, write=not mount.read_only)
    for env in (draft.spec.env, *(group.env for group in draft.spec.node_groups)):
        text = env.get(_WORK_DIR, "")
        if "://" in text:
            yield Url(text, _WORK_DIR, write=True)


class Looks:
    """They are looked at from the beginning of the context on; `found` waits for the end."""

    def __init__(self, urls: list[Url]) -> None:
        self._urls = urls
        self._program: subprocess.Popen[str] | None = None

    def __enter__(self) -> Looks:
        if self._urls:
            self._program = subprocess.Popen(
                [sys.executable, "-m", "muster.storage.reach"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            # what it has to say is short: no pipe is full before somebody reads
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

    def found(self) -> list[tuple[bool, str]]:
        """Of each URL, in order: whether all is well, and a sentence."""
        if self._program is None:
            return []
        try:
            out, errors = self._program.communicate(timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._program.kill()
            out, errors = self._program.communicate()
        answers: dict[int, tuple[bool, str]] = {}
        for line in out.splitlines():
            with contextlib.suppress(ValueError):  # of a back end that prints, or half a line
                number, ok, text = json.loads(line)
                answers[number] = bool(ok), str(text)
        silent = _silence(errors, ended=self._program.returncode >= 0)
        return [
            (ok, f"{text} ({one.where})" if ok else f"{one.where}: {text}")
            for number, one in enumerate(self._urls)
            for ok, text in [answers.get(number, (False, f"{redacted(one.url)} {silent}"))]
        ]


def _silence(errors: str, *, ended: bool) -> str:
    """Why nothing was heard of one. ended: whether who looks at them did so by itself."""
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
    text = "could not be looked at" if ended else f"has not answered within {_TIMEOUT:g} s"
    return f"{text}: {redacted(last)[:300]}" if last else text
