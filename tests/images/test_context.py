"""The folder an image is built from."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.images.context import write_context
from muster.images.draft import Draft, Request, draft
from muster.images.recipe import recipe_text
from muster.images.wheel import Wheel


@pytest.fixture
def made(tmp_path: Path) -> Draft:
    code = tmp_path / "code"
    (code / "sub").mkdir(parents=True, mode=0o700)
    (code / "train.py").write_text("print()")
    (code / "train.py").chmod(0o600)
    (code / "sub" / "go.sh").write_text("")
    (code / "sub" / "go.sh").chmod(0o700)
    (code / "link.py").symlink_to("train.py")
    (code / "left.log").write_text("")
    (code / ".gitignore").write_text("*.log\n.gitignore\n")
    (tmp_path / "requirements.txt").write_text("scipy\n")
    request = Request(
        framework="dask", source=code, requirements=tmp_path / "requirements.txt"
    )  # fmt: skip
    return draft(request, Wheel("muster_jobs-1-py3-none-any.whl", b"wheel"), tmp_path / "home")


def listed(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.lstat().st_mode & 0o777
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() and not path.is_symlink()
    }


@pytest.mark.shows("cluster-design/recipe-code-dir", "cluster-design/recipe-scripts")
def test_all_that_the_recipe_copies_and_everybody_can_read_it(made: Draft, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "context"
    recipe = write_context(folder, made)
    assert recipe == folder / "Containerfile"
    assert recipe.read_text() == recipe_text(made.recipe)
    assert listed(folder) == {
        "Containerfile": 0o644,
        "code/sub/go.sh": 0o755,
        "code/train.py": 0o644,
        "muster_jobs-1-py3-none-any.whl": 0o644,
        "requirements/requirements.txt": 0o644,
    }
    assert (folder / "code" / "link.py").readlink() == Path("train.py")
    assert (folder / "code" / "sub").stat().st_mode & 0o777 == 0o755


def test_again_leaves_nothing_of_before(made: Draft, tmp_path: Path) -> None:
    folder = tmp_path / "context"
    write_context(folder, made)
    (folder / "code" / "old.py").write_text("")
    write_context(folder, made)
    assert "code/old.py" not in listed(folder)


def test_times_do_not_depend_on_when_it_was_written(made: Draft, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_context(one, made)
    write_context(two, made)
    for name in listed(one):
        assert (one / name).stat().st_mtime == (two / name).stat().st_mtime


def test_a_folder_of_somebody_else_is_left_alone(made: Draft, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "code").write_text("mine")
    for other in ("", "FROM scratch"):
        with pytest.raises(InvalidInput, match=r"--output: .*theirs holds something else"):
            write_context(folder, made)
        (folder / "Containerfile").write_text(other)
    assert (folder / "code").read_text() == "mine"


@pytest.mark.parametrize("place", [".", "code", "code/context"])
def test_code_is_never_overwritten_nor_copied_into_itself(
    made: Draft, tmp_path: Path, place: str
) -> None:
    folder = tmp_path / place
    folder.mkdir(exist_ok=True)
    (folder / "Containerfile").write_text(recipe_text(made.recipe))  # as if it had been ours
    with pytest.raises(InvalidInput, match="lie in one another"):
        write_context(folder, made)
    assert (tmp_path / "code" / "train.py").read_text() == "print()"


def test_beside_one_file_there_may_be_anything(made: Draft, tmp_path: Path) -> None:
    """The context too: what is in the folder of the file is not code."""
    file = tmp_path / "code" / "train.py"
    request = Request(framework="dask", source=file)
    one = draft(request, Wheel("muster_jobs-1-py3-none-any.whl", b"wheel"), tmp_path / "home")
    for folder in (tmp_path / "code" / "context", tmp_path / "code" / "context"):
        write_context(folder, one)
        assert listed(folder / "code") == {"train.py": 0o644}
    with pytest.raises(InvalidInput, match="lie in one another"):
        (tmp_path / "Containerfile").write_text(recipe_text(one.recipe))
        write_context(tmp_path, one)
    assert file.read_text() == "print()"


def test_where_it_cannot_be_written(made: Draft, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"cannot write .*: Not a directory"):
        write_context(tmp_path / "file" / "context", made)
