"""Requirements files that are installed in images."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.images.packages import Packages
from muster.images.requirements import (
    Line,
    lines_of,
    merge_requirements,
    read_requirement,
    read_requirements,
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
        ("Scikit_Learn", "Scikit_Learn"),
        ("dask[distributed] >=2, <3", "dask[distributed]<3,>=2"),
        ("a==1; python_version>'3'", 'a==1; python_version > "3"'),
        ("a @ https://host/a.whl", "a @ https://host/a.whl"),
        ("a==1 --hash=sha256:00", "a==1"),
        ("--index-url https://host", None),
        ("git+https://host/a.git", None),
        ("https://host/a.whl", None),
    ],
)
def test_requirements_are_parsed(text: str, expected: str | None) -> None:
    found = read_requirement(text)
    assert (None if found is None else str(found)) == expected


def test_included_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "all.txt").write_text("-r parts/base.txt\n--constraint=limits.txt\nscipy\n")
    (tmp_path / "parts" / "base.txt").write_text("-rmore.txt\nnumpy\n-r ./base.txt\n")
    (tmp_path / "parts" / "more.txt").write_text("polars\n")
    (tmp_path / "limits.txt").write_text("dask==2026.1.0\n")
    found = read_requirements(tmp_path / "all.txt")
    assert set(found.texts) == {"all.txt", "parts/base.txt", "parts/more.txt", "limits.txt"}
    assert {item.name for item in found.packages} == {"scipy", "numpy", "polars", "dask"}


def test_all_problems_are_reported_with_their_lines(tmp_path: Path) -> None:
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
    message = str(caught.value)
    assert "hunter2" not in message
    assert f"{path}:9" not in message, "a package name is not a secret"
    assert f"{path}:10: has a password in an address" in message
    assert f"{path}:2: has a password in an address" in message
    for line in (3, 4, 5, 6):
        assert f"{path}:{line}: " in message
    assert "which the image does not have" in message
    assert f"{path}:7: '-r ../other.txt' is outside the folder of {path}" in message
    assert f"--requirements: {tmp_path / 'missing.txt'} (included by {path}): No such" in message


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
def test_local_paths_are_refused_in_every_form(tmp_path: Path, line: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(line)
    with pytest.raises(InvalidInput, match="is a path on this machine"):
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
def test_addresses_are_not_local_paths(tmp_path: Path, line: str) -> None:
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
def test_addresses_without_a_password_are_accepted(tmp_path: Path, line: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(line)
    read_requirements(path)


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match=r"r\.txt: is not UTF-8 text"):
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
def test_the_user_s_versions_take_precedence(theirs: list[str], expected: tuple[str, ...]) -> None:
    read = [item for text in theirs if (item := read_requirement(text))]
    assert merge_requirements(OURS, read) == expected
