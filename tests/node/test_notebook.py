"""Notebooks, executed by the node's program as an engine would start it, with real kernels."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from muster.node import error_file

PROGRAM = Path(error_file.__file__).with_name("notebook.py")
MINUTE = 120  # seconds; kernels are slow to come up on a busy machine

needs_nbclient = pytest.mark.skipif(
    find_spec("nbclient") is None or find_spec("ipykernel") is None,
    reason="nbclient or ipykernel is not installed",
)
pytestmark = needs_nbclient


def cell(source: str, *tags: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": f"cell-{len(source)}",
        "metadata": {"tags": list(tags)} if tags else {},
        "source": source,
        "outputs": [{"output_type": "stream", "name": "stdout", "text": "from before"}],
        "execution_count": 9,
    }


def write(path: Path, *cells: dict[str, Any], **metadata: Any) -> Path:
    text = {"cell_type": "markdown", "id": "text", "metadata": {}, "source": "# Title"}
    data = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": [text, *cells]}
    path.write_text(json.dumps(data))
    return path


def start(path: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "MUSTER_OUTPUTS": str(path.parent / "outputs"),
        "RANK": "3",
        error_file.VARIABLE: str(path.parent / "error.json"),
        **env,
    }
    pipe = subprocess.PIPE
    argv = [sys.executable, str(PROGRAM), path.name, *args]
    return subprocess.Popen(argv, cwd=path.parent, env=environ, stdout=pipe, stderr=pipe, text=True)


def execute(path: Path, *args: str, **env: str) -> tuple[int, str, str]:
    with start(path, *args, **env) as program:
        out, err = program.communicate(timeout=MINUTE)
        return program.returncode, out, err


def kept(path: Path) -> list[dict[str, Any]]:
    """The code cells of the executed notebook."""
    data = json.loads((path.parent / "outputs" / "rank-3" / path.name).read_text())
    return [one for one in data["cells"] if one["cell_type"] == "code"]


def texts(one: dict[str, Any]) -> str:
    return "".join("".join(o.get("text", "")) for o in one["outputs"])


def test_it_runs_and_is_kept(tmp_path: Path) -> None:
    book = write(
        tmp_path / "a.ipynb",
        cell("import os, sys\nprint('rank', os.environ['RANK'], sys.argv[1:])"),
        cell("6 * 7"),
        cell("raise SystemError", "skip", "other"),
    )
    code, out, err = execute(book, "--lr", "0.1", NOTEBOOK_EXCLUDE_TAGS='["skip"]')

    assert (code, out, err) == (0, "rank 3 ['--lr', '0.1']\n42\n", "")
    first, second, third = kept(book)
    assert texts(first) == "rank 3 ['--lr', '0.1']\n"
    assert second["outputs"][0]["data"]["text/plain"] in ("42", ["42"])
    assert (third["outputs"], third["execution_count"]) == ([], None)
    assert (tmp_path / "outputs" / "rank-3" / "a.ipynb").stat().st_mode & 0o777 == 0o600


def test_a_cell_that_fails(tmp_path: Path) -> None:
    fails = "def f():\n    raise ValueError('boom')\nf()"
    book = write(tmp_path / "a.ipynb", cell("print('one')"), cell(fails), cell("print('no')"))

    code, out, err = execute(book)

    assert (code, out) == (1, "one\n")
    assert "ValueError: boom" in err
    noted = error_file.read(str(tmp_path / "error.json"))
    assert noted is not None and noted.at is not None
    first, *_, last = noted.message.splitlines()
    assert (first, last) == ("cell 3 of a.ipynb (In [2]) failed", "ValueError: boom")
    assert "\x1b" not in noted.message + err
    assert [texts(one) for one in kept(book)] == ["one\n", "", ""]
    assert kept(book)[1]["outputs"][0]["ename"] == "ValueError"


def test_a_cell_that_may_fail(tmp_path: Path) -> None:
    book = write(tmp_path / "a.ipynb", cell("1 / 0", "raises-exception"), cell("print('on')"))
    code, out, _ = execute(book)
    assert (code, out) == (0, "on\n")


def test_a_long_traceback_keeps_its_place_and_its_end(tmp_path: Path) -> None:
    book = write(tmp_path / "a.ipynb", cell("raise ValueError('x' * 10000 + '\\nthe end')"))
    execute(book)
    noted = error_file.read(str(tmp_path / "error.json"))
    assert noted is not None
    assert noted.message.startswith("cell 2 of a.ipynb (In [1]) failed\n...\n")
    assert noted.message.endswith("the end")


def test_the_kernel_dies(tmp_path: Path) -> None:
    dies = "print('one', flush=True)\nimport os, time\ntime.sleep(1)\nos.kill(os.getpid(), 9)"
    book = write(tmp_path / "a.ipynb", cell("print('zero')"), cell(dies))

    code, out, _ = execute(book)

    assert code == 137
    assert out == "zero\none\n"
    noted = error_file.read(str(tmp_path / "error.json"))
    assert noted is not None
    assert noted.message == (
        "cell 3 of a.ipynb: the kernel died of SIGKILL, perhaps for want of memory"
    )
    assert texts(kept(book)[0]) == "zero\n"


WAITS = """
import signal, time
def save(*_):
    print('saves', flush=True)
