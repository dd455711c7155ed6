"""What is new for runs when objects were listed or have changed."""

from __future__ import annotations

from msgspec.structs import replace

from muster.engines.kubernetes.changes import JobSetChanged, Listed
from muster.engines.kubernetes.known_objects import KnownObjects
from muster.engines.kubernetes.pod_facts import JobSetFacts, WorkloadFacts

ONE = JobSetFacts(
    uid="uid-1",
    name="train",
    run="r1",
    is_suspended=False,
    is_ending=False,
    restarts=0,
    has_succeeded=False,
    failed="",
)
OTHER = replace(ONE, uid="uid-2", name="other", run="r2")
WORKLOAD = WorkloadFacts("uid-w", "train", ONE.uid, "no quota", "")


def test_a_run_gets_what_differs_from_what_was_known() -> None:
    known = KnownObjects()
    changes = known.replace("JobSet", [ONE, OTHER], [], set())
    assert changes.of("r1") == [JobSetChanged(ONE)]
    assert known.put("JobSet", ONE).of("r1") == ()
    restarted = replace(ONE, restarts=1)
    changes = known.replace("JobSet", [restarted, OTHER], [], set())
    assert changes.of("r1") == [JobSetChanged(restarted)]
    assert changes.of("r2") == ()
    assert [*known.of("r1")] == [JobSetChanged(restarted), Listed("JobSet")]


def test_what_is_not_listed_any_more_is_gone() -> None:
    known = KnownObjects()
    known.replace("JobSet", [ONE, OTHER], [], set())
    missing = known.missing("JobSet", {OTHER.uid})
    assert missing == [ONE]
    changes = known.replace("JobSet", [OTHER], missing, set())
    assert changes.of("r1") == [JobSetChanged(ONE, is_gone=True)]
    assert known.get("JobSet", ONE.uid) is None
    assert [*known.of("r1")] == [Listed("JobSet")]


def test_what_is_there_without_its_label_stays() -> None:
    known = KnownObjects()
    known.put("JobSet", ONE)
    changes = known.replace("JobSet", [], known.missing("JobSet", ()), {ONE.uid})
    assert changes.of("r1") == () and known.has_unlisted("JobSet")
    assert known.get("JobSet", ONE.uid) == ONE
    known.put("JobSet", ONE)  # it has its label again
    assert not known.has_unlisted("JobSet")
    known.add_unlisted("JobSet", ONE)
    assert known.has_unlisted("JobSet")
    assert known.remove("JobSet", ONE).of("r1") == [JobSetChanged(ONE, is_gone=True)]
    assert not known.has_unlisted("JobSet")


def test_until_it_is_listed_again_nothing_is_missing_for_sure() -> None:
    known = KnownObjects()
    known.forget_list("Pod")
    known.replace("Pod", [], [], set())
    assert [*known.of("r1")] == [Listed("Pod")]
    known.forget_list("Pod")
    assert [*known.of("r1")] == []


def test_kueue_says_why_a_jobset_waits_whichever_is_seen_first() -> None:
    reported = JobSetChanged(replace(ONE, why_waiting="no quota"))
    known = KnownObjects()
    known.put("JobSet", ONE)
    assert known.put("Workload", WORKLOAD).of("r1") == [reported]
    known = KnownObjects()
    assert known.put("Workload", WORKLOAD).of("r1") == ()
    assert known.put("JobSet", ONE).of("r1") == [reported]
    assert known.remove("JobSet", ONE).of("r1") == [replace(reported, is_gone=True)]


def test_an_old_workload_takes_nothing_with_it() -> None:
    known = KnownObjects()
    known.put("JobSet", ONE)
    known.put("Workload", WORKLOAD)
    known.put("Workload", replace(WORKLOAD, uid="another", why_waiting="8 more needed"))
    assert known.remove("Workload", WORKLOAD).of("r1") == ()
    assert [*known.of("r1")] == [JobSetChanged(replace(ONE, why_waiting="8 more needed"))]
