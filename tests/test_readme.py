"""Commands of README, typed in a fresh clone, and those of the tutorial and guides."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.pages import ROOT, Page, read_page, type_commands

README = read_page("README.md")
RECOVER = read_page("docs/guides/recover.md")
PAGES = [read_page(f"docs/{name}.md") for name in ("tutorial", "guides/arrays")]
PYTORCH = read_page("docs/guides/pytorch.md")
needs_pytorch = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "sklearn")),
    reason="PyTorch or scikit-learn is not installed",
)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    path = tmp_path / "muster"
    ignored = (ROOT / ".gitignore").read_text().split()
    names = [Path(pattern).name for pattern in ignored]
    shutil.copytree(ROOT, path, ignore=shutil.ignore_patterns(".git", *names))
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a clone"]):
        subprocess.run([*git, *words], cwd=path, check=True)
    return path


def type_page(page: Page, tmp_path: Path, folder: Path, *, slow: bool) -> None:
    results = tmp_path / "results"
    results.mkdir()
    chosen = [command for command in page.commands if slow or not command.slow]
    type_commands(page, chosen, folder, results)


def test_most_commands_of_the_pages_are_typed() -> None:
    pages = [README, RECOVER, *PAGES, PYTORCH]
    assert sum(command.slow for page in pages for command in page.commands) <= 8
    assert all(len(page.commands) > 2 for page in pages)


@pytest.mark.shows("jobs/access-cli")
@pytest.mark.usefixtures("client")
def test_commands_print_what_the_readme_shows(tmp_path: Path, clone: Path) -> None:
    type_page(README, tmp_path, clone, slow=False)


@pytest.mark.slow
@needs_pytorch
@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("page", [README, RECOVER], ids=lambda page: page.name)
def test_all_commands_of_a_clone_print_what_the_page_shows(
    page: Page, tmp_path: Path, clone: Path
) -> None:
    type_page(page, tmp_path, clone, slow=True)


@pytest.mark.parametrize("page", PAGES[:1], ids=lambda page: page.name)
def test_commands_print_what_the_page_shows(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    type_page(page, tmp_path, folder, slow=False)


@pytest.mark.slow
@needs_pytorch
@pytest.mark.parametrize("page", [*PAGES, PYTORCH], ids=lambda page: page.name)
def test_all_commands_print_what_the_page_shows(page: Page, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    type_page(page, tmp_path, folder, slow=True)