signal.signal(signal.SIGUSR1, save)
try:
    print('waits', flush=True)
    while True:
        time.sleep(0.1)
finally:
    print('tidies up')
"""


def test_signals_reach_the_cell(tmp_path: Path) -> None:
    book = write(tmp_path / "a.ipynb", cell(WAITS))
    with start(book) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waits\n"  # as it comes, not when the cell is over
        program.send_signal(signal.SIGUSR1)
        assert program.stdout.readline() == "saves\n"
        program.send_signal(signal.SIGTERM)
        out, _ = program.communicate(timeout=MINUTE)
        assert (program.returncode, out) == (143, "tidies up\n")
    assert texts(kept(book)[0]) == "waits\nsaves\ntidies up\n"


def test_an_earlier_life_s_notebook_stays(tmp_path: Path) -> None:
    book = write(tmp_path / "a.ipynb", cell("print('first')"))
    execute(book)
    write(book, cell("print('second')"))
    execute(book)
    folder = tmp_path / "outputs" / "rank-3"
    assert sorted(path.name for path in folder.iterdir()) == ["a.1.ipynb", "a.ipynb"]
    assert "first" in (folder / "a.1.ipynb").read_text()
    assert texts(kept(book)[0]) == "second\n"


def test_modules_beside_it_are_found_and_ours_are_not(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "beside.py").write_text("word = 'beside'")
    source = "import beside, importlib.util as u\nprint(beside.word, u.find_spec('last_words'))"
    book = write(tmp_path / "sub" / "a.ipynb", cell(source))
    assert execute(book)[:2] == (0, "beside None\n")


def test_another_python_s_kernel_is_not_asked(tmp_path: Path) -> None:
    name = {"name": "conda-env-of-somebody", "language": "python", "display_name": "x"}
    book = write(tmp_path / "a.ipynb", cell("import sys\nprint(sys.executable)"), kernelspec=name)
    assert execute(book)[:2] == (0, f"{sys.executable}\n")


def test_a_language_that_is_not_here(tmp_path: Path) -> None:
    name = {"name": "no-such-language", "language": "fortran", "display_name": "x"}
    book = write(tmp_path / "a.ipynb", cell("END"), kernelspec=name)
    code, _, err = execute(book)
    assert code == 1
    assert err == "a.ipynb wants the kernel 'no-such-language', which is not here\n"


def test_a_python_without_nbclient(tmp_path: Path) -> None:
    book = write(tmp_path / "a.ipynb", cell("1"))
    argv = [sys.executable, "-S", "-E", str(PROGRAM), str(book)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("a notebook needs nbformat, which ")
    assert "pip install nbclient ipykernel" in done.stderr
