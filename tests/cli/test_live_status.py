"""The live lines of `muster run` on a real pseudo-terminal."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from muster.cli.live_area import LiveArea
from muster.cli.run_status import clock, nodes_text, step
from support.terminals import Screen, Terminal, on_terminal

#: Draws a progress bar without a newline, waits for a file, and completes the bar.
BAR = """
import os, sys, time
rank = os.environ["NODE_RANK"]
print("epoch 3/10", flush=True)
sys.stderr.write("\\r 10%|#    | of " + rank + "\\r 50%|##   | of " + rank)
sys.stderr.flush()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
sys.stderr.write("\\r100%|#####| of " + rank + "\\n")
print("日本" * 60, "\\x1b[31mred\\x1b[5A\\x1b[2J", flush=True)
"""


def status(screen: Screen) -> str:
    return screen.lines[-1]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_status_is_below_the_output(tmp_path: Path, columns: int) -> None:
    (tmp_path / "bar.py").write_text(BAR)
    go = tmp_path / "go"
    run = on_terminal("run", "bar.py", "--nodes", "2", "--", str(go), cwd=tmp_path, columns=columns)
    run.read_until(lambda s: sum("50%|##" in line for line in s.lines) == 2 and "2/2" in status(s))
    *output, first, second, last = run.screen.lines
    assert output[0] == "bar-1 starts 2 nodes"
    assert sorted(output[1:]) == ["workers/0 | epoch 3/10", "workers/1 | epoch 3/10"]
    assert (first, second) == (
        "workers/0 | 50%|##   | of 0",
        "workers/1 | 50%|##   | of 1",
    )
    assert re.match(r"bar-1 RUNNING 2/2 nodes ready · 0:\d\d", last) or columns == 40
    assert ("epoch 3/10 30%" in last) is (columns >= 80)
    go.touch()
    assert run.end() == 0
    text = "".join(line.ljust(columns) for line in run.screen.lines)
    assert "RUNNING" not in text, "the status line is gone"
    assert "50%" not in text, "only the last state of a bar is kept"
    for rank in (0, 1):
        assert f"workers/{rank} ! 100%|#####| of {rank}" in run.screen.lines
    assert re.match(r"bar-1 SUCCEEDED in \d", run.screen.lines[-1])
    assert b"\x1b[31mred" in run.raw
    assert b"\x1b[5A" not in run.raw
    assert set(re.findall(rb"\x1b\[[0-9;?]*([A-Za-z])", run.raw)) <= {b"m", b"A", b"J"}
    assert b"\x1b[2J" not in run.raw


def test_ctrl_c_erases_the_status(tmp_path: Path) -> None:
    run = on_terminal("run", "--", "sh", "-c", "echo up; exec sleep 1000", cwd=tmp_path)
    run.read_until(lambda s: "RUNNING 1/1 node ready" in status(s) and "workers/0 | up" in s.lines)
    run.type("\x03")
    run.read_until(lambda s: any("Ctrl-C again" in line for line in s.lines))
    run.type("\x03")
    assert run.end() == 3
    first = run.screen.lines.index("sh-1 starts 1 node")
    assert run.screen.lines[first : first + 3] == [
        "sh-1 starts 1 node",
        "workers/0 | up",
        "Press Ctrl-C again within 5 s to cancel sh-1, or Enter to detach at once.",
    ]
    text = "\n".join(run.screen.lines)
    assert "RUNNING" not in text
    assert "sh-1 CANCELED" in text


@pytest.mark.parametrize("how", ["TERM=dumb", "a pipe"])
def test_there_is_no_status_where_it_could_not_be_erased(tmp_path: Path, how: str) -> None:
    script = "sleep 0.5; echo out; echo err >&2"
    if how == "a pipe":
        command = f"{sys.executable} -m muster run -- sh -c '{script}' | cat"
        environ = {**os.environ, "TERM": "xterm"}
        run = Terminal(["sh", "-c", command], env=environ, cwd=str(tmp_path))
    else:
        run = on_terminal("run", "--", "sh", "-c", script, cwd=tmp_path, TERM="dumb")
    assert run.end() == 0
    assert b"RUNNING" not in run.raw
    assert b"\x1b[J" not in run.raw
    assert (b"\x1b[" in run.raw) is (how == "a pipe"), "only the name on stderr has a colour"
    assert sorted(run.screen.lines)[-2:] == ["workers/0 ! err", "workers/0 | out"]


def test_the_status_is_shown_while_output_goes_to_a_file(tmp_path: Path) -> None:
    script = "echo out; while ! [ -e go ]; do sleep 0.01; done"
    command = f"{sys.executable} -m muster run -- sh -c 'cd {tmp_path}; {script}' > log"
    run = Terminal(["sh", "-c", command], env={**os.environ, "TERM": "xterm"}, cwd=str(tmp_path))
    run.read_until(lambda s: "RUNNING 1/1 node ready" in status(s))
    (tmp_path / "go").touch()
    assert run.end() == 0
    assert (tmp_path / "log").read_bytes() == b"workers/0 | out\n"


def test_colors_and_symbols_depend_on_the_terminal(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "NO_COLOR": "1"}
    script = "until [ -e $0 ]; do sleep 0.01; done"
    go = tmp_path / "go"
    run = on_terminal("run", "--", "sh", "-c", script, str(go), cwd=tmp_path, **ascii_only)
    run.read_until(lambda s: "RUNNING 1/1 node ready - 0:" in status(s))
    go.touch()
    assert run.end() == 0
    assert run.raw.isascii()
    assert not re.search(rb"\x1b\[[\d;]*m", run.raw)


def test_lines_that_a_narrower_terminal_has_wrapped_are_erased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = {"columns": 60}
    monkeypatch.setattr(
        "muster.cli.live_area._size", lambda: os.terminal_size((size["columns"], 24))
    )
    monkeypatch.setattr("muster.cli.live_area._in_foreground", lambda: True)
    written: list[str] = []
    monkeypatch.setattr(LiveArea, "_write", lambda _, text: written.append(text))
    area = LiveArea()
    area.draw([[("x" * 50, "")], [("y" * 10, "bold")]])
    screen = Screen(20)  # it wraps the first line to three
    screen.feed("above\r\n" + "".join(written))
    assert screen.lines == ["above", "x" * 20, "x" * 20, "x" * 10, "y" * 10]
    size["columns"] = 20
    written.clear()
    area.draw([[("z" * 50, "")]])
    screen.feed("".join(written))
    assert screen.lines == ["above", "z" * 18 + "…"]
    written.clear()
    area.erase()
    area.erase()
    screen.feed("".join(written))
    assert screen.lines == ["above"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (7.9, "0:07"), (84, "1:24"), (7384, "2:03:04"), (-1, "0:00")],
)
def test_the_running_time(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("states", "text"),
    [
        (["READY"], "1/1 node ready"),
        (["READY", "RUNNING", "PENDING"], "1/3 nodes ready"),
        (["READY", "SUCCEEDED", "FAILED"], "1/3 nodes ready, 1 succeeded, 1 failed"),
    ],
)
def test_the_nodes(states: list[str], text: str) -> None:
    assert nodes_text(states) == text


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (b"Epoch 3/10\n", "epoch 3/10 30%"),
        (b"epoch 1/4 loss=2\nstep: 20 of 100\n", "step 20/100 20%"),
        (b"Epoch [2/5], Step [100/600]\n", "step 100/600 16%"),
        (b"epoch 3\n", ""),
        (b"epochs 3/0\n", "epoch 3/0"),
        (b"epoch 1/10\n" + b"x" * 1000, ""),
    ],
)
def test_how_far_a_program_is(output: bytes, text: str) -> None:
    assert step(output) == text
