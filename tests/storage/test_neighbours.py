"""Which modules go along with a script."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.storage import code_checks, ignore
from muster.storage import neighbours as module
from muster.storage.artifacts import place_artifact, stored_path
from muster.storage.home import Home
from muster.storage.neighbours import check_code, neighbours, store_code

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
def test_what_is_imported_goes_along(folder: Path, source: str, found: list[str]) -> None:
    (folder / "train.py").write_text(source)
    assert neighbours(folder / "train.py", ELSEWHERE) == sorted(found)


def test_a_notebook_s_cells_import_too(folder: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": "import helper"},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!ls\n", "import other\n"]},
    ]
    (folder / "n.ipynb").write_text(json.dumps({"cells": cells}))
    assert neighbours(folder / "n.ipynb", ELSEWHERE) == ["other.py"]
    (folder / "n.ipynb").write_text("{")
    assert neighbours(folder / "n.ipynb", ELSEWHERE) == []


@pytest.mark.parametrize("ignore_file", [".gitignore", ".musterignore"])
def test_ignore_files_keep_back_single_modules(folder: Path, ignore_file: str) -> None:
    (folder / ignore_file).write_text("oth*\n")
    (folder / "train.py").write_text("import helper")
    assert neighbours(folder / "train.py", ELSEWHERE) == ["helper.py"]


def test_links_do_not_lead_out(folder: Path) -> None:
    (folder / "train.py").write_text("import utils, away")
    (folder / "utils" / "link.py").symlink_to("/etc/passwd")
    (folder / "away").symlink_to("/etc")
    assert neighbours(folder / "train.py", ELSEWHERE) == ["late.py", *UTILS]


def test_a_project_is_not_sent_by_accident(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 3)
    (folder / "train.py").write_text("import utils")
    with pytest.raises(
        InvalidInput, match=r"train.py imports more than 3 files .* muster run .* --entrypoint"
    ):
        neighbours(folder / "train.py", ELSEWHERE)


def test_no_more_files_are_listed_than_may_go_along(
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
    neighbours(folder / "train.py", ELSEWHERE)
    assert len(listed) == 4


def test_modules_that_are_links_go_along_as_files(folder: Path) -> None:
    """Python follows them, wherever they lead; an archive may hold no link that leads out."""
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
def test_links_to_what_is_no_file_do_not_go_along(folder: Path, what: str) -> None:
    (folder / "train.py").write_text("import odd, other")
    if what == "pipe":
        os.mkfifo(folder / "pipe")
    targets = {"pipe": "pipe", "device": "/dev/zero", "nothing": "absent", "folder": "data"}
    (folder / "odd.py").symlink_to(targets[what])
    assert neighbours(folder / "train.py", ELSEWHERE) == ["other.py"]


def test_what_links_lead_to_counts_in_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SIZE", 1000)
    (folder / "large").write_text("x" * 1001)
    (folder / "linked.py").symlink_to("large")
    (folder / "train.py").write_text("import linked")
    with pytest.raises(InvalidInput, match="imports 1 files"):
        neighbours(folder / "train.py", ELSEWHERE)
    monkeypatch.undo()
    monkeypatch.setattr(code_checks, "MAX_SIZE", 1000)
    home = Home(folder / "home")
    home.prepare()
    with pytest.raises(InvalidInput, match="at most 4 GiB are allowed"):
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
def test_how_it_is_stored(
    folder: Path, source: str, entrypoint: str | None, kind: str, entry: str | None
) -> None:
    home = Home(folder / "home")
    home.prepare()
    (folder / "train.py").write_text(source)
    code, found = store_code(home, folder / "train.py", entrypoint)
    assert (code.kind, found) == (kind, entry)
    if kind == "archive":
        assert code.file_name == f"{folder.name}.tar"
        with tarfile.open(stored_path(home, code.sha256)) as packed:
            assert packed.getnames() == ["other.py", "train.py"]


@pytest.mark.parametrize("name", ["a" * 300, "b/" + "c" * 5000])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text(f"import {'d' * 300}, {'e' * 5000}\n")
    home = Home(tmp_path / "home")
    home.prepare()
    assert store_code(home, tmp_path / "train.py", None)[1] is None
    with pytest.raises(InvalidInput):
        check_code(home, tmp_path / f"{name}.py", None)
