"""README's commands, run in order in one shell in a fresh clone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
#: Comments that may precede a block of README.
SKIPPED = "<!-- not tried by the tests: "
SLOW = "<!-- tried by the slow tests: "
EXPECTED = """\
[ "$code" = {code} ] || exit
"""


class Command(NamedTuple):
    line: int  # of README
    text: str  # for the shell
    output: list[str]  # as shown in README; empty if not shown
    skipped: bool
    slow: bool

    @property
    def exit_code(self) -> int:
        return 2 if any(line.startswith("error: ") for line in self.output) else 0


def commands(text: str) -> list[Command]:
    """Indented blocks and blocks of Python; lines after `$ ` with their output. A fence without
    a language is the output of the preceding command."""
    found: list[Command] = []
    comment = ""
    lines = iter(enumerate(text.splitlines(), 1))

    def add(number: int, text: str, output: list[str]) -> None:
        skipped = comment.startswith(SKIPPED) or text.startswith("make ")
        found.append(Command(number, text, output, skipped, comment.startswith(SLOW)))

    for number, line in lines:
        if line.startswith("<!--"):
            assert line.startswith((SKIPPED, SLOW)), f"README.md:{number}: {line}"
            comment = line
        elif line.startswith("```"):
            block = []
            for _, inner in lines:
                if inner == "```":
                    break
                block.append(inner)
            if line == "```python":
                add(number, "\n".join(["python - <<'END'", *block, "END"]), [])
            elif line == "```":
                found[-1] = found[-1]._replace(output=block)
        elif given := re.match(r"( +)\$ (.*)", line):
            output = []
            for _, inner in lines:
                if not inner.strip():
                    break
                output.append(inner.removeprefix(given[1]))
            add(number, given[2], output)
        elif line.startswith("    "):
            add(number, line.strip(), [])
        elif line:
            comment = ""
    return found


def script(chosen: list[Command], folder: Path) -> str:
    """A script that runs the commands in order and stops at the first unexpected exit code."""
    parts = []
    for index, command in enumerate(chosen):
        parts.append(f"{{ {command.text}\n}} > {folder}/{index}.out 2>&1\n")
        parts.append(f"code=$?; echo $code > {folder}/{index}.code\n")
        parts.append(EXPECTED.format(code=command.exit_code))
    return "".join(parts)


def normalized(lines: list[str]) -> list[str]:
    """Output without run-specific details: times, and the order of nodes."""
    return sorted(re.sub(r"\b\d+(\.\d+)?(s|ms)\b", "TIME", line) for line in lines)


def run_in_clone(chosen: list[Command], tmp_path: Path) -> None:
    clone = tmp_path / "muster"
    ignored = (ROOT / ".gitignore").read_text().split()
    names = [Path(pattern).name for pattern in ignored]
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".git", *names))
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a clone"]):
        subprocess.run([*git, *words], cwd=clone, check=True)
    results = tmp_path / "results"
    results.mkdir()
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])

    with (results / "shell").open("w") as errors:
        subprocess.run(
            ["sh", "-c", script(chosen, results)],
            cwd=clone,
            env=os.environ | {"PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            timeout=1200,
            check=False,
        )

    assert (results / "shell").read_text() == ""
    for index, command in enumerate(chosen):
        where = f"README.md:{command.line}: {command.text}"
        output = (results / f"{index}.out").read_text()
        assert (results / f"{index}.code").read_text() == f"{command.exit_code}\n", (where, output)
        if command.output:
            assert normalized(output.splitlines()) == normalized(command.output), where


COMMANDS = commands((ROOT / "README.md").read_text())


def test_most_commands_of_the_readme_are_run() -> None:
    skipped = [command.text for command in COMMANDS if command.skipped]
    others = [text for text in skipped if not re.match(r"make (demo|test)\b", text)]
    assert all("pip install" in text for text in others)
    assert len(skipped) - len(others) == 2
    assert len(COMMANDS) > 25


@pytest.mark.shows("jobs/access-cli")
@pytest.mark.usefixtures("client")
def test_commands_print_what_the_readme_shows(tmp_path: Path) -> None:
    run_in_clone([one for one in COMMANDS if not one.skipped and not one.slow], tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "sklearn", "dask", "distributed")),
    reason="PyTorch, scikit-learn or Dask is not installed",
)
@pytest.mark.usefixtures("client")
def test_all_commands_print_what_the_readme_shows(tmp_path: Path) -> None:
    run_in_clone([one for one in COMMANDS if not one.skipped], tmp_path)
