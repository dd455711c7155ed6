"""The examples of docs/reference/python.md that are complete programs."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import muster

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"


def example(heading: str) -> str:
    """The first example below a heading."""
    _, _, text = PAGE.read_text().partition(f"\n## {heading}\n")
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.skipif(find_spec("pandas") is None, reason="needs pandas")
def test_tables_and_pandas(capsys: pytest.CaptureFixture[str]) -> None:
    muster.run(command=["echo", "hello"], nodes=2, tags={"team": "a"}).wait(60)
    found: dict[str, object] = {"muster": muster}
    exec(example("Times, text and tables"), found)
    assert "echo-1" in capsys.readouterr().out
    shapes = {name: getattr(found[name], "shape")[0] for name in ("frame", "nodes", "log")}  # noqa: B009
    assert shapes["frame"] == 1 and shapes["nodes"] == 2 and shapes["log"] > 2


def test_asyncio(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("asyncio"), {})
    out = capsys.readouterr().out
    assert out.endswith("['SUCCEEDED', 'SUCCEEDED', 'SUCCEEDED']\n")
    assert {"echo-1 0 0", "echo-2 0 1", "echo-3 0 2"} <= {*out.splitlines()}


def test_policies(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("Policies"), {})
    assert capsys.readouterr().out == "True train#1\n"


def test_users_and_projects(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("Users and projects"), {})
    assert capsys.readouterr().out.startswith("muster_")
    with muster.Accounts("vision") as accounts:
        assert [member.user for member in accounts.members("vision")] == ["ana"]
