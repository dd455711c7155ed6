"""Notebooks, executed by the node's program as an engine would start it, with real kernels."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from muster.node import error_file

PROGRAM = Path(error_file.__file__).with_name("notebook.py")
TIMEOUT = 120  # seconds; kernels start slowly on a busy machine

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
        out, err = program.communicate(timeout=TIMEOUT)
        return program.returncode, out, err


def executed_cells(path: Path) -> list[dict[str, Any]]:
    """The code cells of the executed notebook."""
    data = json.loads((path.parent / "outputs" / path.name).read_text())
    return [one for one in data["cells"] if one["cell_type"] == "code"]


def texts(one: dict[str, Any]) -> str:
    return "".join("".join(o.get("text", "")) for o in one["outputs"])


SLOW_AFTER_REPLIES = """
import time
handlers = get_ipython().kernel.shell_handlers
handle = handlers["execute_request"]
async def handle_slowly(*args):
    await handle(*args)
    time.sleep(0.5)
handlers["execute_request"] = handle_slowly
"""


@pytest.mark.parametrize(("last", "expected"), [("6 * 7", 0), ("raise SystemExit(3)", 1)])
def test_a_kernel_that_still_ends_a_request_is_not_interrupted(
    tmp_path: Path, last: str, expected: int
) -> None:
    book = write(tmp_path / "a.ipynb", cell(SLOW_AFTER_REPLIES), cell(last))
    code, _out, err = execute(book)

    assert code == expected, err
    assert "KeyboardInterrupt" not in err


def test_a_notebook_runs_and_is_kept(tmp_path: Path) -> None:
    book = write(
        tmp_path / "a.ipynb",
        cell("import os, sys\nprint('rank', os.environ['RANK'], sys.argv[1:])"),
        cell("6 * 7"),
        cell("raise SystemError", "skip", "other"),
    )
    code, out, err = execute(book, "--lr", "0.1", NOTEBOOK_EXCLUDE_TAGS='["skip"]')

    assert (code, out, err) == (0, "rank 3 ['--lr', '0.1']\n42\n", "")
    first, second, third = executed_cells(book)
    assert texts(first) == "rank 3 ['--lr', '0.1']\n"
    assert second["outputs"][0]["data"]["text/plain"] in ("42", ["42"])
    assert (third["outputs"], third["execution_count"]) == ([], None)
    assert (tmp_path / "outputs" / "a.ipynb").stat().st_mode & 0o777 == 0o600


def test_errors_of_the_kernel_while_it_shuts_down_are_not_shown(tmp_path: Path) -> None:
    breaks = """
        import sys, threading
        usual = sys.stdout.flush
        def flush():
            if threading.current_thread().name == "Control":
                raise OSError("its socket is closed")
            usual()
        sys.stdout.flush = flush
    """
    book = write(tmp_path / "a.ipynb", cell(textwrap.dedent(breaks)), cell("print('end')"))
    assert execute(book) == (0, "end\n", "")


def test_a_failed_cell_fails_the_notebook(tmp_path: Path) -> None:
    fails = "def f():\n    raise ValueError('boom')\nf()"
    book = write(tmp_path / "a.ipynb", cell("print('one')"), cell(fails), cell("print('no')"))

    code, out, err = execute(book)

    assert (code, out) == (1, "one\n")
    assert "ValueError: boom" in err
    error = error_file.read(str(tmp_path / "error.json"))
    assert error is not None and error.raised_at is not None
    first, *_, last = error.message.splitlines()
    assert (first, last) == ("cell 3 of a.ipynb (In [2]) failed", "ValueError: boom")
    assert "\x1b" not in error.message + err
    assert [texts(one) for one in executed_cells(book)] == ["one\n", "", ""]
    assert executed_cells(book)[1]["outputs"][0]["ename"] == "ValueError"


def test_a_cell_that_may_fail_does_not_end_the_notebook(tmp_path: Path) -> None:
    book = write(tmp_path / "a.ipynb", cell("1 / 0", "raises-exception"), cell("print('on')"))
    code, out, _ = execute(book)
    assert (code, out) == (0, "on\n")


def test_a_long_traceback_keeps_its_start_and_end(tmp_path: Path) -> None:
    book = write(tmp_path / "a.ipynb", cell("raise ValueError('x' * 10000 + '\\nthe end')"))
    execute(book)
    error = error_file.read(str(tmp_path / "error.json"))
    assert error is not None
    assert error.message.startswith("cell 2 of a.ipynb (In [1]) failed\n...\n")
    assert error.message.endswith("the end")


def test_a_killed_kernel_fails_the_notebook(tmp_path: Path) -> None:
    dies = """
        import os, time
        print("one", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
    """
    book = write(tmp_path / "a.ipynb", cell("print('zero')"), cell(textwrap.dedent(dies)))

    with start(book) as program:
        assert program.stdout is not None
        # what a kernel has not sent when it is killed is lost
        assert [program.stdout.readline() for _ in range(2)] == ["zero\n", "one\n"]
        (tmp_path / "go").touch()
        out, _ = program.communicate(timeout=TIMEOUT)

    assert (program.returncode, out) == (137, "")
    error = error_file.read(str(tmp_path / "error.json"))
    assert error is not None
    assert error.message == ("cell 3 of a.ipynb: the kernel died of SIGKILL, perhaps out of memory")
    assert texts(executed_cells(book)[0]) == "zero\n"


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
        assert program.stdout.readline() == "waits\n"  # at once, not at the end of the cell
        program.send_signal(signal.SIGUSR1)
        assert program.stdout.readline() == "saves\n"
        program.send_signal(signal.SIGTERM)
        out, _ = program.communicate(timeout=TIMEOUT)
        assert (program.returncode, out) == (143, "tidies up\n")
    assert texts(executed_cells(book)[0]) == "waits\nsaves\ntidies up\n"


def test_the_notebook_of_an_earlier_incarnation_stays(tmp_path: Path) -> None:
    book = write(tmp_path / "a.ipynb", cell("print('first')"))
    execute(book)
    write(book, cell("print('second')"))
    execute(book)
    folder = tmp_path / "outputs"
    assert sorted(path.name for path in folder.iterdir()) == ["a.1.ipynb", "a.ipynb"]
    assert "first" in (folder / "a.1.ipynb").read_text()
    assert texts(executed_cells(book)[0]) == "second\n"


def test_modules_next_to_a_notebook_are_found_and_those_of_muster_are_not(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "helper.py").write_text("word = 'found'")
    source = "import helper, importlib.util as u\nprint(helper.word, u.find_spec('exit_report'))"
    book = write(tmp_path / "sub" / "a.ipynb", cell(source))
    assert execute(book)[:2] == (0, "found None\n")


def test_the_kernel_of_another_python_is_not_used(tmp_path: Path) -> None:
    name = {"name": "conda-env-of-another-user", "language": "python", "display_name": "x"}
    book = write(tmp_path / "a.ipynb", cell("import sys\nprint(sys.executable)"), kernelspec=name)
    assert execute(book)[:2] == (0, f"{sys.executable}\n")


def test_a_missing_kernel_is_reported(tmp_path: Path) -> None:
    name = {"name": "no-such-language", "language": "fortran", "display_name": "x"}
    book = write(tmp_path / "a.ipynb", cell("END"), kernelspec=name)
    code, _, err = execute(book)
    assert code == 1
    assert err == "a.ipynb needs the kernel 'no-such-language', which is not installed\n"


def test_a_missing_nbclient_is_reported(tmp_path: Path) -> None:
    book = write(tmp_path / "a.ipynb", cell("1"))
    argv = [sys.executable, "-S", "-E", str(PROGRAM), str(book)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("a notebook needs nbformat, which ")
    assert "pip install 'muster-jobs[notebook]'" in done.stderr
