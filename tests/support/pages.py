"""The commands of a page, in order, and the files that it tells readers to save."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from muster.images.wheel import build_wheel

ROOT = Path(__file__).parents[2]
#: A comment that may precede commands of a page.
SLOW = "<!-- tried by the slow tests: "
#: Commands that change the environment of the tests.
INSTALLS = re.compile(r"pip |python3 -m venv |make ")
#: Commands of other tools, which pages compare with Muster's.
OTHERS = re.compile(r"torchrun |sbatch |kubectl |ads ")
FILE = re.compile(r'```\w+ title="(.+)"')


class Command(NamedTuple):
    line: int  # of the page
    text: str  # for the shell
    output: list[str]  # as shown by the page; empty if not shown
    slow: bool

    @property
    def exit_code(self) -> int:
        if any(line.startswith("error: ") for line in self.output):
            return 2
        return 1 if any(" FAILED " in line for line in self.output) else 0


class Page(NamedTuple):
    name: str
    files: dict[str, str]
    commands: list[Command]


def read_page(name: str) -> Page:
    """Indented blocks and blocks of Python are commands. After `$ ` is a command, and below it its
    output. A fence without a language is the output of the preceding command, one with a title is a
    file."""
    page = Page(name, {}, [])
    comment = ""
    lines = iter(enumerate((ROOT / name).read_text().splitlines(), 1))
    texts = (text for _, text in lines)

    def add(number: int, text: str, output: list[str]) -> None:
        if not (INSTALLS.match(text) or OTHERS.match(text)):
            page.commands.append(Command(number, text, output, comment.startswith(SLOW)))

    for number, line in lines:
        if line.startswith("<!--"):
            assert line.startswith(SLOW), f"{name}:{number}: {line}"
            comment = line
        elif line.startswith("```"):
            block = list(takewhile(lambda inner: inner != "```", texts))
            if saved := FILE.fullmatch(line):
                page.files[saved[1]] = "\n".join([*block, ""])
            elif line == "```python":
                add(number, "\n".join(["python - <<'END'", *block, "END"]), [])
            elif line == "```":
                page.commands[-1] = page.commands[-1]._replace(output=block)
        elif given := re.match(r"( +)\$ (.*)", line):
            output = [inner.removeprefix(given[1]) for inner in takewhile(str.strip, texts)]
            add(number, given[2], output)
        elif line.startswith("    "):
            add(number, line.strip(), [])
        elif line:
            comment = ""
    return page


def install_wheel(folder: Path) -> Path:
    """An environment with the wheel of this Muster, and the packages of the tests' environment.
    Returns the folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (site / "packages.pth").write_text("".join(f"{path}\n" for path in packages))
    programs = folder / "bin"
    with zipfile.ZipFile(BytesIO(build_wheel().content)) as wheel:
        wheel.extractall(site)
    (script,) = site.glob("*.data/scripts/muster")
    muster = programs / "muster"
    muster.write_text(script.read_text().replace("#!python", f"#!{programs / 'python'}", 1))
    muster.chmod(0o755)
    return programs


def type_commands(
    page: Page, chosen: list[Command], folder: Path, results: Path, before: str = ""
) -> None:
    """Type the commands into one shell in the folder, and compare what they print. before: commands
    of the reader's own."""
    for name, text in page.files.items():
        (folder / name).write_text(text)
    programs = install_wheel(results / "venv")
    with (results / "shell").open("w") as errors:
        subprocess.run(
            ["sh", "-c", _script(chosen, results, before)],
            cwd=folder,
            env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            timeout=1200,
            check=False,
        )
    assert (results / "shell").read_text() == ""
    for index, command in enumerate(chosen):
        where = f"{page.name}:{command.line}: {command.text}"
        printed = (results / f"{index}.out").read_text()
        code = (results / f"{index}.code").read_text()
        assert code == f"{command.exit_code}\n", (where, printed)
        shown = [_comparable(line) for line in command.output]
        found = [_comparable(line) for line in printed.splitlines()]
        if "..." in shown:
            assert set(shown) - {"..."} <= set(found), where
        elif shown:
            assert sorted(shown) == sorted(found), where


def _script(chosen: list[Command], results: Path, before: str) -> str:
    """A script that runs the commands in order and stops at the first unexpected exit code."""
    parts = [f"{before}\n"]
    for index, command in enumerate(chosen):
        parts.append(f"{{ {command.text}\n}} > {results}/{index}.out 2>&1\n")
        parts.append(f"code=$?; echo $code > {results}/{index}.code\n")
        parts.append(f'[ "$code" = {command.exit_code} ] || exit\n')
    return "".join(parts)


def _comparable(line: str) -> str:
    """A line of output without times, addresses and the width of columns; the order of nodes
    differs, too."""
    line = re.sub(r"\b(\d+(\.\d+)?(ms|s|m|h))+\b", "TIME", line)
    line = re.sub(r"\b\d+(\.\d+){3}(:\d+)?\b", "ADDRESS", line)
    return re.sub(" +", " ", line)
