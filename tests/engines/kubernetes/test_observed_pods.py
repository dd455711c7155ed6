"""The record of which pod each node of an observed JobSet has."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from engines.kubernetes.test_observation import part, pod, runs
from muster.engines.kubernetes.ended_pods import ENDED, EndedPod, add_ended
from muster.engines.kubernetes.observed_facts import ObservedPod
from muster.engines.kubernetes.observed_nodes import node_pod
from muster.engines.kubernetes.observed_pods import ObservedPods, read_pods, recorded_ranks
from muster.engines.kubernetes.observed_record import ObservedRecord
from muster.engines.kubernetes.places import Places
from muster.errors import EngineError
from muster.lifecycle.status import NodeRef
from muster.storage.home import Home, RunDir


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    made = Home(tmp_path).run_dir("r")
    made.path.mkdir(parents=True)
    return made


def recorder(folder: RunDir) -> ObservedPods:
    return ObservedPods(folder, Places([part(pods=3)]))


def names(folder: RunDir) -> dict[int, str]:
    return {rank: one.name for rank, one in read_pods(folder).items()}


def accepted(one: ObservedPod, at: str) -> ObservedPod:
    return replace(one, accepted_at=f"2026-01-02T03:04:{at}Z")


def test_pods_that_run_are_recorded_once(folder: RunDir) -> None:
    assert read_pods(folder) == {}
    pods = recorder(folder)
    pods.see([pod("a", 0, phase="Pending"), runs("b", 2), runs("c", 0), runs("other", 7)])
    assert names(folder) == {0: "c", 2: "b"}
    assert [*read_pods(folder)] == [0, 2], "by rank"
    assert read_pods(folder)[2].container == "main"
    (file,) = folder.path.iterdir()
    size = file.stat().st_size
    pods.see([runs("b", 2), runs("c", 0)])
    recorder(folder).see([runs("b", 2), runs("c", 0)])
    assert file.stat().st_size == size


@pytest.mark.parametrize("old_first", [True, False])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (accepted(runs("old"), "05"), accepted(runs("new"), "06")),
        (accepted(runs("old", restarts=1), "06"), accepted(runs("new", restarts=2), "05")),
    ],
    ids=["accepted later", "after a restart"],
)
def test_a_node_has_its_newest_pod(
    folder: RunDir, old: ObservedPod, new: ObservedPod, old_first: bool
) -> None:
    """The one that ends may be seen last, as by a supervisor that lists all."""
    pods = recorder(folder)
    for one in (old, new) if old_first else (new, old):
        pods.see([one])
    assert names(folder) == {0: "new"}


def test_a_pod_whose_end_was_reported_is_no_more(folder: RunDir) -> None:
    recorder(folder).see([runs("a", 0), runs("b", 1)])
    add_ended(folder.path / ENDED, [EndedPod(NodeRef(0, 0), "uid-a")])
    assert names(folder) == {1: "b"}


def test_a_node_whose_pod_is_not_known(folder: RunDir) -> None:
    recorder(folder).see([runs("a", 0)])
    record = ObservedRecord("train", "research")
    assert node_pod(folder, 0, record).name == "a"
    with pytest.raises(EngineError, match="the pod of node-1 is not known yet: try again") as said:
        node_pod(folder, 1, record)
    selector = "jobset.sigs.k8s.io/jobset-name=train"
    assert f"`kubectl get pods -n research -l {selector}` lists all" in str(said.value)


def test_a_line_that_was_cut_off_is_left_out(folder: RunDir) -> None:
    recorder(folder).see([runs("a", 0), runs("b", 1)])
    (file,) = folder.path.iterdir()
    content = file.read_bytes()
    for size in range(1, len(content)):
        file.write_bytes(content[:size])
        recorder(folder).see([runs("c", 2)])
        assert names(folder) in ({2: "c"}, {0: "a", 2: "c"})


def test_what_cannot_be_recorded_is_recorded_later(folder: RunDir) -> None:
    pods = recorder(folder)
    folder.path.rename(folder.path.with_name("away"))
    pods.see([runs("a", 0)])
    folder.path.with_name("away").rename(folder.path)
    assert read_pods(folder) == {}
    pods.see([runs("a", 0)])
    assert names(folder) == {0: "a"}


def test_later_sessions_know_the_ranks_of_pods(folder: RunDir) -> None:
    assert recorded_ranks(folder) == {}
    recorder(folder).see([runs("a", 0), runs("b", 1), runs("c", 1)])
    ended = [EndedPod(NodeRef(1, 0), "uid-b"), EndedPod(NodeRef(2, 0), "uid-never-ran")]
    add_ended(folder.path / ENDED, ended)
    assert recorded_ranks(folder) == {"uid-a": 0, "uid-b": 1, "uid-c": 1, "uid-never-ran": 2}
