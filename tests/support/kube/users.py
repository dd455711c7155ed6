"""Whom a container runs as, and how files of its volumes belong to it: of effect where tests run as
root, who alone can become another user."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from support.kube.objects import Obj


class NotCreated(Exception):  # noqa: N818
    """The kubelet refuses to create a container; the text says why, as the kubelet does."""


class ContainerUser(NamedTuple):
    """The user of a container's processes."""

    uid: int
    gid: int
    groups: tuple[int, ...]

    def process_options(self) -> dict[str, Any]:
        """Options of `subprocess.Popen`."""
        if os.geteuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": list(self.groups)}


def user_of(pod: Obj, container: Obj, image_user: int) -> ContainerUser:
    """The container's security context has precedence over that of its pod. image_user: USER of the
    image. Raises NotCreated."""
    of_pod = pod["spec"].get("securityContext") or {}
    both = {**of_pod, **(container.get("securityContext") or {})}
    uid = both.get("runAsUser", image_user)
    if both.get("runAsNonRoot") and uid == 0:
        where = f"(pod: {pod['metadata']['name']!r}, container: {container['name']})"
        if "runAsUser" in both:
            raise NotCreated(f"container's runAsUser breaks non-root policy {where}")
        raise NotCreated(f"container has runAsNonRoot and image will run as root {where}")
    groups = [*of_pod.get("supplementalGroups", ())]
    groups += [of_pod["fsGroup"]] if "fsGroup" in of_pod else []
    return ContainerUser(uid, both.get("runAsGroup", 0), tuple(groups))


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that other users get to, unlike those of pytest."""
    made = Path(tempfile.mkdtemp(prefix="kube-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def give_folder(folder: Path, group: int | None) -> None:
    """An emptyDir, or another volume that can be written: it is root's. group: fsGroup."""
    if os.geteuid() == 0 and group is not None:
        os.chown(folder, 0, group)
        folder.chmod(0o2777 if folder.stat().st_mode & 0o002 else 0o2775)


def give_file(path: Path, mode: int, group: int | None) -> None:
    """A file of a volume with content: it is root's."""
    path.chmod(mode)
    if os.geteuid() == 0 and group is not None:
        os.chown(path, 0, group)
        path.chmod(mode | 0o440)
