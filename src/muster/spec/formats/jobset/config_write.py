"""Write files with given content as ConfigMaps, and secrets as Secrets, beside a JobSet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from muster.spec.formats.jobset.name_rules import kubernetes_label
from muster.spec.formats.notes import Loss
from muster.spec.models import JobSpec, Mount, MountFile
from muster.spec.placeholders import OF_SECRET, fill, pieces, placeholders

_NOT_IN_KEYS = re.compile(r"[^-._a-zA-Z0-9]")
_DEFAULT_MODE = "0644"


def secret_ref(jobset: str, name: str) -> dict[str, str]:
    """The name of the Secret, and the key in it, of a secret of the job. jobset: its name.

    The secrets of a job that was read from a manifest are called SECRET.KEY.
    """
    secret, _, key = name.partition(".")
    if key and secret == kubernetes_label(secret):
        return {"name": secret, "key": key}
    return {"name": f"{jobset}-secrets", "key": name}


def whole_secret(template: str) -> str | None:
    """The name of the secret that is all of a template; None if there is more or less in it."""
    parts = list(pieces(template))
    name = parts[0][1] if len(parts) == 1 else None
    return name[len(OF_SECRET) :] if name is not None and name.startswith(OF_SECRET) else None


class WrittenObjects:
    """The ConfigMaps and Secrets of a job. jobset: the JobSet's name."""

    def __init__(self, spec: JobSpec, jobset: str) -> None:
        self._secrets, self._jobset = spec.secrets, jobset
        own = spec.namespace not in (None, "default")
        self._metadata = {"namespace": spec.namespace} if own else {}
        self._maps: dict[str, dict[str, Any]] = {}
        self._binary: set[str] = set()  # secrets that are in base64

    def volume(
        self, mount: Mount, name: str, fields: Mapping[str, str], path: str
    ) -> tuple[dict[str, Any], list[Loss]]:
        """The fields of a volume with a mount's files, and what it loses. name: the volume's.
        fields: template -> field of the pod. path: the mount's, in the spec."""
        losses: list[Loss] = []
        sources: dict[str, list[dict[str, Any]]] = {}
        for file, content in mount.files.items():
            where, item = self._item(name, file, content, fields)
            if where is None:
                why = "is left out: only a whole value can be a file of a pod"
                losses.append(Loss(f"{path}.files.{file}", why))
                continue
            if content.mode != _DEFAULT_MODE:
                item["mode"] = int(content.mode, 8)
            sources.setdefault(where, []).append(item)
        projected = [self._source(where, items) for where, items in sources.items()]
        if not projected:
            return {"emptyDir": {}}, losses
        if len(projected) > 1:
            return {"projected": {"sources": projected}}, losses
        (only,) = projected
        if "secret" in only:
            own = {"secretName": only["secret"]["name"], "items": only["secret"]["items"]}
            return {"secret": own}, losses
        return only, losses

    def _item(
        self, volume: str, file: str, content: MountFile, fields: Mapping[str, str]
    ) -> tuple[str | None, dict[str, Any]]:
        """Which source a file has (`secret:NAME`, `map:NAME`, `pod`), and its item in it."""
        template = (content.text if content.base64 is None else content.base64) or ""
        secret = whole_secret(template)
        if secret is not None:
            ref = secret_ref(self._jobset, secret)
            if content.base64 is not None:
                self._binary.add(secret)
            return f"secret:{ref['name']}", {"key": ref["key"], "path": file}
        if template in fields and fields[template].startswith("metadata."):
            return "pod", {"path": file, "fieldRef": {"fieldPath": fields[template]}}
        if placeholders(template):
            return None, {}
        name = f"{self._jobset}-{volume}"
        data = self._maps.setdefault(name, {})
        field = "data" if content.base64 is None else "binaryData"
        text = fill(template, str) if content.base64 is None else template
        key, number = _NOT_IN_KEYS.sub("_", file), 2
        while any(key in entries for entries in data.values()):
            key, number = f"{key}-{number}", number + 1
        data.setdefault(field, {})[key] = text
        return f"map:{name}", {"key": key, "path": file}

    def _source(self, where: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        kind, _, name = where.partition(":")
        if kind == "pod":
            return {"downwardAPI": {"items": items}}
        return {"secret" if kind == "secret" else "configMap": {"name": name, "items": items}}

    def objects(self) -> Iterator[dict[str, Any]]:
        """The documents. Called after all volumes are written."""
        for name, data in self._maps.items():
            yield self._object("ConfigMap", name, data)
        secrets: dict[str, dict[str, dict[str, str]]] = {}
        for name, value in self._secrets.items():
            ref = secret_ref(self._jobset, name)
            field = "data" if name in self._binary else "stringData"
            fields = secrets.setdefault(ref["name"], {})
            fields.setdefault(field, {})[ref["key"]] = value
        for name, fields in secrets.items():
            yield self._object("Secret", name, fields)

    def _object(self, kind: str, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        metadata = {"name": name, **self._metadata}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}
