"""Files of pods on this machine, and how their paths in containers become paths here."""

from __future__ import annotations

import os
import re
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support.kube.objects import Obj
from support.kube.storage import Storage
from support.kube.users import give_file, give_folder

#: What a path may go on with, or end with.
_NAME = r"[\w.\-]"


class NotMounted(Exception):  # noqa: N818
    """A volume is not there yet; the text says why, as the kubelet does."""


class Paths:
    """Paths in a container -> paths on this machine."""

    def __init__(self, mounts: Mapping[str, str]) -> None:
        self.mounts = dict(mounts)
        paths = sorted((re.escape(path) for path in mounts if path != mounts[path]), key=len)
        pattern = "|".join(reversed(paths))
        self._found = re.compile(rf"(?<!{_NAME})(?<!/)({pattern})(?!{_NAME})") if paths else None

    def translate(self, text: str) -> str:
        """A word of a command, or a variable, with every path in it."""
        if self._found is None:
            return text
        return self._found.sub(lambda found: self.mounts[found[1]], text)


class Volumes:
    """The volumes of one pod, below a folder of its own. claims: where those of claims are."""

    def __init__(self, storage: Storage, pod: Obj, folder: Path, claims: Path) -> None:
        self._storage, self._pod, self._folder, self._claims = storage, pod, folder, claims
        self._namespace = pod["metadata"]["namespace"]
        self._group: int | None = (pod["spec"].get("securityContext") or {}).get("fsGroup")

    def mount(self) -> dict[str, Path]:
        """Volume -> its folder. Raises NotMounted."""
        return {one["name"]: self._place(one) for one in self._pod["spec"].get("volumes", ())}

    def _place(self, volume: Obj) -> Path:
        folder: Path = self._folder / volume["name"]
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        if claim := volume.get("persistentVolumeClaim"):
            return self._claim(volume["name"], claim["claimName"])
        if folder.exists():
            return folder
        files = self._files(volume)
        folder.mkdir(parents=True)
        if files is not None:
            _write(folder, files, self._group)
        else:
            folder.chmod(0o777)
            give_folder(folder, self._group)
        return folder

    def _claim(self, volume: str, name: str) -> Path:
        if self._storage.find("persistentvolumeclaims", self._namespace, name) is None:
            raise NotMounted(f'persistentvolumeclaim "{name}" not found')
        folder: Path = self._claims / self._namespace / name
        folder.mkdir(parents=True, exist_ok=True)
        give_folder(folder, self._group)
        return folder

    def _files(self, volume: Obj) -> dict[str, tuple[bytes, int]] | None:
        """File -> content and mode; None: it is an empty folder."""
        sources = [volume]
        if "projected" in volume:
            sources = volume["projected"].get("sources", [])
        found: dict[str, tuple[bytes, int]] = {}
        known = False
        for source in sources:
            for kind, plural, field in (
                ("configMap", "configmaps", "name"),
                ("secret", "secrets", "secretName"),
            ):
                given = source.get(kind)
                if given is not None:
                    known = True
                    name = given.get(field) or given.get("name")
                    found |= self._content(volume["name"], plural, name, given)
        return found if known else None

    def _content(
        self, volume: str, plural: str, name: str, given: Obj
    ) -> dict[str, tuple[bytes, int]]:
        obj = self._storage.find(plural, self._namespace, name)
        if obj is None:
            if given.get("optional"):
                return {}
            kind = plural.removesuffix("s")
            text = f'MountVolume.SetUp failed for volume "{volume}" : {kind} "{name}" not found'
            raise NotMounted(text)
        content = content_of(obj)
        mode = given.get("defaultMode", 0o644)
        if "items" not in given:
            return {key: (value, mode) for key, value in content.items()}
        made = {}
        for item in given["items"]:
            if item["key"] not in content:
                text = f"references non-existent config key: {item['key']}"
                raise NotMounted(f'MountVolume.SetUp failed for volume "{volume}" : {text}')
            made[item["path"]] = (content[item["key"]], item.get("mode", mode))
        return made


def content_of(obj: Obj) -> dict[str, bytes]:
    """The files of a ConfigMap or a Secret."""
    coded: dict[str, str] = obj.get("binaryData") or {}
    plain: dict[str, str] = obj.get("data") or {}
    if obj["kind"] == "Secret":
        coded, plain = plain, {}
    found = {key: text.encode() for key, text in plain.items()}
    return found | {key: b64decode(text) for key, text in coded.items()}


def _write(folder: Path, files: Mapping[str, tuple[bytes, int]], group: int | None) -> None:
    """As the kubelet does: files are links into a folder that is replaced as a whole. group:
    fsGroup."""
    stamp = time.strftime("..%Y_%m_%d_%H_%M_%S.%f")
    inner = folder / stamp
    inner.mkdir()
    for name, (content, mode) in files.items():
        path = inner / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        give_file(path, mode, group)
    os.symlink(stamp, folder / "..data")
    for name in {name.split("/")[0] for name in files}:
        os.symlink(f"..data/{name}", folder / name)


def paths_of(
    container: Mapping[str, Any],
    volumes: Mapping[str, Path],
    expand: Callable[[str], str],
    hosts: Path,
) -> Paths:
    """The paths of a container. /dev/shm stays this machine's. expand: replaces variables of the
    container, see `subPathExpr`. hosts: the hosts file of the pod."""
    found = {"/etc/hosts": str(hosts)}
    for mount in container.get("volumeMounts", ()):
        place, path = volumes[mount["name"]], mount["mountPath"].rstrip("/")
        if sub := mount.get("subPath") or expand(mount.get("subPathExpr", "")):
            place = place / sub
            if not place.exists():
                place.mkdir(parents=True)
        if path != "/dev/shm":
            found[path] = str(place)
    return Paths(found)
