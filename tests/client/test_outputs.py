"""The outputs of runs: where programs find their directories, and how users get the files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.outputs import Outputs
from muster.client.run import JobRun
from muster.errors import InvalidInput
from support.embedded import embedded
from support.runs import output_of_success, start_spec

#: Fails once on rank 1, so that the run restarts.
PROGRAM = """
cd /
echo "$MUSTER_RESTART" >> "$MUSTER_OUTPUTS/restarts"
echo "$NODE_RANK" >> "$MUSTER_RUN_OUTPUTS/ranks"
[ "$NODE_RANK$MUSTER_RESTART" != 10 ] || exit 3
"""


def sh(text: str, **fields: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", text], "name": "kept", **fields}


@pytest.mark.parametrize("level", ["namespaces", "plain"])
@pytest.mark.parametrize("action", ["restart_node", "restart_run"])
def test_output_directories_exist_and_are_kept_over_restarts(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str, action: str
) -> None:
    if level == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    rule = {"max_restarts": 1, "action": action, "backoff": {"initial": 0}}
    own = {"MUSTER_OUTPUTS": "/nowhere", "MUSTER_RUN_OUTPUTS": "/nowhere"}
    run = start_spec(client, sh(PROGRAM, nodes=2, failure=rule, env=own), tmp_path)
    output_of_success(run)

    found = run.outputs()
    assert [(one.rank, str(one.path)) for one in found] == [
        (None, "ranks"),
        (0, "restarts"),
        (1, "restarts"),
    ]
    shared, *_, second = found
    assert {*shared.read_text().split()} == {"0", "1"}
    assert second.read_text() == "0\n1\n"


@pytest.fixture
def run(client: Client, tmp_path: Path) -> JobRun:
    """A run of two groups that has ended, with outputs of ranks 0 and 2 and shared ones."""
    groups = [{"name": "a"}, {"name": "b", "nodes": 2}]
    run = start_spec(client, sh("true", node_groups=groups), tmp_path).wait(60)
    root = embedded(client).home.run_dir(run.id).outputs
    for place in ("summary", "rank-0/model", "rank-2/plots/loss"):
        (root / place).parent.mkdir(exist_ok=True)
        (root / place).write_text(place)
    (root / "rank-0" / "latest").symlink_to(root / "rank-0" / "model")
    (root / "rank-0" / "shadow").symlink_to("/etc/shadow")
    return run


def places(found: Outputs) -> list[str]:
    return [str(one.path_in_run) for one in found]


def test_outputs_of_some_nodes(run: JobRun) -> None:
    first = ["rank-0/latest", "rank-0/model", "rank-0/shadow"]
    assert places(run.outputs()) == ["summary", *first, "rank-2/plots/loss"]
    assert places(run.outputs(ranks=[0])) == places(run.outputs(groups=["a"])) == first
    assert places(run.outputs(ranks=[0, 1], groups=["b"])) == []
    assert isinstance(run.outputs()[1:], Outputs)
    with pytest.raises(InvalidInput, match=r"kept-1 has no rank 3 \(ranks are 0 to 2\)"):
        run.outputs(ranks=[3])


def test_a_copy_has_the_same_layout_and_no_link_to_the_outside(run: JobRun, tmp_path: Path) -> None:
    to = tmp_path / "copy"
    found = run.outputs()
    copied = found.copy_to(to)
    assert [str(path.relative_to(to)) for path in copied.copies] == [
        "summary",
        "rank-0/latest",
        "rank-0/model",
        "rank-2/plots/loss",
    ]
    assert os.readlink(to / "rank-0" / "latest") == "model"  # of the copy, not of the original
    (left_out,) = copied.left_out
    assert str(left_out.output.path_in_run) == "rank-0/shadow"
    assert left_out.why == "a link to /etc/shadow, outside the outputs of the run"

    (to / "summary").write_text("mine")
    for again in (run.outputs(), run.outputs(ranks=[2])):
        with pytest.raises(InvalidInput, match="would be overwritten"):
            again.copy_to(to)
    assert (to / "summary").read_text() == "mine"
    found.copy_to(to, force=True)
    assert (to / "summary").read_text() == "summary"


def test_files_that_disappear_are_left_out_of_a_copy(run: JobRun, tmp_path: Path) -> None:
    found = run.outputs(ranks=[2])
    os.unlink(found[0])
    copied = found.copy_to(tmp_path / "copy")
    assert (copied.copies, [one.why for one in copied.left_out]) == (
        (),
        ["No such file or directory"],
    )


def test_a_copy_that_cannot_be_written(run: JobRun, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"to: .*/file is a file \(name a folder\)"):
        run.outputs().copy_to(tmp_path / "file")
    (tmp_path / "copy" / "summary").mkdir(parents=True)
    with pytest.raises(InvalidInput, match=r"cannot write .*/copy/summary: Is a directory"):
        run.outputs().copy_to(tmp_path / "copy", force=True)
