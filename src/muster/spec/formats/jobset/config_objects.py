"""ConfigMaps and Secrets in the files of a JobSet or Job.

A value of a Secret is `${secret.NAME.KEY}` in what is made of the manifest, and is itself only in
`JobSpec.secrets`, which is never shown.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from muster.spec.formats.documents import Document
from muster.spec.formats.jobset.references import Value
from muster.spec.models import ExtraContainer, MountFile, NodeGroup
from muster.spec.placeholders import OF_SECRET, literal, placeholders
from muster.spec.wording import Refused, alternatives, close_to, say, short, suggestion

Kind = Literal["ConfigMap", "Secret"]
#: Field with texts, and field with values in base64.
_FIELDS: Mapping[Kind, tuple[str, str]] = {
    "ConfigMap": ("data", "binaryData"),
    "Secret": ("stringData", "data"),
}
_OTHER_FIELDS = ("apiVersion", "kind", "metadata", "immutable", "type")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


class ConfigObject(Struct, frozen=True):
    """A ConfigMap or a Secret."""

    kind: Kind
    name: str
    #: The file and the line where it starts.
    place: str
    texts: Mapping[str, str]
    #: Values that are no text, in base64.
    binary: Mapping[str, str]

    @property
    def keys(self) -> list[str]:
        return [*self.texts, *self.binary]

    def variable(self, key: str) -> Value:
        """The value of a key, for a variable. Raises Refused if it is no text."""
        if key in self.binary:
            text = f"{self.kind} {self.name} ({self.place}): {key} is no text"
            raise Refused(text, "mount it as a file")
        text = self.texts[key]
        return Value(self._placeholder(key), per_node=True) if self.is_secret else Value(text)

    def file(self, key: str, mode: str) -> MountFile:
        """The value of a key, as a file."""
        if key in self.binary:
            text = self._placeholder(key) if self.is_secret else self.binary[key]
            return MountFile(base64=text, mode=mode)
        text = self._placeholder(key) if self.is_secret else literal(self.texts[key])
        return MountFile(text=text, mode=mode)

    @property
    def is_secret(self) -> bool:
        return self.kind == "Secret"

    def _placeholder(self, key: str) -> str:
        return f"${{secret.{self.name}.{key}}}"


class ConfigObjects:
    """The ConfigMaps and Secrets that were found, and which of them are used.

    searched: the names of the files, in messages. in_cluster: whether those that are in no file
    are in the cluster that runs the job, and what only it can do is kept.
    """

    def __init__(self, searched: Iterable[str] = (), *, in_cluster: bool = False) -> None:
        self._searched, self.in_cluster = list(searched), in_cluster
        self._documents: dict[tuple[str, str], list[Document]] = {}
        self._used: set[str] = set()

    def add_file(self, source: str) -> None:
        """A file is searched."""
        self._searched.append(source)

    def add(self, document: Document) -> None:
        """A document of one of the kinds was found."""
        key = str(document.data["kind"]), str(_metadata(document).get("name", ""))
        self._documents.setdefault(key, []).append(document)

    def unused(self) -> list[Document]:
        """The documents to which nothing refers, in the order in which they were found."""
        every = [document for found in self._documents.values() for document in found]
        return [document for document in every if document.place not in self._used]

    def find(self, kind: Kind, name: str, namespace: str, *, optional: bool) -> ConfigObject | None:
        """The object of this name; None if there is none and it is optional. Raises Refused.

        An object without a namespace, or for a job without one (""), is in the same.
        """
        named = self._documents.get((kind, name), [])
        fitting = [one for one in named if _fits(one, namespace)]
        if not fitting and optional:
            return None
        if not fitting:
            raise self._missing(kind, name, namespace, named)
        self._used.update(one.place for one in fitting)
        exact = [one for one in fitting if _metadata(one).get("namespace") == namespace]
        (document, *others) = exact or fitting
        if others:
            places = " and ".join(one.place for one in (document, others[0]))
            raise Refused(f"{kind} {name} is given twice: {places}", "remove one of them")
        return _read(kind, name, document)

    def key(
        self, kind: Kind, name: str, key: str, namespace: str, *, optional: bool
    ) -> Value | None:
        """The value of a key, for a variable; None if it is optional and missing. Raises
        Refused."""
        found = self.find(kind, name, namespace, optional=optional)
        if found is None or (key not in found.keys and optional):
            return None
        if key not in found.keys:
            raise no_key(found, key)
        return found.variable(key)

    def is_in_cluster(self, kind: Kind, name: str) -> bool:
        """Whether only the cluster has an object of this name."""
        return self.in_cluster and bool(name) and (kind, name) not in self._documents

    def secrets(self, templates: Iterable[str], namespace: str) -> dict[str, str]:
        """The values of all secrets of which there are placeholders in these texts, by name. Raises
        Refused."""
        made = {}
        names = dict.fromkeys(name for text in templates for name in placeholders(text))
        for name in names:
            if not name.startswith(OF_SECRET):
                continue
            path = name[len(OF_SECRET) :]
            for kind, secret in self._documents:
                key = path.removeprefix(f"{secret}.")
                if kind != "Secret" or key == path:
                    continue
                found = self.find("Secret", secret, namespace, optional=True)
                if found is None or key not in found.keys:
                    continue
                if path in made:
                    text = f"two Secrets have a value that would be called {path} here"
                    raise Refused(text, "rename one of them")
                made[path] = {**found.texts, **found.binary}[key]
        return made

    def _missing(self, kind: Kind, name: str, namespace: str, named: list[Document]) -> Refused:
        if not name:
            return Refused(f"names no {kind}", "give its name")
        if named:
            there = _metadata(named[0]).get("namespace")
            text = f"{kind} {name} ({named[0].place}) is in namespace {there}, not in {namespace}"
            return Refused(text, "give both the same namespace")
        where = ", ".join(self._searched[:3]) or "this file"
        more = f" and {len(self._searched) - 3} more files" if len(self._searched) > 3 else ""
        known = [other for other_kind, other in self._documents if other_kind == kind]
        close = close_to(name, known)
        hint = f'did you mean "{close[0]}"?' if close else _instead(kind, name)
        return Refused(f"there is no {kind} {short(name)} in {where}{more}", hint)


def _instead(kind: Kind, name: str) -> str:
    command = f"kubectl get {kind.lower()} {name} -o yaml"
    return f"add it to the file, or run a folder with both; `{command}` prints that of a cluster"


def no_key(found: ConfigObject, key: str) -> Refused:
    """A key that an object does not have."""
    text = f"{found.kind} {found.name} ({found.place}) has no key {short(key)}"
    return Refused(text, suggestion(key, found.keys) if found.keys else "it has none")


def _metadata(document: Document) -> Mapping[str, Any]:
    found = document.data.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _fits(document: Document, namespace: str) -> bool:
    own = _metadata(document).get("namespace")
    return not own or not namespace or own == namespace


def _read(kind: Kind, name: str, document: Document) -> ConfigObject:
    """Raises Refused."""
    of_texts, of_binary = _FIELDS[kind]
    where = f"{kind} {name} ({document.place})"
    for field in document.data:
        if field not in (*_OTHER_FIELDS, of_texts, of_binary):
            known = (of_texts, of_binary)
            raise Refused(f"{where} has no field {short(field)}", f"use {alternatives(known)}")
    encoded = _entries(document, of_binary, where, kind)
    texts, binary = {}, {}
    for key, value in encoded.items():
        text = _decoded(value, f"{where}: {of_binary}.{key}")
        if kind == "Secret" and text is not None:
            texts[key] = text
        else:
            binary[key] = "".join(value.split())
    for key, value in _entries(document, of_texts, where, kind).items():
        texts[key] = value
        binary.pop(key, None)  # Kubernetes: stringData overrides data
    return ConfigObject(kind, name, document.place, texts, binary)


def _entries(document: Document, field: str, where: str, kind: Kind) -> dict[str, str]:
    """The entries of a field. Raises Refused, for a Secret without values."""
    entries = document.data.get(field)
    if entries is None:
        return {}
    if not isinstance(entries, Mapping):
        raise Refused(f"{where}: {field} must be a mapping", "write KEY: VALUE")
    made = {}
    for key, value in entries.items():
        place = f"{where}: {field}.{key}"
        if not isinstance(key, str) or not _KEY.fullmatch(key) or key in (".", ".."):
            hint = "use letters, digits, -, _ and ."
            raise Refused(f"{place} is not a valid key", hint)
        if not isinstance(value, str):
            shown = "" if kind == "Secret" else f", not {say(value)}"
            hint = f'put it in quotes: "{say(value)}"' if shown else "put it in quotes"
            raise Refused(f"{place} must be text{shown}", hint)
        if "\0" in value:
            raise Refused(f"{place} contains a NUL character", "encode it in base64")
        made[key] = value
    return made


def _decoded(value: str, place: str) -> str | None:
    """The text that is encoded; None if it is no text. Raises Refused."""
    try:
        data = b64decode("".join(value.split()), validate=True)
    except ValueError:
        raise Refused(f"{place} is not base64", "encode it: base64 FILE") from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def templates_of(group: NodeGroup) -> Iterator[str]:
    """The texts of a group that may have placeholders of secrets."""
    levels: list[NodeGroup | ExtraContainer] = [group, *group.extra_containers]
    for one in levels:
        yield from one.node_env.values()
        yield from one.node_args or ()
        for mount in one.mounts:
            for file in mount.files.values():
                yield file.text or file.base64 or ""
