"""Which rank each pod of a JobSet has."""

from __future__ import annotations

from engines.kubernetes.observed_pods import part, pod, runs
from muster.engines.kubernetes.places import Places
from muster.lifecycle.status import Reason

R = Reason


def test_ranks_follow_groups_jobs_and_indexes() -> None:
    places = Places([part("v", 2, 1), part("w", 2, 3)])
    assert places.size == 8
    assert places.rank_of(pod("a", 1, job=1)) == 2 + 3 + 1
    assert places.rank_of(pod("b", 3)) is None
    assert places.rank_of(pod("c", 0, job=2)) is None


def test_pods_without_an_index_take_the_first_place_that_is_free() -> None:
    places = Places([part(pods=2)])
    assert [places.rank_of(runs(name, None)) for name in "abab"] == [0, 1, 0, 1]
    assert places.rank_of(runs("c", None)) is None
    places.rank_of(pod("b", None, code=1))
    assert places.rank_of(runs("c", None)) == 1
    assert places.rank_of(runs("d", None, restarts=1)) == 0


def test_pods_without_an_index_keep_the_places_that_are_recorded() -> None:
    """As a later session lists them in any order."""
    places = Places([part("v", 1, 1), part(pods=2)], {"uid-x": 1, "uid-y": 2, "uid-a": 0})
    places.see([runs("new", None), pod("y", None, code=1), runs("x", None)])
    assert [places.rank_of(runs(name, None)) for name in ("x", "y", "new")] == [1, 2, 2]
    other_job = Places([part(pods=1), part("v", 1, 1)], {"uid-a": 1})
    assert other_job.rank_of(runs("a", None)) == 0


def test_a_pod_without_an_index_that_has_ended_precedes_the_one_made_for_it() -> None:
    places = Places([part(pods=1)])
    places.see([runs("b", None), pod("a", None, code=1)])
    assert [places.rank_of(runs(name, None)) for name in "ab"] == [0, 0]


def test_a_pod_without_an_index_has_the_place_of_one_that_is_being_deleted() -> None:
    """A Job may make another pod before the one that is deleted has ended."""
    places = Places([part(pods=2)])
    places.see([runs("a", None), runs("b", None)])
    places.see([runs("b", None, deleting=True)])
    places.rank_of(runs("b", None))  # what was known before
    places.see([runs("c", None)])
    assert places.rank_of(runs("c", None)) == 1


def test_a_pod_without_an_index_that_has_succeeded_keeps_its_place() -> None:
    places = Places([part(pods=1)])
    places.see([pod("a", None, code=0), pod("a", None, code=0, deleting=True)])
    places.see([runs("b", None)])
    assert places.rank_of(runs("b", None)) is None
