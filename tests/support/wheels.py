"""Packages to install, built by the test without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str, code: str, needs: str = "") -> Path:
    """A package of one module, with a script of the same name that calls its `main`."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    names = [*files, f"{info}/RECORD"]
    files[f"{info}/RECORD"] = "".join(f"{one},,\n" for one in names)
    with zipfile.ZipFile(path, "w") as archive:
        for one, text in files.items():
            archive.writestr(one, text)
    return path


#: The build of a package that takes its time: it says who it is, and waits for a file.
_SLOW = """
import os, shutil, time
def build_wheel(folder, config_settings=None, metadata_directory=None):
    open({started!r}, "w").write(str(os.getpid()))
    while not os.path.exists({go!r}):
        time.sleep(0.02)
    return os.path.basename(shutil.copy({wheel!r}, folder))
"""
_PROJECT = """
build-system = {requires = [], build-backend = "backend", backend-path = ["."]}
project = {name = "slow", version = "1.0"}
"""


def slow_package(folder: Path, name: str, started: Path, go: Path) -> Path:
    """The source of a package whose build writes its pid to a file, and waits for another one."""
    source = folder / name
    source.mkdir()
    names = {"started": str(started), "go": str(go), "wheel": str(wheel(folder, name, "1.0", ""))}
    (source / "backend.py").write_text(_SLOW.format(**names))
    (source / "pyproject.toml").write_text(_PROJECT.replace("slow", name))
    return source
