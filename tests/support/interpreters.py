"""Other versions of Python on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

_ASK = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"


def python(version: str) -> str:
    """The interpreter of this version (`3.9`); without one, the test is skipped."""
    found = _find(version)
    if found is None:
        pytest.skip(f"there is no Python {version}")
    return found


@cache
def _find(version: str) -> str | None:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    of_pyenv = sorted(map(str, root.glob(f"versions/{version}.*/bin/python")))
    candidates = [shutil.which(f"python{version}"), *of_pyenv]
    return next((path for path in candidates if path and _version(path) == version), None)


def _version(path: str) -> str:
    """What an interpreter says; "" if it is only a wrapper of one that is not there."""
    return subprocess.run([path, "-c", _ASK], check=False, capture_output=True, text=True).stdout
