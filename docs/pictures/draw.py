"""Draw the terminal pictures of the documentation from real runs: `make pictures`.

Each picture is what a terminal of 80 columns shows after the commands were typed into a shell, in a
folder with a copy of examples/recovery.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import sys
import termios
import time
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COLUMNS, LINES = 80, 60
#: Shown by pictures, so the same on every machine.
FOLDER = Path("/tmp/demo")
PROMPT = "$ "
#: The width of a character in Rich's pictures.
_CELL = 12.2
_INDENTED = re.compile(
    r'x="(?P<x>[\d.]+)" (?P<y>y="[\d.]+") textLength="(?P<length>[\d.]+)" (?P<clip>[^>]*)>'
    r"(?P<spaces>(?:&#160;)+)(?=[^&<\s])"
)


class Picture(NamedTuple):
    name: str
    #: Typed and shown.
    typed: tuple[str, ...]
    #: Typed before and afterwards without being shown.
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


PICTURES = [
    Picture("hello", ("muster run -n 4 -- sh -c 'echo rank $NODE_RANK on $(hostname)'",)),
    Picture("cause", ("muster run train.py -n 4 --mount scratch:run/checkpoints",)),
    Picture("recover", ("muster run job.yaml",)),
    Picture(
        "look",
        ("muster ps", "muster status last", "muster top last --once"),
        before=("muster run job.yaml --detach -- --steps 5000", "sleep 3"),
        after=("muster cancel last",),
    ),
    Picture("simulate", ("muster simulate job.yaml -n 512 --mtbf 2000h --hours 72",)),
]


class Terminal:
    """A shell in a pseudo-terminal, and the screen it draws."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self.screen)
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], env)
        size = struct.pack("HHHH", LINES, COLUMNS, 0, 0)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)
        self._read_until_prompt()

    def type(self, command: str) -> None:
        """Type a command and wait for the next prompt."""
        os.write(self._terminal, f"{command}\n".encode())
        self._read_until_prompt()

    def clear(self) -> None:
        self.screen.reset()
        self._stream.feed(PROMPT.encode())

    def close(self) -> None:
        os.write(self._terminal, b"exit\n")
        os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def _read_until_prompt(self) -> None:
        deadline = time.monotonic() + 120
        quiet = False
        while not (quiet and self._at_prompt()):
            if time.monotonic() > deadline:
                raise TimeoutError("\n".join(self.screen.display))
            quiet = not select.select([self._terminal], [], [], 0.3)[0]
            if not quiet:
                self._stream.feed(os.read(self._terminal, 65536))

    def _at_prompt(self) -> bool:
        cursor = self.screen.cursor
        return self.screen.display[cursor.y].rstrip() == PROMPT.strip() and cursor.x == len(PROMPT)


def lines(screen: pyte.Screen) -> list[Text]:
    """The screen's text with its styles, without the last prompt and empty lines."""
    shown = []
    for y in range(screen.cursor.y):
        cells = [screen.buffer[y][x] for x in range(COLUMNS)]
        line = Text()
        for style, alike in groupby(cells, _style):
            line.append("".join(cell.data for cell in alike), style)
        line.rstrip()
        shown.append(line)
    return shown


def _style(cell: Char) -> Style:
    return Style(color=_color(cell.fg), bold=cell.bold, italic=cell.italics, reverse=cell.reverse)


def _color(name: str) -> str | None:
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    bright = name.removeprefix("bright")
    plain = {"brown": "yellow"}.get(bright, bright)
    return plain if bright == name else f"bright_{plain}"


def draw(picture: Picture, folder: Path, env: dict[str, str]) -> str:
    """The picture as SVG."""
    terminal = Terminal(folder, env)
    for command in picture.before:
        terminal.type(command)
    terminal.clear()
    for command in picture.typed:
        terminal.type(command)
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    for line in lines(terminal.screen):
        console.print(line, soft_wrap=True)
    for command in picture.after:
        terminal.type(command)
    terminal.close()
    svg = console.export_svg(title="", theme=DIMMED_MONOKAI, unique_id=picture.name)
    # fonts of the reader's machine, not of another host
    return _INDENTED.sub(_indent, re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


def _indent(text: re.Match[str]) -> str:
    """Start a text after its leading spaces, which some viewers leave out."""
    width = _CELL * text["spaces"].count(";")
    x, length = (float(text[name]) + sign * width for name, sign in (("x", 1), ("length", -1)))
    return f'x="{x:g}" {text["y"]} textLength="{length:g}" {text["clip"]}>'


def main() -> None:
    chosen = set(sys.argv[1:])
    FOLDER.mkdir()
    try:
        shutil.copytree(ROOT / "examples/recovery", FOLDER, dirs_exist_ok=True)
        env = {
            "HOME": str(FOLDER),
            "LANG": "C.UTF-8",
            "MUSTER_HOME": str(FOLDER / ".muster"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PS1": PROMPT,
            "TERM": "xterm-256color",
        }
        for picture in PICTURES:
            if not chosen or picture.name in chosen:
                (HERE / f"{picture.name}.svg").write_text(draw(picture, FOLDER, env))
                print(f"docs/pictures/{picture.name}.svg")
    finally:
        shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
