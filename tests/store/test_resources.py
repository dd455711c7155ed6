"""What every database promises of the resources of the OCI API."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.errors import Conflict, NotFound
from muster.store.base import Store
from muster.store.records import RunStep
from muster.store.resource_records import ResourceFilter, ResourceRecord, RunFacts
from support.store_records import DATABASES, PROJECT, accept, accept_and_drive, job

pytestmark = pytest.mark.parametrize("store", DATABASES, indirect=True)

KIND = "datasciencejob"
JOB = ResourceRecord(
    *(KIND, "j1", PROJECT, "train", "ACTIVE", "ana", 1.000001, 2.0),
    data={"a": {"b": [1, None]}},
    parent="p1",
)


def test_a_resource_is_kept_as_it_is(store: Store) -> None:
    assert store.resources.insert(JOB)
    assert store.resources.get(KIND, "j1") == JOB
    with pytest.raises(NotFound):
        store.resources.get("log", "j1")


def test_there_is_one_resource_of_a_kind_with_an_id(store: Store) -> None:
    assert store.resources.insert(JOB)
    assert not store.resources.insert(replace(JOB, name="other"))
    assert store.resources.insert(replace(JOB, kind="log"))
    assert store.resources.get(KIND, "j1").name == "train"


def test_many_are_read_by_their_ids(store: Store) -> None:
    """Also more than one query reads; without those that there are not."""
    several = {one: replace(JOB, id=one) for one in ("j1", "j2")}
    for record in (*several.values(), replace(JOB, id="j3"), replace(JOB, kind="log", id="j1")):
        store.resources.insert(record)
    none = [f"none{number}" for number in range(600)]
    assert store.resources.some(KIND, ["j1", *none, "j2"]) == several
    assert store.resources.some(KIND, []) == {}


def test_a_job_is_kept_with_its_job_of_the_oci_api(store: Store) -> None:
    record = job("of-oci", oci_job="ocid1.datasciencejob.muster.local..j1")
    made = store.jobs.insert(record)
    assert made.oci_job == record.oci_job
    assert store.jobs.find(record.project, made.id).oci_job == record.oci_job


def test_a_change_is_based_on_what_was_read(store: Store) -> None:
    store.resources.insert(JOB)
    changed = store.resources.update(JOB, replace(JOB, name="x", data={}, project="p2"))
    assert changed == replace(JOB, name="x", data={}, project="p2", version=2)
    with pytest.raises(Conflict, match="was changed by another request"):
        store.resources.update(JOB, replace(JOB, name="y"))
    assert store.resources.delete(KIND, "j1")
    assert not store.resources.delete(KIND, "j1")
    with pytest.raises(NotFound):
        store.resources.update(changed, changed)


def of_run(run_id: str) -> ResourceRecord:
    return replace(JOB, kind="datasciencejobrun", id=run_id, run_id=run_id, state="ACCEPTED")


def test_what_belongs_to_a_resource_may_be_of_other_projects(store: Store) -> None:
    other = replace(JOB, id="j2", project="other")
    for one in (JOB, other, replace(other, id="j3", parent="p2")):
        store.resources.insert(one)
    found = store.resources.listing(ResourceFilter(KIND, None, parent="p1"))
    assert sorted(one.id for one in found) == ["j1", "j2"]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("QUEUED", "ACCEPTED"),
        ("IN_PROGRESS", "IN_PROGRESS"),
        ("SUSPENDED", "NEEDS_ATTENTION"),
        ("FAILED", "FAILED"),
    ],
)
def test_the_state_is_that_of_the_run(store: Store, state: str, shown: str) -> None:
    run, lease = accept_and_drive(store, job())
    store.resources.insert(replace(of_run(run.id), state="DELETED"))
    changes: dict[str, Any] = {"state": state, "details": "why", "exit_code": 3}
    store.runs.save(RunStep(lease, changes, [], [], 5.0))
    found = store.resources.get("datasciencejobrun", run.id)
    assert (found.state, found.run) == (shown, RunFacts(state, "why", None, None, 3))
    for states, count in (((shown,), 1), (("DELETED",), 0), ((), 0)):
        chosen = ResourceFilter("datasciencejobrun", PROJECT, states=states)
        assert len(store.resources.listing(chosen)) == count
    if state == "FAILED":
        store.runs.delete(run.id)
        gone = store.resources.get("datasciencejobrun", run.id)
        assert (gone.state, gone.run) == ("DELETED", None)


def test_a_run_that_has_not_started_has_the_state_of_the_record(store: Store) -> None:
    store.resources.insert(of_run("0000000000"))
    assert store.resources.get("datasciencejobrun", "0000000000").state == "ACCEPTED"


def test_runs_that_were_never_started_are_found(store: Store) -> None:
    run = accept(store, job())
    late = replace(of_run("late"), created_at=9.0)
    failed = replace(of_run("failed"), state="FAILED")
    for one in (of_run(run.id), late, failed, of_run("stuck")):
        store.resources.insert(one)
    found = store.resources.in_state("datasciencejobrun", "ACCEPTED", 5.0)
    assert [one.id for one in found] == ["stuck"]
    found = store.resources.in_state("datasciencejobrun", "ACCEPTED")
    assert [one.id for one in found] == ["stuck", "late"]


def test_what_was_deleted_long_ago_is_forgotten(store: Store) -> None:
    run = accept(store, job())
    kept = [replace(of_run(run.id), state="DELETED"), replace(JOB, id="active")]
    kept.append(replace(JOB, id="late", state="DELETED", updated_at=10.5))
    gone = replace(JOB, id="early", state="DELETED", updated_at=10.0)
    for one in (*kept, gone):
        store.resources.insert(one)
    assert store.resources.forget_deleted(10.0) == 1
    for one in kept:
        assert store.resources.get(one.kind, one.id)
    with pytest.raises(NotFound):
        store.resources.get(KIND, "early")


FEW = st.integers(0, 2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_lists_and_pages(store: Store, data: st.DataObject) -> None:
    for record in store.resources.listing(ResourceFilter(KIND, PROJECT)):
        store.resources.delete(KIND, record.id)
    rows = data.draw(st.lists(st.tuples(FEW, FEW, FEW, FEW), max_size=12))
    made = [
        replace(
            *(JOB,),
            id=f"id{number}",
            name=f"n{name}",
            parent=f"p{parent}",
            state=("ACTIVE", "DELETED", "FAILED")[state],
            created_at=float(time),
        )
        for number, (name, parent, state, time) in enumerate(rows)
    ]
    for one in made:
        store.resources.insert(one)
    chosen = ResourceFilter(
        *(KIND, PROJECT),
        name=data.draw(st.none() | st.just("n1")),
        parent=data.draw(st.none() | st.just("p1")),
        states=data.draw(st.none() | st.just(("ACTIVE", "FAILED"))),
        sort=data.draw(st.sampled_from(["created_at", "name"])),
        descending=data.draw(st.booleans()),
    )
    expected = [
        one
        for one in made
        if chosen.name in (None, one.name)
        and chosen.parent in (None, one.parent)
        and (chosen.states is None or one.state in chosen.states)
    ]
    expected.sort(key=lambda one: (getattr(one, chosen.sort), one.id), reverse=chosen.descending)
    assert store.resources.listing(chosen) == expected
    size, found = data.draw(st.integers(1, 4)), list[ResourceRecord]()
    while page := store.resources.listing(replace(chosen, limit=size)):
        found += page
        last = page[-1]
        chosen = replace(chosen, after=(getattr(last, chosen.sort), last.id))
    assert found == expected
