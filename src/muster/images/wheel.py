"""Build a wheel of the running Muster, for images.

It is built from the installed package instead of an index or a source folder: this works alike for
releases and editable installations, needs no network, and the image has exactly the code that
wrote its recipe. Equal code gives equal bytes, so builders reuse the layer.

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
#: The earliest time that a zip file can store.
_EPOCH = (1980, 1, 1, 0, 0, 0)


class Wheel(Struct, frozen=True):
    name: str
    content: bytes


def build_wheel() -> Wheel:
    """The wheel. Raises EngineError if Muster is not installed but only on PYTHONPATH."""
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        text = "Muster is not installed, so its dependencies are unknown"
        raise EngineError(f"{text}; pip install it (editable works too)") from None
    root = Path(__file__).parents[1]
    files = {
        f"muster/{path.relative_to(root).as_posix()}": path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith(".")
    }
    name = f"muster_jobs-{installed.version}"
    files[f"{name}.data/scripts/muster"] = files["muster/bin/muster"]
    return _pack(name, files, installed)


def _pack(name: str, files: dict[str, bytes], installed: Distribution) -> Wheel:
    info = f"{name}.dist-info"
    files[f"{info}/METADATA"] = (installed.read_text("METADATA") or "").encode()
    files[f"{info}/WHEEL"] = _TAGS.encode()
    record = "".join(f"{path},{_digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _EPOCH)
            # installers keep the executable bit of scripts
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return Wheel(f"{name}-py3-none-any.whl", packed.getvalue())


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"
