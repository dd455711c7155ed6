"""The modules that are sent with a script."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.storage import code_checks, ignore
from muster.storage import script_modules as module
from muster.storage.artifacts import place_artifact, stored_names
from muster.storage.home import Home
from muster.storage.script_modules import check_code, find_modules, store_code

ELSEWHERE = Path("/nowhere")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "helper.py": "import other\n",
        "other.py": "",
        "unused.py": "",
        "utils/__init__.py": "",
        "utils/deep.py": "from . import x\nimport late\n",
        "utils/x.py": "",
        "utils/table.csv": "1,2",
        "utils/.gitignore": "secret*\n",
        "utils/secret.py": "",
        "utils/__pycache__/x.pyc": "",
        "plain/a.py": "",
        "data/numbers.csv": "",
        "late.py": "import train\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


UTILS = ["utils/.gitignore", "utils/__init__.py", "utils/deep.py", "utils/table.csv", "utils/x.py"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("print(1)", []),
        ("import os, json\nfrom torch import nn", []),
        ("import other", ["other.py"]),
        ("import os, other", ["other.py"]),
        ("from other import x", ["other.py"]),
        ("import helper", ["helper.py", "other.py"]),
        ("def f():\n    import helper as h", ["helper.py", "other.py"]),
        ("try:\n    import other\nexcept ImportError: pass", ["other.py"]),
        ("import utils.deep", ["late.py", *UTILS]),
        ("from utils import deep", ["late.py", *UTILS]),
        ("from plain.a import b", ["plain/a.py"]),
        ("import data", []),
        ("from . import other", []),
        ('"""\nimport other\n"""', []),
        ("import other\nprint 'for an older Python'", ["other.py"]),
        ("import train", []),
        ("import train, other", ["other.py"]),
    ],
)
def test_imported_modules_are_sent(folder: Path, source: str, found: list[str]) -> None:
    (folder / "train.py").write_text(source)
    assert find_modules(folder / "train.py", ELSEWHERE) == sorted(found)


def test_modules_imported_by_a_notebook_are_sent(folder: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": "import helper"},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!ls\n", "import other\n"]},
    ]
    (folder / "n.ipynb").write_text(json.dumps({"cells": cells}))
    assert find_modules(folder / "n.ipynb", ELSEWHERE) == ["other.py"]
    (folder / "n.ipynb").write_text("{")
    assert find_modules(folder / "n.ipynb", ELSEWHERE) == []


@pytest.mark.parametrize("ignore_file", [".gitignore", ".musterignore"])
def test_ignored_modules_are_not_sent(folder: Path, ignore_file: str) -> None:
    (folder / ignore_file).write_text("oth*\n")
    (folder / "train.py").write_text("import helper")
    assert find_modules(folder / "train.py", ELSEWHERE) == ["helper.py"]


def test_links_to_the_outside_are_not_followed(folder: Path) -> None:
    (folder / "train.py").write_text("import utils, away")
    (folder / "utils" / "link.py").symlink_to("/etc/passwd")
    (folder / "away").symlink_to("/etc")
    assert find_modules(folder / "train.py", ELSEWHERE) == ["late.py", *UTILS]


def test_too_many_modules_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 3)
    (folder / "train.py").write_text("import utils")
    with pytest.raises(
        InvalidInput, match=r"train.py imports more than 3 files .* muster run .* --entrypoint"
    ):
        find_modules(folder / "train.py", ELSEWHERE)


def test_listing_stops_at_the_maximum_of_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []

    def endless(*_: object) -> Iterator[str]:
        for number in range(1000):
            listed.append(number)
            yield "other.py"

    monkeypatch.setattr(module, "MAX_FILES", 3)
    monkeypatch.setattr(ignore, "files_below", endless)
    (folder / "train.py").write_text("import utils")
    find_modules(folder / "train.py", ELSEWHERE)
    assert len(listed) == 4


def test_modules_that_are_links_are_sent_as_files(folder: Path) -> None:
    """Python follows them anywhere; an archive must not have links to the outside."""
    code = folder / "code"
    code.mkdir()
    (folder / "real.py").write_text("import linked")
    (code / "train.py").symlink_to(folder / "real.py")
    (code / "linked.py").symlink_to("../other.py")
    (folder / "other.py").write_text("print('other')")
    home = Home(folder / "home")
    home.prepare()
    check_code(home, code / "train.py", None)
    stored, entry = store_code(home, code / "train.py", None)
    target = folder / "target"
    target.mkdir()
    place_artifact(home, stored, target)
    assert entry == "train.py"
    assert (target / "linked.py").read_text() == "print('other')"
    assert not (target / "linked.py").is_symlink()


@pytest.mark.parametrize("what", ["pipe", "device", "nothing", "folder"])
def test_links_to_other_things_than_files_are_not_sent(folder: Path, what: str) -> None:
    (folder / "train.py").write_text("import odd, other")
    if what == "pipe":
        os.mkfifo(folder / "pipe")
    targets = {"pipe": "pipe", "device": "/dev/zero", "nothing": "absent", "folder": "data"}
    (folder / "odd.py").symlink_to(targets[what])
    assert find_modules(folder / "train.py", ELSEWHERE) == ["other.py"]


def test_the_size_of_a_link_is_that_of_its_target(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SIZE", 1000)
    (folder / "large").write_text("x" * 1001)
    (folder / "linked.py").symlink_to("large")
    (folder / "train.py").write_text("import linked")
    with pytest.raises(InvalidInput, match="imports 1 files"):
        find_modules(folder / "train.py", ELSEWHERE)
    monkeypatch.undo()
    monkeypatch.setattr(code_checks, "MAX_SIZE", 1000)
    home = Home(folder / "home")
    home.prepare()
    with pytest.raises(InvalidInput, match="at most 1000B are allowed"):
        check_code(home, folder / "train.py", None)


@pytest.mark.parametrize(
    ("source", "entrypoint", "kind", "entry"),
    [
        ("import other", None, "archive", "train.py"),
        ("import other", "", "archive", None),
        ("import os", None, "python", None),
        ("import os", "", "python", ""),
    ],
)
def test_scripts_with_modules_are_stored_as_archives(
    folder: Path, source: str, entrypoint: str | None, kind: str, entry: str | None
) -> None:
    home = Home(folder / "home")
    home.prepare()
    (folder / "train.py").write_text(source)
    code, found = store_code(home, folder / "train.py", entrypoint)
    assert (code.kind, found) == (kind, entry)
    if kind == "archive":
        assert code.file_name == f"{folder.name}.tar"
        assert stored_names(home, code) == ["other.py", "train.py"]


@pytest.mark.parametrize("name", ["a" * 300, "b/" + "c" * 5000])
def test_names_that_are_too_long_are_not_searched(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text(f"import {'d' * 300}, {'e' * 5000}\n")
    home = Home(tmp_path / "home")
    home.prepare()
    assert store_code(home, tmp_path / "train.py", None)[1] is None
    with pytest.raises(InvalidInput):
        check_code(home, tmp_path / f"{name}.py", None)
