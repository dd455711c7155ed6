"""Rules for the files of mounts whose content is given. Pure."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from pathlib import PurePosixPath

from muster.errors import Problem
from muster.spec.models import Mount
from muster.spec.wording import short, suggestion

#: Maximum bytes of the files of a mount (Kubernetes: of a ConfigMap).
MAX_FILES = 1 << 20


def file_problems(path: str, mount: Mount) -> Iterator[Problem]:
    """Problems of the files of a mount. path: the mount's."""
    files, part = mount.files, mount.sub_path
    is_known = part is None or "${" in part or part in files
    if not is_known and not any(name.startswith(f"{part}/") for name in files):
        text = f"{short(part)} is none of the files"
        yield Problem(f"{path}.sub_path", text, suggestion(part or "", files))
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


def is_base64(text: str) -> bool:
    """Whether a text is in base64, which may have line breaks."""
    try:
        b64decode("".join(text.split()), validate=True)
    except ValueError:
        return False
    return True
