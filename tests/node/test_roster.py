from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from muster.node.roster import (
    hostfile_beside,
    member,
    overwrite_roster,
    write_hostfile,
    write_roster,
)


@pytest.mark.shows("distributed-jobs/capability-metadata", "distributed-jobs/metadata-fields")
def test_the_file_has_the_format_of_oci_in_rank_order(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    members = [member(r, f"10.0.0.{r}", f"node-{r}", "g", f"id-{r}") for r in (10, 9)]
    write_roster(str(path), members)
    assert json.loads(path.read_text())[0] == {
        "IpAddress": "10.0.0.9",
        "IPAddress": "10.0.0.9",
        "FQDN": "node-9",
        "Rank": "9",
        "NodeGroupName": "g",
        "NodeId": "id-9",
    }


@pytest.mark.shows("distributed-jobs/metadata-updates")
def test_a_reader_never_sees_a_partial_file(tmp_path: Path) -> None:
    """The file is replaced, not rewritten: a reader that has it open keeps reading the old one."""
    path = tmp_path / "cluster.json"
    write_roster(str(path), [member(0, "a", "node-0", "g", "id")])
    with open(path) as old:
        write_roster(str(path), [member(i, "a", "node", "g", "id") for i in range(100)])
        assert len(json.load(old)) == 1
    assert len(json.loads(path.read_text())) == 100
    assert os.listdir(tmp_path) == ["cluster.json"]


def test_a_file_that_no_program_reads_is_overwritten(tmp_path: Path) -> None:
    """Also one that a program has replaced by a link, which is not followed."""
    path, mine = tmp_path / "cluster.json", tmp_path / "mine"
    mine.touch()
    path.symlink_to(mine)
    for count in (3, 1, 2):
        members = [member(i, "a", f"slot-{i}", "g", f"id-{i}") for i in range(count)]
        overwrite_roster(str(path), members)
        assert json.loads(path.read_text()) == members
    assert mine.read_text() == ""


def test_a_host_file_has_a_line_for_each_node(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.json")
    write_hostfile(path, ["10.0.0.1", "10.0.0.2"], 4)
    assert hostfile_beside(path) == str(tmp_path / "hostfile")
    assert (tmp_path / "hostfile").read_text() == "10.0.0.1 slots=4\n10.0.0.2 slots=4\n"
