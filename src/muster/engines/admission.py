"""Which runs may start: a pure rule over the reservations of all runs on this machine.

A run may start when what it needs is free once every earlier run that still waits has been given
what it needs. Runs that compete for one resource therefore start in the order of their
submission, and no run ever delays an earlier one; a run that needs only what earlier ones leave
free starts at once.

GPUs differ: a run may be given only some of the machine's (`Reservation.visible`). One that has
started counts with those that it has. An earlier one that waits counts with as many as it needs
among those that both may be given, as it is not known which ones it will get.

It follows that a waiting run can start when another one ends, when one that waits is scaled down,
or when an earlier one is given its GPUs (`affected_by_grant`). For CPUs and memory, whether an
earlier run waits or has started makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from muster.describe.words import named, plural
from muster.spec.quantities import format_size

Kind = Literal["gpus", "memory", "cpus"]
KINDS: tuple[Kind, ...] = ("gpus", "memory", "cpus")


class Amounts(Struct, frozen=True, omit_defaults=True):
    """Amounts of each kind of resource."""

    cpus: float = 0
    #: Bytes.
    memory: int = 0
    gpus: int = 0

    def of(self, kind: Kind) -> float:
        """The amount of one kind."""
        amount: float = getattr(self, kind)
        return amount


def larger(one: Amounts, other: Amounts) -> Amounts:
    """The larger amount of each kind."""
    return Amounts(
        max(one.cpus, other.cpus), max(one.memory, other.memory), max(one.gpus, other.gpus)
    )


class Capacity(Struct, frozen=True):
    """What this machine has for all runs. Which GPUs there are differs by run:
    `Reservation.visible`."""

    cpus: int
    #: Bytes.
    memory: int


class Reservation(Struct, frozen=True, omit_defaults=True):
    """What one run has, or waits for, until its supervisor ends."""

    #: Names the folder of the run, so that nothing else may be stored in its place.
    run_id: Annotated[str, Meta(pattern=r"\A[0-9a-z]+\Z")]
    #: The run's name.
    run: str
    #: When it was submitted or resumed (epoch seconds).
    since: float
    needs: Amounts
    #: Whether it may start or has started; else it waits.
    granted: bool = False
    #: GPUs that it may be given: those that the process saw that reserved first
    #: (CUDA_VISIBLE_DEVICES). Other processes, which scale the run for instance, may see others.
    visible: tuple[int, ...] = ()
    #: GPUs that it was given.
    gpus: tuple[int, ...] = ()


class Shortage(Struct, frozen=True):
    """A kind of resource that a run waits for."""

    kind: Kind
    #: The amount that the run needs, what no run has, and what the machine has.
    needed: float
    free: float
    capacity: float
    #: The runs that have some, each with its amount.
    holders: tuple[tuple[str, float], ...]
    #: How many earlier runs wait for it, too.
    waiting: int


def order(one: Reservation) -> tuple[float, str]:
    """Sorts reservations: the first to start comes first."""
    return one.since, one.run_id


def ahead_of(run: Reservation, others: Iterable[Reservation]) -> list[Reservation]:
    """The runs that come before a waiting one, in order: those that have started, and those that
    were submitted earlier."""
    found = [
        one
        for one in others
        if one.run_id != run.run_id and (one.granted or order(one) < order(run))
    ]
    return sorted(found, key=order)


def shortages(
    run: Reservation, others: Sequence[Reservation], capacity: Capacity
) -> list[Shortage]:
    """What a run cannot be given yet; empty if it may start."""
    ahead = ahead_of(run, others)
    return [
        _shortage(run, ahead, capacity, kind)
        for kind in KINDS
        if not _fits(run, ahead, capacity, kind)
    ]


def awaited(
    run: Reservation, others: Sequence[Reservation], capacity: Capacity
) -> list[Reservation]:
    """Runs of which at least one has to end before a waiting run can start: too many to fit
    beside it, chosen among the last in order, so that it is woken rarely. Empty if it may start."""
    ahead = ahead_of(run, others)
    kind = next((kind for kind in KINDS if not _fits(run, ahead, capacity, kind)), None)
    found: list[Reservation] = []
    if kind is None:
        return found
    for one in reversed(ahead):
        if _taken(one, run, kind):
            found.append(one)
            if not _fits(run, found, capacity, kind):
                break
    return found


def grant(run: Reservation, others: Sequence[Reservation]) -> Reservation:
    """The reservation of a run that may start, with the GPUs it is given. Those it already has
    stay."""
    given = {number for one in others for number in one.gpus} | {*run.gpus}
    kept: set[int] = set()  # for earlier runs: this one gets others, of which there are enough
    for one in ahead_of(run, others):
        kept.update(sorted({*one.visible} - given - kept)[: _lacking_gpus(one)])
    free = sorted({*run.visible} - given, key=lambda number: (number in kept, number))
    return replace(run, granted=True, gpus=(*run.gpus, *free[: _lacking_gpus(run)]))


def affected_by_grant(run: Reservation, others: Sequence[Reservation]) -> list[Reservation]:
    """The waiting runs that have to look again when a run, which waited until now, has been given
    its GPUs: it might have got others, for which they wait. None if all runs may be given the same
    GPUs."""
    if not _lacking_gpus(run) or len({one.visible for one in others if one.needs.gpus}) <= 1:
        return []
    return [
        one
        for one in others
        if not one.granted and order(one) > order(run) and _taken(run, one, "gpus")
    ]


def describe(lacking: Sequence[Shortage]) -> str:
    """What a run waits for, in numbers."""
    return "; ".join(f"waiting for {_describe(one)}" for one in lacking)


def _total(run: Reservation, capacity: Capacity, kind: Kind) -> float:
    """How much the machine has that the run may be given."""
    if kind == "gpus":
        return len(run.visible)
    return capacity.cpus if kind == "cpus" else capacity.memory


def _needed(run: Reservation, capacity: Capacity, kind: Kind) -> float:
    """All nodes together may ask for more than the machine has: they share it."""
    return min(run.needs.of(kind), _total(run, capacity, kind))


def _taken(one: Reservation, run: Reservation, kind: Kind) -> float:
    """How much of what `run` may be given `one` has or is to be given."""
    if kind == "gpus":
        most = max(_gpu_count(one), len(one.gpus))
        return min(most, len(_possible_gpus(one) & {*run.visible}))
    return one.needs.of(kind)


def _gpu_count(run: Reservation) -> int:
    """How many GPUs a run gets."""
    return min(run.needs.gpus, len(run.visible))


def _lacking_gpus(run: Reservation) -> int:
    """How many GPUs a run is still to be given."""
    return max(0, _gpu_count(run) - len(run.gpus))


def _possible_gpus(one: Reservation) -> set[int]:
    """The GPUs that a run has, and those that it may be given if it has too few."""
    return {*one.gpus, *one.visible} if _lacking_gpus(one) else {*one.gpus}


def _fits(run: Reservation, ahead: Sequence[Reservation], capacity: Capacity, kind: Kind) -> bool:
    needed = _needed(run, capacity, kind)
    taken = sum(_taken(one, run, kind) for one in ahead)
    if kind == "gpus":  # several runs may wait for the same one
        possible = {number for one in ahead for number in _possible_gpus(one)}
        taken = min(taken, len(possible & {*run.visible}))
    left = _total(run, capacity, kind) - taken
    # fractions of a CPU add up with rounding errors
    return not needed or needed <= left + 1e-6


def _shortage(
    run: Reservation, ahead: Sequence[Reservation], capacity: Capacity, kind: Kind
) -> Shortage:
    held = [
        (one.run, amount) for one in ahead if one.granted and (amount := _taken(one, run, kind))
    ]
    total = _total(run, capacity, kind)
    return Shortage(
        kind,
        needed=_needed(run, capacity, kind),
        free=max(0, total - sum(amount for _, amount in held)),
        capacity=total,
        holders=tuple(held),
        waiting=sum(not one.granted and _taken(one, run, kind) > 0 for one in ahead),
    )


#: Runs that a description names.
_NAMED = 3


def _describe(lacking: Shortage) -> str:
    name = {"gpus": "GPUs", "memory": "memory", "cpus": "CPUs"}[lacking.kind]
    return f"{name}: {describe_refusal(lacking)}"


def describe_refusal(lacking: Shortage) -> str:
    """What a run that does not wait lacks, in numbers."""
    kind = lacking.kind
    needed, free = _amount(kind, lacking.needed), _amount(kind, lacking.free)
    text = f"needs {needed}, {free} of {_amount(kind, lacking.capacity)} free"
    if lacking.holders:
        holders = [f"{run} ({_amount(kind, amount)})" for run, amount in lacking.holders]
        text += f"; held by {named(holders, _NAMED)}"
    if lacking.waiting:
        get = "gets" if lacking.waiting == 1 else "get"
        text += f"; {plural(lacking.waiting, 'earlier run')} {get} it first"
    return text


def _amount(kind: Kind, amount: float) -> str:
    return format_size(int(amount)) if kind == "memory" else f"{round(amount, 3):g}"
