"""The files of kubectl: how they are merged, and what a context in them says.

Fields are checked when they are read. What is wrong with one is said with its file, its entry and
its name, and never with its value, which may be a key or a token.
"""

from __future__ import annotations

import binascii
import errno
import os
from base64 import b64decode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from muster.engines.kubernetes.refusals import CannotCall
from muster.escapes import visible_line
from muster.node.files import read_regular
from muster.spec.wording import close_to

#: Bytes that a file of kubectl, and one with a certificate or a key, may have.
_MOST_OF_FILE, MOST_CERTIFICATE = 1 << 24, 1 << 20
#: Characters of a name that are shown.
_MOST_OF_NAME = 100


class Entry:
    """What a file says of a context, a cluster or a user, or a part of that. Methods raise
    CannotCall. A field without a value is one that is not there.

    owner: what it says that of, for people.
    """

    def __init__(self, fields: Mapping[str, Any], owner: str, file: Path) -> None:
        self.fields, self.owner, self.file = fields, owner, file

    def text(self, field: str) -> str:
        """A text; "" if it is not there."""
        value = self.fields.get(field)
        if value is not None and not isinstance(value, str):
            raise self.wrong(field, "has to be a text: put it in quotes")
        return self._usable(field, value or "")

    def texts(self, field: str) -> list[str]:
        """Several texts; [] if they are not there."""
        found = self._several(field)
        if not all(isinstance(one, str) for one in found):
            raise self.wrong(field, "may have texts only: put them in quotes")
        return [self._usable(field, one) for one in found]

    def flag(self, field: str) -> bool:
        """Whether it is true; False if it is not there."""
        value = self.fields.get(field)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(field, "has to be true or false")
        return value or False

    def part(self, field: str) -> Entry | None:
        """A part with fields; None if it is not there."""
        value = self.fields.get(field)
        return None if value is None else self._part(field, value)

    def parts(self, field: str) -> list[Entry]:
        """Several parts; [] if they are not there."""
        return [self._part(field, one) for one in self._several(field)]

    def path(self, field: str) -> Path | None:
        """The path of a file, which begins in the folder of this one; None if it is not there."""
        text = self.text(field)
        return self.file.absolute().parent / text if text else None

    def data(self, field: str) -> bytes | None:
        """The content of a file that is in the field `FIELD-data`, in base64, or whose path is in
        the field; None if neither is there."""
        if text := self.text(f"{field}-data"):
            try:
                return b64decode("".join(text.split()), validate=True)
            except (binascii.Error, ValueError):
                raise self.wrong(f"{field}-data", "is not base64") from None
        path = self.path(field)
        if path is None:
            return None
        try:
            return bounded(path, MOST_CERTIFICATE)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no path"
            why = f"is {visible_line(str(path))}, which cannot be read: {reason}"
            raise self.wrong(field, why) from None

    def wrong(self, field: str, why: str) -> CannotCall:
        """The error about a field. why: a predicate without its value."""
        where = f"{shown(field)} of {self.owner} in {self.file}"
        return CannotCall(f"{where} {why}", refused=True)

    def _usable(self, field: str, text: str) -> str:
        """A text that can be encoded: YAML may have half of a character."""
        if any("\ud800" <= one <= "\udfff" for one in text):
            raise self.wrong(field, "has half of a character (a surrogate)")
        return text

    def _several(self, field: str) -> list[Any]:
        value = self.fields.get(field)
        if value is not None and not isinstance(value, list):
            raise self.wrong(field, "has to be a list")
        return value or []

    def _part(self, field: str, value: object) -> Entry:
        if not isinstance(value, Mapping):
            raise self.wrong(field, "has to have fields")
        return Entry(value, self.owner, self.file)


class Context(Struct, frozen=True):
    """A cluster, how to log in there, and a namespace."""

    name: str
    namespace: str
    cluster: Entry
    user: Entry
    #: The name of that user.
    user_name: str


def paths_of(files: str) -> list[Path]:
    """The paths in a text such as that of $KUBECONFIG."""
    # unlike that of `Path`, it leaves the home of a user whom there is not as it is written
    return [Path(os.path.expanduser(one)) for one in files.split(os.pathsep) if one]


def absolute(files: str) -> str:
    """Files whose paths mean the same in each folder."""
    return os.pathsep.join(str(path.absolute()) for path in paths_of(files))


def shown(name: str) -> str:
    """A name of a context, a cluster or a user, for people."""
    return visible_line(name[:_MOST_OF_NAME])


def bounded(path: Path, most: int) -> bytes:
    """The content of a regular file. Raises OSError, also if it is none, or has more bytes; and
    ValueError if the path is none."""
    found = read_regular(path, most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 10} KiB")
    return found


def exists(path: Path) -> bool:
    """Whether there is a file. One that cannot be looked at is one: who reads it says why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def read_context(files: str, name: str | None) -> Context:
    """A context in files; None: the current one. Raises CannotCall."""
    every = [_read(path) for path in paths_of(files) if exists(path)]
    if not every:
        raise CannotCall(f"there is no file {files} with the cluster", refused=True)
    contexts = _merged(every, "context")
    if name is None:
        name = next((text for one in every if (text := one.text("current-context"))), "")
    if name not in contexts:
        if not contexts:
            raise CannotCall(f"{files} defines no contexts", refused=True)
        names = ", ".join(map(shown, sorted(contexts)))
        what = f"no context {shown(name)}" if name else "no current context"
        hint = "".join(
            f' (did you mean "{shown(close)}"?)' for close in close_to(name, [*contexts])[:1]
        )
        raise CannotCall(f"{files} has {what}; there are: {names}{hint}", refused=True)
    own = contexts[name]
    cluster, user = own.text("cluster"), own.text("user")
    return Context(
        name,
        own.text("namespace") or "default",
        _named(_merged(every, "cluster"), cluster, own, "cluster"),
        _named(_merged(every, "user"), user, own, "user") if user else Entry({}, "", own.file),
        user,
    )


def _named(entries: Mapping[str, Entry], name: str, context: Entry, field: str) -> Entry:
    if not name:
        raise CannotCall(f"{context.owner} in {context.file} names no {field}", refused=True)
    if name not in entries:
        text = f"refers to {field} {shown(name)}, which is not defined there"
        raise CannotCall(f"{context.owner} in {context.file} {text}", refused=True)
    return entries[name]


def _merged(files: Iterable[Entry], kind: str) -> dict[str, Entry]:
    """The contexts, clusters or users of files, by their names. The first one with a name counts.
    kind: the singular."""
    found: dict[str, Entry] = {}
    for file in files:
        for one in file.parts(f"{kind}s"):
            name = one.text("name")
            fields = one.part(kind) or Entry({}, "", file.file)
            found.setdefault(name, Entry(fields.fields, f"{kind} {shown(name)}", file.file))
    return found


def _read(path: Path) -> Entry:
    try:
        # like kubectl, of several documents the first
        found = next(yaml.safe_load_all(bounded(path, _MOST_OF_FILE)), None)
    except OSError as error:
        raise CannotCall(f"{path} cannot be read: {error.strerror}", refused=True) from None
    except Exception as error:  # noqa: BLE001  also of dates and the like; texts quote the file
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1})"
        raise CannotCall(f"{path} is not YAML{where}", refused=True) from None
    if found is not None and not isinstance(found, Mapping):
        raise CannotCall(f"{path} is no configuration of kubectl", refused=True)
    return Entry(found or {}, "the configuration", path)
