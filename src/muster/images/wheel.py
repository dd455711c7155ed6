"""Muster as it runs here, as a wheel: what goes into an image.

Made from the installed package itself and not from an index or a source folder, so it is the same
for a release and for an editable installation, needs no network, and the image has the very code
that wrote its recipe. Equal code gives equal bytes, so builders find their layer again.

Source of the format: PyPA, "Binary distribution format".
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from msgspec import Struct

from muster.errors import EngineError

DISTRIBUTION = "muster-jobs"
_TAGS = "Wheel-Version: 1.0\nGenerator: muster\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
#: The first moment a zip file can name.
_THEN = (1980, 1, 1, 0, 0, 0)


class Wheel(Struct, frozen=True):
    name: str
    content: bytes


def wheel_of_this() -> Wheel:
    """The running Muster. Raises EngineError where it is not installed, only on PYTHONPATH."""
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        text = "this Muster is not installed, so nothing says what it needs"
        raise EngineError(f"{text}; pip install it, as an editable one if you like") from None
    root = Path(__file__).parents[1]
    files = {
        f"muster/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith(".")
    }
    name = f"muster_jobs-{installed.version}"
    files[f"{name}.data/scripts/muster"] = files["muster/bin/muster"]
    return _packed(name, files, installed)


def _packed(name: str, files: dict[str, bytes], installed: Distribution) -> Wheel:
    info = f"{name}.dist-info"
    files[f"{info}/METADATA"] = (installed.read_text("METADATA") or "").encode()
    files[f"{info}/WHEEL"] = _TAGS.encode()
    record = "".join(f"{path},{_digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _THEN)
            # installers leave a script as executable as it is here
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return Wheel(f"{name}-py3-none-any.whl", packed.getvalue())


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"
