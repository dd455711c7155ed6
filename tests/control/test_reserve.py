"""Reserve GPUs, without runs: this machine is given some."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from muster.client.client import Client
from muster.control import reserve
from muster.control.persist import plan_of
from muster.control.scale import scale
from muster.engines import machine
from muster.engines.base import RunContext, Session
from muster.engines.local.engine import LocalEngine
from muster.engines.loop import EventLoop, RunLoop
from muster.engines.reservations import table
from muster.engines.reservations.gpus import RunGpus
from muster.engines.reservations.queued import QueuedSession
from muster.engines.reservations.table import Reservations
from muster.errors import InvalidInput
from muster.lifecycle.events import EngineEvent, RunAdmitted, RunQueued, SessionClosed
from muster.service.prepare import PreparedRun
from muster.service.start import record, run_folder
from muster.storage import wakeup
from support.embedded import embedded
from support.runs import start_spec

#: Submits a run that asks for GPUs, as `start` does but without a supervisor, and returns its id.
Submit = Callable[[int], str]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The GPUs of the machine."""
    numbers = [0, 1, 2, 3]
    for module in (machine, table):
        monkeypatch.setattr(module, "gpu_numbers", lambda: list(numbers))
    return numbers


@pytest.fixture
def supervisors() -> Iterator[ExitStack]:
    """Holds the liveness pipes of the runs open."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def run_loop() -> Iterator[RunLoop]:
    """The share of a run in the loop."""
    with closing(EventLoop()) as loop:
        yield RunLoop(loop, pytest.fail)


@pytest.fixture
def submit(client: Client, gpus: list[int], supervisors: ExitStack) -> Submit:
    context = embedded(client).context

    def submit(count: int) -> str:
        job, new = client.job(None, command=["true"], resources={"gpus": count})
        prepared: PreparedRun = client.prepare_run(job, new_job=new)
        supervisors.enter_context(run_folder(context, prepared.plan, context.submission))

        def store(lacking: object) -> str:
            return record(context, prepared).name

        sizes = {"workers": 1}
        reserve.reserve(context.store, context.home, prepared.plan, sizes, store)
        return prepared.plan.run_id

    return submit


def given(client: Client) -> list[tuple[int, ...] | None]:
    """The GPUs of each run in the table; None for one that waits."""
    table = Reservations(embedded(client).home).read()
    return [one.gpus if one.granted else None for one in table]


def test_each_gpu_is_given_to_one_run(client: Client, submit: Submit) -> None:
    for count in (1, 2, 2, 1):
        submit(count)
    assert given(client) == [(0,), (1, 2), None, None], "the last one must not overtake"
    texts = LocalEngine().waiting(embedded(client).home).values()
    assert [*texts] == [
        "waiting for GPUs: needs 2, 1 of 4 free; held by true-1 (1), true-2 (2)",
        "waiting for GPUs: needs 1, 1 of 4 free; held by true-1 (1), true-2 (2); "
        "1 earlier run gets it first",
    ]


def test_gpus_of_ended_runs_are_given_again(
    client: Client, submit: Submit, supervisors: ExitStack
) -> None:
    submit(4)
    supervisors.close()  # of the first run
    submit(3)
    assert given(client) == [(0, 1, 2)]


def test_gpus_that_are_locked_by_older_runs_are_not_given_away(
    client: Client, submit: Submit, gpus: list[int]
) -> None:
    home = embedded(client).home
    submit(1)
    (home.root / "reservations.json").unlink()
    (home.root / "gpus").mkdir()
    with (home.root / "gpus" / "gpu-2").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        submit(3)
        submit(1)
    assert given(client) == [(2,), (0, 1, 3), None]


@pytest.mark.parametrize("damage", ["{", "an id that is no file name", "a link to a device"])
def test_a_damaged_table_is_made_again(client: Client, submit: Submit, damage: str) -> None:
    run_id = submit(2)
    table = embedded(client).home.root / "reservations.json"
    if "id" in damage:
        table.write_text(table.read_text().replace(run_id, "..\\u0000"))
    elif "link" in damage:
        table.unlink()
        table.symlink_to("/dev/zero")
    else:
        table.write_text(damage)
    submit(3)
    assert given(client) == [(), None], "the nodes of the first run have not started"


def test_a_run_that_is_scaled_up_keeps_its_gpus_and_gets_more(
    client: Client, submit: Submit
) -> None:
    service = embedded(client)
    run = service.store.runs.get(submit(1))
    submit(1)
    plan, group = plan_of(run), "workers"
    reserve.reserve_scaled(service.store, service.home, run, plan, group, 3)
    assert given(client) == [(0, 2, 3), (1,)]
    with pytest.raises(InvalidInput, match="needs 4, 3 of 4 free; held by true-2"):
        reserve.reserve_scaled(service.store, service.home, run, plan, group, 4)
    reserve.reserve_scaled(service.store, service.home, run, plan, group, 1)
    assert given(client) == [(0, 2, 3), (1,)], "it frees none before it ends"


def test_a_process_that_sees_other_gpus_changes_no_run(
    client: Client, submit: Submit, gpus: list[int]
) -> None:
    """As one that scales a run from a shell with another CUDA_VISIBLE_DEVICES, or in a node."""
    service = embedded(client)
    gpus[:] = [0, 1]
    run = service.store.runs.get(submit(1))
    waiting = submit(2)
    gpus[:] = [1]
    (text,) = LocalEngine().waiting(service.home).values()
    assert text == "waiting for GPUs: needs 2, 1 of 2 free; held by true-1 (1)"
    plan, group = plan_of(run), "workers"
    reserve.reserve_scaled(service.store, service.home, run, plan, group, 2)
    assert given(client) == [(0, 1), None], "it keeps GPU 0"
    queued = service.store.runs.get(waiting)
    reserve.reserve_scaled(service.store, service.home, queued, plan_of(queued), group, 1)
    assert reserve.reserve_again(service.store, service.home, queued, plan_of(queued))
    (_, reservation) = Reservations(service.home).read()
    assert reservation.visible == (0, 1)
    assert given(client) == [(0, 1), None]


def test_a_run_is_not_scaled_beyond_the_gpus_that_it_may_be_given(
    client: Client, gpus: list[int], supervisors: ExitStack
) -> None:
    gpus[:] = [0, 1]
    service = embedded(client)
    group = {"name": "g", "max_replicas": 3, "resources": {"gpus": 1}}
    job, new = client.job(None, command=["true"], node_groups=[group])
    prepared: PreparedRun = client.prepare_run(job, new_job=new)
    plan = prepared.plan
    supervisors.enter_context(run_folder(service.context, plan, service.context.submission))

    def store(lacking: object) -> str:
        return record(service.context, prepared).name

    reserve.reserve(service.store, service.home, plan, plan.policy.replicas_at_once, store)
    gpus[:] = [1, 2, 3]
    run = service.store.runs.get(plan.run_id)
    with pytest.raises(InvalidInput, match="all nodes together need 3 GPUs, this machine has 2"):
        scale(service.store, service.home, run, "g", 3, "")
    scale(service.store, service.home, run, "g", 2, "")
    assert given(client) == [(0, 1)]


def test_a_run_that_was_scaled_is_resumed_only_if_its_nodes_have_gpus(
    client: Client, gpus: list[int], tmp_path: Path
) -> None:
    group = {"name": "g", "max_replicas": 3, "command": ["true"], "resources": {"gpus": 1}}
    run = start_spec(client, {"node_groups": [group], "suspend": True}, tmp_path)
    run.scale("g", 2)
    gpus[:] = [0]
    for overrides in ({}, {"env": {"A": "1"}}):
        with pytest.raises(
            InvalidInput, match="all nodes together need 2 GPUs, this machine has 1"
        ):
            run.resume(**overrides)
    assert run.refresh().state == "SUSPENDED"


def context_of(client: Client, run_id: str) -> RunContext:
    plan = plan_of(embedded(client).store.runs.get(run_id))
    return RunContext(plan, embedded(client).home, {}, "python")


def test_a_supervisor_that_sees_other_gpus_gives_nodes_those_of_its_run(
    client: Client, submit: Submit, gpus: list[int], run_loop: RunLoop
) -> None:
    gpus[:] = [0, 1]
    run = embedded(client).store.runs.get(submit(2))
    gpus[:] = [1]
    opened: list[RunGpus] = []
    session = cast(Session, object())

    def open_session(given: RunGpus) -> Session:
        opened.append(given)
        return session

    QueuedSession(context_of(client, run.id), run_loop, [].append, open_session)
    assert opened[0].visible == 2
    assert opened[0].numbers() == (0, 1)


def test_a_run_that_might_have_got_the_gpu_of_another_one_wakes_it(
    client: Client, submit: Submit, gpus: list[int], run_loop: RunLoop
) -> None:
    home = embedded(client).home
    gpus[:] = [0, 1]
    holder, either = submit(2), submit(1)
    gpus[:] = [1]
    pinned = submit(1)
    with Reservations(home).change() as table:
        del table[holder]
    (_, text) = LocalEngine().waiting(home).values()
    assert text == "waiting for GPUs: needs 1, 1 of 1 free; 1 earlier run gets it first"
    descriptor = wakeup.open(home.run_dir(pinned).wakeup)
    session = cast(Session, object())
    QueuedSession(context_of(client, either), run_loop, [].append, lambda _: session)
    assert wakeup.pending(home.run_dir(pinned).wakeup)
    os.close(descriptor)
    assert given(client) == [(0,), None]
    QueuedSession(context_of(client, pinned), run_loop, [].append, lambda _: session)
    assert given(client) == [(0,), (1,)]


def test_a_run_that_waits_looks_again_when_it_is_notified(
    client: Client, submit: Submit, gpus: list[int], run_loop: RunLoop
) -> None:
    gpus[:] = [0]
    holder, waiting = submit(1), submit(1)
    opened = cast(Session, SimpleNamespace(notified=lambda: None, close=lambda: None))
    reported: list[EngineEvent] = []
    context = context_of(client, waiting)
    session = QueuedSession(context, run_loop, reported.extend, lambda _: opened)
    session.notified()
    assert [type(one) for one in reported] == [RunQueued]
    with Reservations(embedded(client).home).change() as table:
        del table[holder]
    session.notified()
    session.notified()
    assert [type(one) for one in reported] == [RunQueued, RunAdmitted]


def test_a_run_that_waits_can_be_closed(
    client: Client, submit: Submit, gpus: list[int], run_loop: RunLoop
) -> None:
    gpus[:] = [0]
    submit(1)
    context = context_of(client, submit(1))
    reported: list[EngineEvent] = []
    session = QueuedSession(context, run_loop, reported.extend, pytest.fail)
    for _ in range(2):
        session.close()
    session.notified()
    session.finish_logs()
    assert [type(one) for one in reported] == [RunQueued, SessionClosed]


def test_a_run_that_can_never_wait_is_only_recorded(client: Client) -> None:
    job, new = client.job(None, command=["true"])
    plan = client.prepare_run(job, new_job=new).plan
    recorded: list[object] = []

    def store(lacking: object) -> str:
        recorded.append(lacking)
        return "run"

    home = embedded(client).home
    reserve.reserve(embedded(client).store, home, plan, plan.policy.replicas_at_once, store)
    assert recorded == [()]
    assert not (home.root / "reservations.json").exists()
    assert not (home.root / "reservations.lock").exists()
