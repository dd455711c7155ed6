"""Commands, options and Python functions that pages show exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest

import muster
from muster.cli.main import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Lines of indented blocks, and code in a sentence or table.
SHOWN = re.compile(r"^ {4,}(?:\$ )?(muster [a-z][^#|&;\n]*)|`(muster [a-z][^`|&;]*)`", re.MULTILINE)


def shown(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return [match[1] or match[2] for match in SHOWN.finditer(text)]


def unknown(command: str) -> list[str]:
    """The words of a command, up to `--`, that are no subcommand or option of Muster."""
    words = command.split(" -- ", maxsplit=1)[0].split()[1:]
    found: click.Command = cli
    with click.Context(found) as context:
        while words and isinstance(found, click.Group):
            if words[0].startswith("-"):  # an option of the group, maybe before a subcommand
                option = _option(found, words[0])
                if option is None or option.is_flag or len(words) < 3:
                    break
                del words[:2]
                continue
            name = words.pop(0).rstrip(",.")
            inner = found.get_command(context, name)
            if inner is None:
                return [name]
            found = inner
        parameters = found.get_params(context)
        known = {option for one in parameters for option in (*one.opts, *one.secondary_opts)}
    options = [word.partition("=")[0].rstrip("]") for word in words if word.startswith("--")]
    return [option for option in options if option not in known]


def _option(command: click.Command, name: str) -> click.Option | None:
    found = (one for one in command.params if isinstance(one, click.Option))
    return next((one for one in found if name in one.opts), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_exist(page: Path) -> None:
    assert {command: bad for command in shown(page) if (bad := unknown(command))} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_functions_of_a_page_exist(page: Path) -> None:
    names = set(re.findall(r"\bmuster\.([a-z_]+)\(", page.read_text()))
    assert {name for name in names if not hasattr(muster, name)} == set()


def test_commands_are_found() -> None:
    assert sum(len(shown(page)) for page in PAGES) > 150
    assert unknown("muster run train.py --node 4") == ["--node"]
    assert unknown("muster runs stopp last") == ["stopp"]


@pytest.mark.parametrize(("page", "words"), [("README.md", 700), ("docs/concepts.md", 2000)])
def test_the_first_pages_stay_short(page: str, words: int) -> None:
    assert len((ROOT / page).read_text().split()) <= words


def test_the_list_of_decisions_is_complete_and_in_order() -> None:
    folder = ROOT / "docs" / "decisions"
    lines = (folder / "README.md").read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("| [0001]"))
    listed = [line.split("](")[1].split(")")[0] for line in lines[first:] if line.startswith("|")]
    assert listed == sorted(path.name for path in folder.glob("0*.md"))
    rows = [line for line in lines[first : first + len(listed)] if line.startswith("| [0")]
    assert len(rows) == len(listed), "the rows are one table"


def test_the_links_of_the_readme_work_on_the_page_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = (ROOT / "README.md").read_text()
    for change in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"][
        "substitutions"
    ]:
        text = re.sub(change["pattern"], change["replacement"], text)
    links = re.findall(r"\]\(([^)]+)\)", text)
    site, source = (project["project"]["urls"][name] for name in ("Documentation", "Source"))
    missing = []
    for link in links:
        if (path := link.removeprefix(f"{source}/blob/main/")) != link:
            files = [ROOT / path]
        else:
            page = ROOT / "docs" / link.partition("#")[0].removeprefix(f"{site}/")
            files = [page, page.with_suffix(".md"), page / "README.md"]
        if not any(file.is_file() for file in files):
            missing.append(link)
    assert (len(links) > 20, missing) == (True, [])
