"""A notebook shows a run while a cell waits for it, in a real kernel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import muster
from muster.client import progress
from muster.client.progress import Shown, latest_lines
from muster.errors import StoreError

CELLS = {
    "wait": """
import muster
script = "echo '<i>one</i>'; sleep 1.5; printf 'two\\\\rthree\\\\n'"
run = muster.run(command=["sh", "-c", script], nodes=2)
run.wait()
""",
    "shown": "print(*seen, sep='; ')",
    "silent": "run.wait(progress=False)",
    "table": "muster.runs()",
    "thread": "import threading; t = threading.Thread(target=run.wait); t.start(); t.join()",
    "await": "(await muster.run(command=['true']).wait_async()).state",
    "timeout": "muster.run(command=['sleep', '1000'], name='long').wait(0.2)",
}
#: Remembers what is shown from time to time.
WATCH = """
from muster.client.progress import Shown, _Widget
seen = []
class Watched(Shown):
    def __init__(self, run):
        super().__init__(run)
        seen.append(f"{self.reached}/{self.total} {self.output}")
import muster.client.progress
muster.client.progress.Shown = Watched
"""


def execute(folder: Path, cells: dict[str, str], prologue: str) -> dict[str, list[Any]]:
    """The outputs of each cell."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient").NotebookClient
    pytest.importorskip("ipykernel")
    sources = [prologue, *cells.values()]
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, sources)])
    client(
        notebook, timeout=60, allow_errors=True, resources={"metadata": {"path": folder}}
    ).execute()
    return dict(zip(cells, (cell.outputs for cell in notebook.cells[1:]), strict=True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("widgets", [True, False], ids=["ipywidgets", "HTML"])
def test_a_cell_that_waits_shows_the_progress(tmp_path: Path, widgets: bool) -> None:
    if widgets:
        pytest.importorskip("ipywidgets")
    hide = "import sys; sys.modules['ipywidgets'] = None"
    found = execute(tmp_path, CELLS, WATCH if widgets else WATCH + hide)

    live, result = found["wait"]
    html = live["data"]["text/html"]
    assert "SUCCEEDED" in html and "2 SUCCEEDED" in html
    assert "&lt;i&gt;one&lt;/i&gt;" in html and "[1] three" in html and "two" not in html
    assert "SUCCEEDED: nodes 2 SUCCEEDED" in live["data"]["text/plain"]
    assert result["output_type"] == "execute_result" and "<table>" in result["data"]["text/html"]
    seen = found["shown"][0]["text"]
    assert "; 2/2 [" in seen and "three" in seen
    assert seen.index("<i>one</i>") < seen.index("three"), "it was shown while the run continued"
    assert [each["output_type"] for each in found["silent"]] == ["execute_result"]
    assert "<table>" in found["table"][0]["data"]["text/html"]
    assert found["thread"] == []
    assert found["await"][0]["data"]["text/plain"] == "'SUCCEEDED'"
    still, error = found["timeout"]
    assert "long-1" in still["data"]["text/html"] and "SUCCEEDED" not in still["data"]["text/html"]
    assert error["ename"] == "TimeoutError"
    muster.get_run("long-1").cancel().wait(60)


def test_a_plain_program_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert muster.run(command=["true"]).wait(60).state == "SUCCEEDED"
    assert capfd.readouterr() == ("", "")


def test_the_latest_lines_are_what_a_terminal_would_show() -> None:
    script = r"printf '\033[32mgreen\033[0m\n10%%\r20%%\r\n%0200d\nno end' 7"
    run = muster.run(command=["sh", "-c", script]).wait(60)
    assert latest_lines(run) == ["green", "20%", "0" * 159 + "…", "no end"]
    assert repr(Shown(run)).startswith(f"{run.name} SUCCEEDED: nodes 1 SUCCEEDED, time ")


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Pretends that this process is the kernel of a notebook without ipywidgets. What it shows."""
    pytest.importorskip("IPython.display")
    found: list[Any] = []

    def display(first: object, *, display_id: bool) -> SimpleNamespace:
        found.append(first)
        return SimpleNamespace(update=found.append)

    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(progress, "_has_widgets", lambda: False)
    monkeypatch.setattr(progress, "_INTERVAL", 0.02)
    return found


def test_trouble_with_the_progress_does_not_end_the_wait(
    displayed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def damaged_later(run: muster.JobRun) -> list[str]:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise StoreError("the log is damaged")
        return ["once"]

    monkeypatch.setattr(progress, "latest_lines", damaged_later)
    assert muster.run(command=["sleep", "0.2"]).wait(60).state == "SUCCEEDED"
    assert calls > 2
    assert [each.output for each in displayed] == ["once"]


def test_a_wait_without_progress_shows_nothing(displayed: list[Any]) -> None:
    run = muster.run(command=["true"]).wait(60, progress=False)
    with ThreadPoolExecutor() as pool:  # nothing tells which cell started a thread
        pool.submit(run.wait, 60).result()
    assert displayed == []
    assert run.wait(60).state == "SUCCEEDED"
    assert [repr(each).partition(",")[0] for each in displayed] == [
        "true-1 SUCCEEDED: nodes 1 SUCCEEDED"
    ] * 2
