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
