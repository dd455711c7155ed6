"""Rules for the files of mounts whose content is given. Pure."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from muster.errors import Problem
from muster.spec.models import Mount
from muster.spec.placeholders import OF_SECRET, placeholders
from muster.spec.wording import short, suggestion

#: Maximum bytes of the files of a mount (Kubernetes: of a ConfigMap).
MAX_FILES = 1 << 20
#: Maximum bytes of all such files of a node: they are sent in one message.
MAX_OF_NODE = 2 << 20


def file_problems(path: str, mount: Mount) -> Iterator[Problem]:
    """Problems of the files of a mount. path: the mount's."""
    files = mount.files
    size = 0
    for name, file in files.items():
        place = f"{path}.files.{name}"
        if (file.text is None) == (file.base64 is None):
            yield Problem(place, "needs exactly one of text and base64", f'write {name}: "..."')
        for parent in PurePosixPath(name).parents:
            if str(parent) in files:
                yield Problem(place, f"{parent} is a file", "rename one of them")
        content = file.text if file.base64 is None else file.base64
        size += len((content or "").encode())
        if file.base64 is not None and "${" not in file.base64 and not is_base64(file.base64):
            yield Problem(f"{place}.base64", "is not base64", f"write what `base64 {name}` prints")
    if size > MAX_FILES:
        text = f"{size:,} bytes in the files of a mount, {MAX_FILES:,} are allowed"
        yield Problem(f"{path}.files", text, "mount a directory")


def missing_part(path: str, mount: Mount) -> Iterator[Problem]:
    """The problem of a part that is none of the files of a mount. path: the mount's."""
    part = mount.sub_path or ""
    if "${" in part or any(f"{name}/".startswith(f"{part}/") for name in mount.files):
        return
    text = f"{short(part)} is none of the files"
    yield Problem(f"{path}.sub_path", text, suggestion(part, mount.files))


def too_much(path: str, mounts: Iterable[Mount], secrets: Mapping[str, str]) -> Iterator[Problem]:
    """More in the files of all mounts of a node than is sent to it."""
    texts = [file.base64 or file.text or "" for mount in mounts for file in mount.files.values()]
    size = sum(len(text.encode()) for text in texts)
    names = [name[len(OF_SECRET) :] for text in texts for name in placeholders(text)]
    size += sum(len(secrets.get(name, "").encode()) for name in names)
    if size > MAX_OF_NODE:
        text = f"{size:,} bytes in the files of all mounts, {MAX_OF_NODE:,} are allowed"
        yield Problem(path, text, "mount a directory")


def is_base64(text: str) -> bool:
    """Whether a text is in base64, which may have line breaks."""
    try:
        b64decode("".join(text.split()), validate=True)
    except ValueError:
        return False
    return True
