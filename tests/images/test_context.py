"""The folder that an image is built from."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.images.context import write_context
from muster.images.prepare import BuildContext, ImageRequest, prepare
from muster.images.recipe import recipe_text
from muster.images.wheel import Wheel


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    code = tmp_path / "code"
    (code / "sub").mkdir(parents=True, mode=0o700)
    (code / "train.py").write_text("print()")
    (code / "train.py").chmod(0o600)
    (code / "sub" / "go.sh").write_text("")
    (code / "sub" / "go.sh").chmod(0o700)
    (code / "link.py").symlink_to("train.py")
    (code / "ignored.log").write_text("")
    (code / ".gitignore").write_text("*.log\n.gitignore\n")
    (tmp_path / "requirements.txt").write_text("scipy\n")
    request = ImageRequest(
        framework="dask", source=code, requirements=tmp_path / "requirements.txt"
    )  # fmt: skip
    return prepare(request, Wheel("muster_jobs-1-py3-none-any.whl", b"wheel"), tmp_path / "home")


def listed(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.lstat().st_mode & 0o777
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() and not path.is_symlink()
    }


@pytest.mark.shows("cluster-design/recipe-code-dir", "cluster-design/recipe-scripts")
def test_the_context_has_all_files_readable_by_everyone(
    context: BuildContext, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "context"
    recipe = write_context(folder, context)
    assert recipe == folder / "Containerfile"
    assert recipe.read_text() == recipe_text(context.recipe)
    assert listed(folder) == {
        "Containerfile": 0o644,
        "code/sub/go.sh": 0o755,
        "code/train.py": 0o644,
        "muster_jobs-1-py3-none-any.whl": 0o644,
        "requirements/requirements.txt": 0o644,
    }
    assert (folder / "code" / "link.py").readlink() == Path("train.py")
    assert (folder / "code" / "sub").stat().st_mode & 0o777 == 0o755


def test_writing_the_context_again_removes_earlier_files(
    context: BuildContext, tmp_path: Path
) -> None:
    folder = tmp_path / "context"
    write_context(folder, context)
    (folder / "code" / "old.py").write_text("")
    write_context(folder, context)
    assert "code/old.py" not in listed(folder)


def test_times_of_files_do_not_depend_on_when_they_are_written(
    context: BuildContext, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_context(one, context)
    write_context(two, context)
    for name in listed(one):
        assert (one / name).stat().st_mtime == (two / name).stat().st_mtime


def test_a_folder_with_other_files_is_not_changed(context: BuildContext, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "code").write_text("mine")
    for other in ("", "FROM scratch"):
        with pytest.raises(
            InvalidInput,
            match=r"--output: .*theirs is not empty and was not written by an earlier build",
        ):
            write_context(folder, context)
        (folder / "Containerfile").write_text(other)
    assert (folder / "code").read_text() == "mine"


@pytest.mark.parametrize("output", [".", "code", "code/context"])
def test_code_is_never_overwritten_nor_copied_into_itself(
    context: BuildContext, tmp_path: Path, output: str
) -> None:
    folder = tmp_path / output
    folder.mkdir(exist_ok=True)
    (folder / "Containerfile").write_text(
        recipe_text(context.recipe)
    )  # as if an earlier build had written it
    with pytest.raises(InvalidInput, match="contain one another"):
        write_context(folder, context)
    assert (tmp_path / "code" / "train.py").read_text() == "print()"


def test_other_files_next_to_a_single_file_are_allowed(
    context: BuildContext, tmp_path: Path
) -> None:
    """The context may be there too: other files in the folder of a single file are not code."""
    file = tmp_path / "code" / "train.py"
    request = ImageRequest(framework="dask", source=file)
    one = prepare(request, Wheel("muster_jobs-1-py3-none-any.whl", b"wheel"), tmp_path / "home")
    for folder in (tmp_path / "code" / "context", tmp_path / "code" / "context"):
        write_context(folder, one)
        assert listed(folder / "code") == {"train.py": 0o644}
    with pytest.raises(InvalidInput, match="contain one another"):
        (tmp_path / "Containerfile").write_text(recipe_text(one.recipe))
        write_context(tmp_path, one)
    assert file.read_text() == "print()"


def test_an_unwritable_output_is_refused(context: BuildContext, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"cannot write .*: Not a directory"):
        write_context(tmp_path / "file" / "context", context)
