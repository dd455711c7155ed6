"""Modules of the node program, run by a Python that has no Muster."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from muster.engines.node_program import node_program
from muster.node.run_module import words_for

SHOW = """
import os, sys
import muster.node
print(sys.argv[1:], sys.path[1:2], muster.node.__file__, os.environ.get("PYTHONPATH"))
"""


@pytest.fixture
def package(tmp_path: Path) -> str:
    """The folder of `muster.node` in an unpacked node program."""
    program = tmp_path / "muster-node.pyz"
    program.write_bytes(node_program())
    with zipfile.ZipFile(program) as archive:
        archive.extractall(tmp_path / "there")
    return str(tmp_path / "there" / "muster" / "node")


def test_a_module_finds_its_package_and_the_folder_in_which_it_starts(
    package: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(SHOW)
    words = words_for(sys.executable, package, "muster.node.requirements")
    words[1:1] = ["-S", "-E"]
    done = subprocess.run(
        [*words, "generic", "mine", "-m", "x"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    where = f"{package}/__init__.py"
    assert done.stdout == f"['-m', 'x'] ['{tmp_path}'] {where} None\n"


def test_modules_of_the_package_do_not_hide_those_of_python(package: str, tmp_path: Path) -> None:
    """Such as `code`, which is also one of ours."""
    (tmp_path / "mine.py").write_text("import code\nprint(code.InteractiveConsole.__name__)\n")
    words = words_for(sys.executable, package, "muster.node.requirements")
    done = subprocess.run(
        [*words, "generic", "mine"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout == "InteractiveConsole\n"
