"""What programs on a node's host need of it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from muster.engines.node_program import node_program
from muster.node.host_programs import inherited, provide_modules, provide_short, remove_short

SHOW = "import muster, muster.node.ray, sys; print(muster.__version__, muster.node.__file__)"


def test_what_belongs_to_a_connection_is_not_inherited() -> None:
    environ = {
        **{"PATH": "/bin", "HOME": "/home/me", "LC_ALL": "C", "SSHD": "x", "XDG_CONFIG_HOME": "/c"},
        **{"SSH_CONNECTION": "a", "MUSTER_HOME": "b", "PWD": "/", "XDG_SESSION_ID": "3"},
    }
    kept = ["PATH", "HOME", "LC_ALL", "SSHD", "XDG_CONFIG_HOME"]
    assert inherited(environ) == {name: environ[name] for name in kept}


def test_an_installed_muster_provides_its_node_modules_only(tmp_path: Path) -> None:
    modules = provide_modules(str(tmp_path), "1.2")
    assert modules == provide_modules(str(tmp_path), "1.2") == str(tmp_path / "modules")
    _expect(modules, "1.2", Path(modules))


@pytest.mark.parametrize("unpacked", [True, False])
def test_the_node_program_provides_its_modules(tmp_path: Path, unpacked: bool) -> None:
    program, folder = tmp_path / "muster-node.pyz", tmp_path / "folder"
    program.write_bytes(node_program())
    if unpacked:
        with zipfile.ZipFile(program) as archive:
            archive.extractall(tmp_path / "there")
        program = tmp_path / "there"
    show = "import sys; sys.path.insert(0, sys.argv[1]); from muster.node import host_programs; "
    show += "print(host_programs.provide_modules(sys.argv[2], '3.4'), end='')"
    argv = [sys.executable, "-I", "-S", "-c", show, str(program), str(folder)]
    modules = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert modules == str(program if unpacked else folder / "modules")
    if not unpacked:
        _expect(modules, "3.4", folder)


def _expect(modules: str, version: str, folder: Path) -> None:
    argv = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {modules!r}); {SHOW}",
    ]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    assert shown[0] == version
    assert Path(shown[1]).is_relative_to(folder)


def test_a_long_folder_has_a_short_path_until_it_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 10)
    folder.mkdir()
    short = provide_short(str(folder))
    assert len(short) < 25
    assert Path(short).resolve() == folder
    assert provide_short(str(folder)) == short, "a server that takes over uses the same"
    Path(short).unlink()
    other = provide_short(str(folder))
    assert Path(other).resolve() == folder
    remove_short(str(folder))
    assert not Path(other).is_symlink()
    remove_short(str(folder))
    assert provide_short("/n") == "/n"
