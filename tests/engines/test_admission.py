"""Which runs may start: the rule, for tables of runs and for random ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.engines import admission
from muster.engines.admission import Amounts, Capacity, Reservation

GIB = 1 << 30
#: 2 CPUs and 23 GiB. It has 2 GPUs.
MACHINE = Capacity(2, 23 * GIB)


def run(
    number: int,
    *,
    cpus: float = 0,
    gib: float = 0,
    gpus: int = 0,
    granted: bool = False,
    visible: tuple[int, ...] = (0, 1),
    held: tuple[int, ...] = (),
) -> Reservation:
    needs = Amounts(cpus, int(gib * GIB), gpus)
    return Reservation(f"id{number}", f"run-{number}", number, needs, granted, visible, held)


def starting(runs: list[Reservation]) -> list[str]:
    """The waiting runs that may start, one after the other."""
    table = {one.run_id: one for one in runs}
    started = []
    for one in sorted(runs, key=admission.order):
        others = list(table.values())
        if not one.granted and not admission.shortages(one, others, MACHINE):
            table[one.run_id] = admission.grant(one, others)
            started.append(one.run)
    return started


@pytest.mark.parametrize(
    ("runs", "started"),
    [
        pytest.param([run(1, gib=20)], ["run-1"], id="alone"),
        pytest.param([run(1, gib=20), run(2, gib=20)], ["run-1"], id="two do not fit"),
        pytest.param([run(2, gib=20), run(1, gib=20)], ["run-1"], id="the first submitted"),
        pytest.param([run(1, cpus=1), run(2, cpus=1), run(3, cpus=1)], ["run-1", "run-2"]),
        pytest.param([run(1, gib=20, granted=True), run(2, gib=3)], ["run-2"], id="beside"),
        pytest.param(
            [run(1, gib=20, granted=True), run(2, gib=20), run(3, gib=3)], [], id="no overtaking"
        ),
        pytest.param(
            [run(1, gib=20, granted=True), run(2, gib=20), run(3, cpus=2)],
            ["run-3"],
            id="another resource",
        ),
        pytest.param(
            [run(1, gib=20, granted=True), run(2, gib=20, cpus=1), run(3, cpus=1)],
            ["run-3"],
            id="beside what an earlier run is to be given",
        ),
        pytest.param(
            [run(1, gib=20, granted=True), run(2, gib=20, cpus=1), run(3, cpus=2)],
            [],
            id="not what an earlier run is to be given",
        ),
        pytest.param([run(1, gib=40)], ["run-1"], id="nodes share the machine"),
        pytest.param([run(1, gib=40), run(2, gib=1)], ["run-1"], id="all of the machine"),
        pytest.param([run(n, cpus=0.1) for n in range(20)], [f"run-{n}" for n in range(20)]),
        pytest.param([run(1, gpus=2), run(2, gpus=1)], ["run-1"], id="GPUs"),
    ],
)
def test_runs_start_in_order(runs: list[Reservation], started: list[str]) -> None:
    assert starting(runs) == started


def test_runs_with_other_gpus_do_not_wait_for_each_other() -> None:
    holder = run(1, gpus=1, visible=(0,), granted=True, held=(0,))
    other = run(2, gpus=1, visible=(1,))
    assert admission.shortages(other, [holder], MACHINE) == []
    assert admission.grant(other, [holder]).gpus == (1,)


A = run(1, gpus=1, granted=True, held=(0,))


@pytest.mark.parametrize(
    ("others", "lacks"),
    [
        pytest.param([A], "", id="another GPU than the one that is held"),
        pytest.param(
            [run(1, gpus=1, granted=True, held=(1,))], "needs 1, 0 of 1 free; held by run-1 (1)"
        ),
        pytest.param(
            [run(2, gpus=1)], "needs 1, 1 of 1 free; 1 earlier run gets it first", id="either one"
        ),
        pytest.param([A, run(2, gpus=1, visible=(0,))], "", id="waits for what is held"),
        # after the table was deleted, it is not known which GPUs a run has
        pytest.param([run(1, gpus=1, granted=True)], "needs 1, 0 of 1 free; held by run-1 (1)"),
    ],
)
def test_a_run_waits_only_for_gpus_that_it_may_be_given(
    others: list[Reservation], lacks: str
) -> None:
    pinned = run(3, gpus=1, visible=(1,))
    lacking = admission.shortages(pinned, others, MACHINE)
    assert "; ".join(map(admission.describe_refusal, lacking)) == lacks


def test_a_free_gpu_is_given_though_two_runs_are_after_the_same_one() -> None:
    waiting = run(2, gpus=1, visible=(0,))
    third = run(3, gpus=1)
    assert not admission.shortages(third, [A, waiting], MACHINE)
    assert admission.grant(third, [A, waiting]).gpus == (1,)


def test_a_run_is_not_given_the_gpus_that_an_earlier_one_waits_for() -> None:
    held = run(1, gpus=1, granted=True, held=(1,))
    both = run(2, gpus=2)
    later = run(3, gpus=1, visible=(0, 1, 2, 3))
    assert not admission.shortages(later, [held, both], MACHINE)
    assert admission.grant(later, [held, both]).gpus == (2,)


def test_runs_that_wait_for_gpus_that_another_one_did_not_get_look_again() -> None:
    either, pinned = run(1, gpus=1, gib=20), run(2, gpus=1, visible=(1,))
    assert admission.shortages(pinned, [either], MACHINE)
    assert admission.affected_by_grant(either, [either, pinned]) == [pinned]
    assert not admission.shortages(pinned, [admission.grant(either, [pinned])], MACHINE)
    alike = replace(pinned, visible=(0, 1))
    assert admission.affected_by_grant(either, [either, alike]) == [], "one GPU is as good"


def test_a_run_that_grows_keeps_the_gpus_it_has() -> None:
    holder = run(1, gpus=2, granted=True, held=(1,))
    assert admission.grant(holder, [holder]).gpus == (1, 0)
    assert admission.grant(replace(holder, needs=Amounts(gpus=1)), []).gpus == (1,)


def test_what_a_run_waits_for_is_described_in_numbers() -> None:
    holders = [run(n, gib=5, granted=True) for n in (1, 2, 3, 4)]
    waiting = [run(5, gib=20), run(6, gib=20), run(7, gib=20, cpus=2)]
    lacking = admission.shortages(waiting[2], [*holders, *waiting], MACHINE)
    assert admission.describe(lacking) == (
        "waiting for memory: needs 20GiB, 3GiB of 23GiB free; held by run-1 (5GiB), run-2 (5GiB), "
        "run-3 (5GiB) and 1 more; 2 earlier runs get it first"
    )
    busy = run(0, cpus=1.5, gpus=2, granted=True, held=(0, 1))
    lacking = admission.shortages(run(9, cpus=1, gpus=1), [busy], MACHINE)
    assert admission.describe(lacking) == (
        "waiting for GPUs: needs 1, 0 of 2 free; held by run-0 (2); "
        "waiting for CPUs: needs 1, 0.5 of 2 free; held by run-0 (1.5)"
    )


# --- random runs

amounts = st.builds(
    Amounts,
    cpus=st.sampled_from((0, 0, 0.5, 1, 2)),
    memory=st.sampled_from((0, 0, 3 * GIB, 10 * GIB, 20 * GIB)),
    gpus=st.sampled_from((0, 0, 1, 2)),
)
#: The GPUs that a run may be given.
visible = st.sampled_from(((0, 1), (0, 1), (0,), (1,), (1, 2), (0, 1, 2)))
submissions = st.tuples(amounts, visible)
#: What happens: a run with these needs is submitted, or one of the runs ends.
happenings = st.lists(st.one_of(submissions, st.integers(0, 9)), max_size=40)


@given(happenings)
def test_nothing_is_given_twice_and_everyone_starts(
    happenings: list[tuple[Amounts, tuple[int, ...]] | int],
) -> None:
    """Each waiting run looks again only when one of the runs that it watches has ended, or another
    one was given GPUs that it might have got."""
    table: dict[str, Reservation] = {}
    watched: dict[str, set[str]] = {}
    submitted = 0

    def look(run_id: str) -> None:
        one, others = table[run_id], list(table.values())
        if admission.shortages(one, others, MACHINE):
            watched[run_id] = {r.run_id for r in admission.awaited(one, others, MACHINE)}
            assert watched[run_id], "it would wait forever"
            return
        assert not admission.awaited(one, others, MACHINE)
        watched.pop(run_id, None)
        table[run_id] = admission.grant(one, others)
        for affected in admission.affected_by_grant(one, others):
            if not table[affected.run_id].granted:
                look(affected.run_id)

    def end(run_id: str) -> None:
        del table[run_id]
        watched.pop(run_id, None)
        for other in [key for key, ids in watched.items() if run_id in ids]:
            if not table[other].granted:
                look(other)

    def check() -> None:
        granted = [one for one in table.values() if one.granted]
        assert sum(one.needs.cpus for one in granted) <= MACHINE.cpus
        assert sum(one.needs.memory for one in granted) <= MACHINE.memory
        devices = [number for one in granted for number in one.gpus]
        assert len(devices) == len(set(devices))
        for one in granted:
            assert {*one.gpus} <= {*one.visible}
            assert len(one.gpus) == min(one.needs.gpus, len(one.visible))
        for one in table.values():
            lacking = admission.shortages(one, list(table.values()), MACHINE)
            assert one.granted or lacking, "it could start, and was not woken"
            later = [r for r in granted if admission.order(r) > admission.order(one)]
            assert one.granted or not admission.shortages(one, later, MACHINE), "it is delayed"

    for happening in happenings:
        if isinstance(happening, tuple):
            submitted += 1
            needs, gpus = happening
            one = replace(run(submitted, visible=gpus), run_id=f"{submitted:03}", needs=needs)
            table[one.run_id] = one
            look(one.run_id)
        elif table:
            end(sorted(table)[happening % len(table)])
        check()
    left = len(table)
    for _ in range(left):  # the runs that have started end, until all have
        end(next(key for key, one in sorted(table.items()) if one.granted))
        check()
    assert not table


@given(st.lists(submissions, min_size=2, max_size=8), st.data())
def test_no_run_delays_an_earlier_one(
    submitted: list[tuple[Amounts, tuple[int, ...]]], data: st.DataObject
) -> None:
    """What an earlier run waits for is the same with and without later runs."""
    runs: dict[str, Reservation] = {}
    for number, (amount, gpus) in enumerate(submitted):
        one = replace(run(number, visible=gpus), needs=amount)
        others = list(runs.values())
        fits = not admission.shortages(one, others, MACHINE)
        runs[one.run_id] = admission.grant(one, others) if fits else one
    chosen = data.draw(st.sampled_from(sorted(runs)))
    earlier = [one for one in runs.values() if one.run_id <= chosen]
    one = runs[chosen]
    if one.granted:
        return
    alone = admission.shortages(one, earlier, MACHINE)
    gone = {r.run_id for r in earlier}  # as soon as the earlier ones have ended, it may start
    later = [r for r in runs.values() if r.run_id not in gone]
    assert not admission.shortages(one, [one, *later], MACHINE)
    assert [s.kind for s in alone] == [
        s.kind for s in admission.shortages(one, list(runs.values()), MACHINE)
    ]
