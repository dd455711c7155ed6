"""Requirements files on their way into an image."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.images.packages import Packages
from muster.images.requirements import (
    Line,
    Requirement,
    lines_of,
    read_requirement,
    read_requirements,
    settle,
)


def test_lines_are_joined_and_comments_left_out() -> None:
    text = "# top\nnumpy>=2 \\\n  # not yet\n\nscipy  # why\nurl @ https://x/y#egg=z\n"
    assert list(lines_of(text)) == [
        Line(2, "numpy>=2"),
        Line(5, "scipy"),
        Line(6, "url @ https://x/y#egg=z"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Scikit_Learn", Requirement("scikit-learn", "", "")),
        ("dask[distributed] >=2, <3", Requirement("dask", "[distributed]", ">=2, <3")),
        ("a==1; python_version>'3'", Requirement("a", "", "==1", "python_version>'3'")),
        ("a @ https://host/a.whl", Requirement("a", "", "@ https://host/a.whl")),
        ("a==1 --hash=sha256:00", Requirement("a", "", "==1")),
        ("--index-url https://host", None),
        ("git+https://host/a.git", None),
        ("https://host/a.whl", None),
    ],
)
def test_what_a_line_names(text: str, expected: Requirement | None) -> None:
    assert read_requirement(text) == expected


def test_included_files_come_along(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "all.txt").write_text("-r parts/base.txt\n--constraint=limits.txt\nscipy\n")
    (tmp_path / "parts" / "base.txt").write_text("-rmore.txt\nnumpy\n-r ./base.txt\n")
    (tmp_path / "parts" / "more.txt").write_text("polars\n")
    (tmp_path / "limits.txt").write_text("dask==2026.1.0\n")
    texts, found = read_requirements(tmp_path / "all.txt")
    assert set(texts) == {"all.txt", "parts/base.txt", "parts/more.txt", "limits.txt"}
    assert {item.name for item in found} == {"scipy", "numpy", "polars", "dask"}


def test_all_that_cannot_work_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(
        "numpy\n"
        "--index-url https://me:hunter2@pypi.example.com/simple\n"
        "-e .\n"
        "./wheels/mine.whl\n"
        "-f wheels\n"
        "mine @ file:///home/me/mine.whl\n"
        "-r ../other.txt\n"
        "-r missing.txt\n"
        "secretstorage==3.3.3\n"
        "mine @ https://example.com/mine.whl?sig=hunter2\n"
    )
    with pytest.raises(InvalidInput) as caught:
        read_requirements(path)
    said = str(caught.value)
    assert "hunter2" not in said
    assert f"{path}:9" not in said, "a requirement is no secret, whatever its name"
    assert f"{path}:10: has a password in an address" in said
    assert f"{path}:2: has a password in an address" in said
    for line in (3, 4, 5, 6):
        assert f"{path}:{line}: " in said
    assert "which the image does not have" in said
    assert f"{path}:7: '-r ../other.txt' leads out of the folder of {path}" in said
    assert f"--requirements: {tmp_path / 'missing.txt'} (which {path} includes): No such" in said


@pytest.mark.parametrize(
    "line",
    [
        "wheels/mine-1.0-py3-none-any.whl",
        "mine-1.0.TAR.GZ",
        "wheels/mine.zip[extra] ; python_version > '3'",
        "-e src/mine",
        "--editable=mine",
    ],
)
def test_what_is_here_need_not_look_like_a_path(tmp_path: Path, line: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(line)
    with pytest.raises(InvalidInput, match="is a place on this machine"):
        read_requirements(path)


@pytest.mark.parametrize(
    "line",
    [
        "https://host/mine-1.0-py3-none-any.whl",
        "mine @ https://host/mine.zip",
        "-e git+https://host/mine.git#egg=mine",
        "-c limits.txt",
        "zipp",
    ],
)
def test_what_is_elsewhere(tmp_path: Path, line: str) -> None:
    (tmp_path / "limits.txt").touch()
    path = tmp_path / "requirements.txt"
    path.write_text(line)
    read_requirements(path)


@pytest.mark.parametrize(
    "line",
    [
        "git+ssh://git@host/a.git",
        "--index-url https://${USER}:${TOKEN}@host/simple",
        "a @ https://host/user@1.0/a.whl",
        "-f https://host/wheels",
    ],
)
def test_what_is_no_password(tmp_path: Path, line: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(line)
    read_requirements(path)


def test_a_binary_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match=r"r\.txt: is no UTF-8 text"):
        read_requirements(tmp_path / "r.txt")


OURS = Packages(pip=("dask[distributed]==2026.8.0", "bokeh"), same=(("dask-all", "dask"),))


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        ([], ("dask[distributed]==2026.8.0", "bokeh")),
        (["dask==2026.1.0"], ("dask[distributed]==2026.1.0", "bokeh")),
        (["Dask", "bokeh<3"], ("dask[distributed]==2026.8.0", "bokeh<3")),
        (["dask @ https://host/dask.whl"], ("bokeh",)),
        (["dask-all==1"], ("bokeh",)),
        (["dask==1; sys_platform == 'darwin'"], ("dask[distributed]==2026.8.0", "bokeh")),
    ],
)
def test_the_owner_s_word_goes_first(theirs: list[str], expected: tuple[str, ...]) -> None:
    read = [item for text in theirs if (item := read_requirement(text))]
    assert settle(OURS, read) == expected
