"""The results of a program: what it leaves as metrics.json."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from muster.node import metrics


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's folder, with its working directory and, beside it, its output directory."""
    for name in ("node/work", "outputs", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def read(node: Path, cwd: str = "node/work", before: metrics.Versions | None = None) -> str:
    return metrics.read(f"{node}/outputs", f"{node}/{cwd}", f"{node}/node", before or {})


def test_without_the_file_there_are_none(node: Path) -> None:
    assert read(node) == ""


@pytest.mark.parametrize("place", ["outputs", "node/work"])
def test_the_file_is_found_in_the_output_and_the_working_directory(node: Path, place: str) -> None:
    (node / place / "metrics.json").write_text('{"loss": 0.5,\n "at": {"step": 3}}')
    assert json.loads(read(node)) == {"loss": 0.5, "at": {"step": 3}}
    assert "\n" not in read(node)


def test_the_output_directory_comes_first(node: Path) -> None:
    (node / "outputs/metrics.json").write_text('{"a": 1}')
    (node / "node/work/metrics.json").write_text('{"a": 2}')
    assert json.loads(read(node)) == {"a": 1}


@pytest.mark.parametrize("folder", ["outputs", "node/work"])
def test_a_file_that_was_there_before_counts_only_once_it_is_written_again(
    node: Path, folder: str
) -> None:
    file = node / folder / "metrics.json"
    file.write_text('{"a": 1}')
    before = metrics.versions(f"{node}/outputs", f"{node}/node/work")
    assert read(node, before=before) == ""
    file.unlink()
    file.write_text('{"a": 1}')
    os.utime(file, ns=(0, 1))
    assert json.loads(read(node, before=before)) == {"a": 1}


def test_a_file_in_a_directory_that_others_use_does_not_count(node: Path) -> None:
    (node / "elsewhere/metrics.json").write_text('{"a": 1}')
    problem = {
        "metrics.json": "it is in a directory that is not the node's own; use $MUSTER_OUTPUTS"
    }
    assert json.loads(read(node, "elsewhere")) == problem
    assert json.loads(read(node, "node/../elsewhere")) == problem
    before = metrics.versions(f"{node}/outputs", f"{node}/elsewhere")
    assert read(node, "elsewhere", before) == ""
    (node / "outputs/metrics.json").write_text('{"a": 2}')
    assert json.loads(read(node, "elsewhere")) == {"a": 2}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is not JSON"),
        ("{'a': 1}", "it is not JSON"),
        ("[" * 5000, "it is not JSON"),
        ("[1, 2]", "it is not an object"),
        ('{"a": "' + "x" * (16 << 10) + '"}', "it has more than 16 KiB"),
    ],
)
def test_a_file_that_is_not_recorded_is_named(node: Path, text: str, problem: str) -> None:
    (node / "outputs/metrics.json").write_text(text)
    assert json.loads(read(node))[metrics.PROBLEM].startswith(problem)


def test_anything_else_than_a_file_is_named(node: Path) -> None:
    (node / "outputs/metrics.json").mkdir()
    assert json.loads(read(node)) == {metrics.PROBLEM: "not a regular file"}


def test_half_of_a_surrogate_pair_is_replaced(node: Path) -> None:
    (node / "outputs/metrics.json").write_text('{"a": "x\\ud800", "\\udfff": "\\ud83d\\ude00"}')
    assert json.loads(read(node).encode()) == {"a": "x?", "?": "\U0001f600"}
