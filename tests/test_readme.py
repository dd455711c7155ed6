"""README's commands, typed in order in one terminal that starts in a fresh clone."""

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
#: What a comment before a block of README may say of it, and what it means here.
SKIPPED = "<!-- not tried by the tests: "
SLOW = "<!-- tried by the slow tests: "
EXPECTED = """\
[ "$code" = {code} ] || exit
"""


class Command(NamedTuple):
    line: int  # of README
    text: str  # for the shell
    output: list[str]  # what README shows of it; empty: nothing
    skipped: bool
    slow: bool

    @property
    def exit_code(self) -> int:
        return 2 if any(line.startswith("error: ") for line in self.output) else 0


def commands(text: str) -> list[Command]:
    """Indented blocks and blocks of Python; lines after `$ ` with their output. A fence without
    a language is the output of the command before it."""
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
    """Types them one after the other, and ends at the first that does not end as it should."""
    parts = []
    for index, command in enumerate(chosen):
        parts.append(f"{{ {command.text}\n}} > {folder}/{index}.out 2>&1\n")
        parts.append(f"code=$?; echo $code > {folder}/{index}.code\n")
        parts.append(EXPECTED.format(code=command.exit_code))
    return "".join(parts)


def alike(lines: list[str]) -> list[str]:
    """Output without what differs from run to run: times, and the order of nodes."""
    return sorted(re.sub(r"\b\d+(\.\d+)?(s|ms)\b", "TIME", line) for line in lines)


def type_them(chosen: list[Command], tmp_path: Path) -> None:
    clone = tmp_path / "muster"
    ignored = (ROOT / ".gitignore").read_text().split()
    names = [Path(pattern).name for pattern in ignored]
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".git", *names))
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a clone"]):
        subprocess.run([*git, *words], cwd=clone, check=True)
    made = tmp_path / "made"
    made.mkdir()
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])

    with (made / "shell").open("w") as trouble:
        subprocess.run(
            ["sh", "-c", script(chosen, made)],
            cwd=clone,
            env=os.environ | {"PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=trouble,
            stderr=trouble,
            timeout=1200,
            check=False,
        )

    assert (made / "shell").read_text() == ""
    for index, command in enumerate(chosen):
        where = f"README.md:{command.line}: {command.text}"
        output = (made / f"{index}.out").read_text()
        assert (made / f"{index}.code").read_text() == f"{command.exit_code}\n", (where, output)
        if command.output:
            assert alike(output.splitlines()) == alike(command.output), where


COMMANDS = commands((ROOT / "README.md").read_text())


def test_few_commands_are_left_out() -> None:
    left = [command.text for command in COMMANDS if command.skipped]
    others = [text for text in left if not re.match(r"make (demo|test)\b", text)]
    assert all("pip install" in text for text in others)
    assert len(left) - len(others) == 2
    assert len(COMMANDS) > 25


@pytest.mark.shows("jobs/access-cli")
@pytest.mark.usefixtures("client")
def test_commands_can_be_typed_in_order(tmp_path: Path) -> None:
    type_them([one for one in COMMANDS if not one.skipped and not one.slow], tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "sklearn", "dask", "distributed")),
    reason="PyTorch, scikit-learn or Dask is not installed",
)
@pytest.mark.usefixtures("client")
def test_every_command_can_be_typed_in_order(tmp_path: Path) -> None:
    type_them([one for one in COMMANDS if not one.skipped], tmp_path)
