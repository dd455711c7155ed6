"""What every implementation of the interface does: the same tests for each."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from muster.api.interface import MusterAPI
from muster.api.node_access import NodeCommand
from muster.api.notifications import NotificationChange, NotificationRequest
from muster.api.replica_table import TableQuery
from muster.api.retry import Retry
from muster.api.schedules import ScheduleChange
from muster.api.streams import EventItem, Live, LogChunk, Pause, RunItem, Selection
from muster.errors import InvalidInput, NotFound, Unreadable
from muster.lifecycle.schedule import Overlap, Timing
from muster.spec.overrides import changes_from_mapping
from muster.spec.reader import parse_spec, spec_from_mapping
from muster.store.records import NodeFilter, RunFilter
from support.api_runs import prepare, start, wait
from support.faults import until
from support.receivers import receiving

SWEEP = """
echo replica $MUSTER_REPLICA of lr=$MUSTER_PARAM_LR
echo "{\\"loss\\": 1.5, \\"val\\": {\\"acc\\": $MUSTER_PARAM_LR}}" > "$MUSTER_OUTPUTS/metrics.json"
test $MUSTER_REPLICA != 1 || exit 7
"""
PROGRAM = """
echo start
mkdir -p "$MUSTER_OUTPUTS/a"
printf abcdef > "$MUSTER_OUTPUTS/a/file"
ln -s a/file "$MUSTER_OUTPUTS/link"
ln -s /etc/passwd "$MUSTER_OUTPUTS/out"
printf all > "$MUSTER_RUN_OUTPUTS/shared"
echo error >&2
"""


def text_of(api: MusterAPI, run_id: str, selection: Selection) -> bytes:
    items = api.log(run_id, selection)
    return b"".join(item.data for item in items if isinstance(item, LogChunk))


def test_a_run_from_its_start_to_its_end(api: MusterAPI) -> None:
    run = start(api, PROGRAM, nodes=2)
    assert (run.name, run.number, run.state) == ("demo-1", 1, "ACCEPTED")
    *_, last = api.watch(run.id, 60)
    assert isinstance(last, RunItem)
    assert (last.run.id, last.run.state) == (run.id, "SUCCEEDED")
    assert api.run("last") == api.run(run.id) == api.run("demo-1")
    assert api.find_run(run.id[:6]).name == "demo-1"
    assert [(node.rank, node.state) for node in api.nodes(run.id)] == [
        (0, "SUCCEEDED"),
        (1, "SUCCEEDED"),
    ]
    assert api.restarts(run.id) == 0
    assert api.why(run.id) == ["all required nodes succeeded; nodes: 2 succeeded"]
    assert sorted(api.usage(run.id)) == [0, 1]
    assert api.replicas(run.id) == {"workers": 1}
    assert api.limits(run.id) == api.endpoints(run.id) == {}
    assert api.cluster_access(run.id).ca == ""
    # events
    entries = api.events(run.id)
    assert [entry.seq for entry in entries] == [*range(1, len(entries) + 1)]
    assert api.events(run.id, len(entries) - 1) == entries[-1:]
    followed = [item.entry for item in api.follow_events(run.id) if isinstance(item, EventItem)]
    assert followed == entries
    # output
    assert text_of(api, run.id, Selection(streams=["stdout"], ranks=[1])) == b"start\n"
    assert text_of(api, run.id, Selection(grep="err", tail=1)) == b"error\n"
    with pytest.raises(InvalidInput) as caught:
        api.log(run.id, Selection(ranks=[7]))
    assert caught.value.problems[0].path == "rank"
    assert api.log_folder(run.id).endswith("/0")
    # outputs
    found = api.outputs(run.id)
    assert [(one.rank, one.path, one.link) for one in found.files] == [
        (None, "shared", None),
        *(
            (rank, *of)
            for rank in (0, 1)
            for of in (("a/file", None), ("link", "a/file"), ("out", "/etc/passwd"))
        ),
    ]
    assert [one.leaves_outputs for one in found.files] == [False, *[False, False, True] * 2]
    assert [one.rank for one in api.outputs(run.id, ranks=[1]).files] == [1] * 3
    for path in ("a/file", "link"):
        assert api.output(run.id, 0, path).size == 6
        assert b"".join(api.read_output(run.id, 0, path, 2)) == b"cdef"
    for path in ("out", "missing", "../rank-0/a/file"):
        with pytest.raises(Unreadable):
            api.output(run.id, 0, path)
        with pytest.raises(Unreadable):
            api.read_output(run.id, 0, path)
    # its end
    assert api.ranks_with_result(run.id) == []
    assert api.result(run.id, 0) is None
    api.delete(run.id)
    with pytest.raises(NotFound):
        api.nodes(run.id)
    with pytest.raises(NotFound):
        api.run(run.id)


def test_a_run_is_followed_while_it_runs(api: MusterAPI) -> None:
    run = start(api, "echo one; printf two; sleep 1000")
    stdout = Selection(streams=["stdout"])
    with closing(api.log(run.id, stdout, follow=True, live=Live(0, 1))) as log:
        chunk = next(item for item in log if isinstance(item, LogChunk))
        assert (chunk.data, chunk.attempt, chunk.stream.rank) == (b"one\n", 0, 0)
        pauses = (item for item in log if isinstance(item, Pause))
        (line,) = next(pause.unfinished for pause in pauses if pause.unfinished)
        assert (line.line, line.stream) == (b"two", chunk.stream)
    with closing(api.watch(run.id, every=0.01)) as items:
        item = next(items)
        assert isinstance(item, RunItem)
        assert item.run.state == "IN_PROGRESS"
    with pytest.raises(TimeoutError, match="run demo-1 has not ended within 0 s"):
        next(api.watch(run.id, timeout=0))
    assert [*api.counters(run.id)] == [0]
    access = api.node_access
    assert access is not None
    assert access.find(run.id, None).rank == 0
    with pytest.raises(InvalidInput, match="has no rank 3"):
        access.execute(run.id, 3, NodeCommand(("true",)), (0, 1, 2))
    api.cancel(run.id, "enough")
    assert wait(api, run.id) == "CANCELED"
    assert api.find_run(run.id).details == "enough"
    with pytest.raises(InvalidInput, match="has no processes"):
        api.counters(run.id)
    with pytest.raises(InvalidInput, match="has no processes"):
        api.stacks(run.id, [])


def test_a_run_is_followed_in_an_event_loop(api: MusterAPI) -> None:
    run = start(api, "echo one")

    async def follow() -> tuple[list[bytes], list[str], list[str]]:
        log = api.log_async(run.id, Selection(streams=["stdout"]), follow=True)
        lines = [item.data async for item in log if isinstance(item, LogChunk)]
        watched = api.watch_async(run.id, 60)
        states = [item.run.state async for item in watched if isinstance(item, RunItem)]
        events = api.follow_events_async(run.id)
        kinds = [item.entry.kind async for item in events if isinstance(item, EventItem)]
        return lines, states, kinds

    lines, states, kinds = asyncio.run(follow())
    assert (lines, states, kinds[-1]) == ([b"one\n"], ["SUCCEEDED"], "run")


def test_a_run_is_suspended_scaled_and_resumed(api: MusterAPI) -> None:
    group = {"name": "g", "replicas": 1, "max_replicas": 3}
    run = start(api, "sleep 1000", node_groups=[group])
    assert api.suspend(run.id, "pause").id == run.id
    assert wait(api, run.id) == "SUSPENDED"
    assert api.scale(run.id, "g", 2).id == run.id
    assert api.replicas(run.id) == {"g": 2}
    with pytest.raises(InvalidInput):
        api.scale(run.id, "g", 9)
    with pytest.raises(InvalidInput) as caught:
        api.prepare_resume(run.id, changes_from_mapping({"nodes": 3}))
    assert "cannot change while a run is suspended" in str(caught.value)
    overrides = api.prepare_resume(run.id, changes_from_mapping({"max_runtime": "1h"}))
    assert overrides.max_runtime == 3600
    assert api.resume(run.id, overrides).state != "SUSPENDED"
    with pytest.raises(InvalidInput, match="not SUSPENDED"):
        api.resume(run.id)


def test_runs_are_listed_in_pages(api: MusterAPI) -> None:
    prepared = prepare(api, "true", suspend=True)
    names = [api.start(prepare(api, "true", suspend=True)).name for _ in range(5)]
    assert prepared.spec.suspend
    first = api.runs(RunFilter(limit=3))
    assert [run.name for run in first] == names[:1:-1]
    rest = api.runs(RunFilter(limit=3, before=first[-1].position))
    assert [run.name for run in rest] == names[1::-1]
    assert [run.name for run in api.run_records(RunFilter(limit=2))] == names[:-3:-1]
    assert api.runs(RunFilter(states=["FAILED"])) == []  # type: ignore[list-item]


def test_jobs_are_created_edited_and_deleted(api: MusterAPI) -> None:
    spec = spec_from_mapping({"name": "demo", "command": ["true"], "tags": {"a": "b"}})
    prepared = api.prepare_job(spec)
    assert prepared.new
    job = api.create_job(prepared.record)
    assert (job.handle, api.job("demo"), api.jobs(tags={"a": None})) == ("demo@1", job, [job])
    again = api.prepare_job(spec)
    assert (again.new, again.record.id) == (False, job.id)
    assert api.code_size(job.id) is None
    edited = api.edit_job(job.id, ["description=better"])
    assert edited.description == "better"
    assert [entry.kind for entry in api.job_events(job.id)] == ["created", "edited"]
    copied = api.create_job(api.copy_job(job.id))
    assert copied.handle == "demo@2"
    unused = api.prepare_job(spec, always_new=True)
    api.discard(unused.record)
    api.check_deletable([job.id, copied.id])
    assert api.delete_job(job.id).state == "DELETED"
    assert [one.id for one in api.jobs()] == [copied.id]
    with pytest.raises(InvalidInput, match="is deleted"):
        api.copy_job(job.id)
    api.delete_unused_job(copied.id)
    with pytest.raises(NotFound) as caught:
        api.job("nothing")
    assert "no job named 'nothing'" in str(caught.value)


def test_a_schedule_from_its_creation_to_its_end(api: MusterAPI) -> None:
    made = api.create_schedule("nightly", Timing(cron="0 3 * * *"), prepare(api, "true"))
    assert (made.job, made.created_by) == ("demo@1", api.caller().user)
    assert made.next_at is not None and made.next_at > made.created_at
    assert api.schedule("nightly") == api.schedule(made.id) == made
    edited = api.edit_schedule("nightly", ScheduleChange(every=3600.0, overlap=Overlap.ALLOW))
    assert (edited.timing.cron, edited.timing.every) == (None, 3600.0)
    assert edited.next_at == edited.timing.since + 3600
    assert api.pause_schedule(made.id).paused
    assert not api.resume_schedule(made.id).paused
    run = api.trigger_schedule(made.id)
    (firing,) = api.firings("nightly")
    assert (firing.run_id, firing.run_name, firing.outcome) == (run.id, run.name, "started")
    assert wait(api, run.id) == "SUCCEEDED"
    with pytest.raises(InvalidInput, match="schedule nightly starts runs of it"):
        api.delete_job(made.job_id)
    api.delete_schedule("nightly")
    assert api.schedules() == []
    with pytest.raises(NotFound):
        api.firings("nightly")


def test_a_notification_from_its_creation_to_its_end(api: MusterAPI) -> None:
    with receiving() as receiver:
        request = NotificationRequest("hook", receiver.url, ("run.failed",), tags={"a": None})
        made = api.create_notification(request)
        record = made.notification
        assert made.key.startswith("whsec_")
        assert record.target == f"http://127.0.0.1:{receiver.port}/..."
        assert (record.format, record.sealed) == ("cloudevents", {})
        assert api.notification("hook") == api.notification(record.id) == record
        assert api.notifications(limit=1) == [record]
        assert api.notifications(after="hook") == []
        answer = api.test_notification("hook")
        assert (answer.delivered, answer.answer) == (True, "HTTP 200")
        assert receiver.received[0].json["type"] == "muster.test"
    answer = api.test_notification("hook")
    assert (answer.delivered, answer.answer) == (False, "Connection refused")
    change = NotificationChange(on=("job.*",), job="train", tags={}, format="text", new_key=True)
    edited = api.edit_notification("hook", change)
    assert edited.key.startswith("whsec_") and edited.key != made.key
    assert (edited.notification.on, edited.notification.job, edited.notification.tags) == (
        *(("job.*",), "train", {}),
    )
    assert api.edit_notification("hook", NotificationChange(job="")).key == ""
    assert api.pause_notification(record.id).paused
    assert not api.resume_notification("hook").paused
    assert api.deliveries("hook") == api.failed_deliveries() == []
    assert api.retry_deliveries() == api.retry_deliveries("hook") == 0
    api.delete_notification("hook")
    for call in (api.notification, api.deliveries, api.test_notification, api.retry_deliveries):
        with pytest.raises(NotFound):
            call("hook")


def test_a_notification_has_all_its_problems_at_once(api: MusterAPI) -> None:
    with pytest.raises(InvalidInput) as caught:
        api.create_notification(
            NotificationRequest("a b", "ftp://x", ("run.fail", "run.*"), format="xml")
        )
    found = [(problem.path, problem.message) for problem in caught.value.problems]
    assert found == [
        ("", "'a b' is not a valid name of a notification"),
        ("target", "'ftp://x' is not a target"),
        ("on", "there is no event 'run.fail'"),
        (
            "format",
            "must be one of cloudevents, cloudevents-binary, slack, oci, text, not 'xml'",
        ),
    ]
    with pytest.raises(InvalidInput, match="names no event"):
        api.create_notification(NotificationRequest("a", "https://example.com", ()))


def test_a_plan_is_described_and_its_problems_are_found(api: MusterAPI) -> None:
    prepared = prepare(api, "true", resources={"memory": "64MiB"})
    assert prepared.notes == prepared.plan.notes
    limits = api.plan_limits(prepared.plan)
    assert [*limits.memory] == ["workers"]
    assert limits.created == {}
    assert api.dry_run(prepared.plan) == []
    assert api.packed_files(prepared) == []
    assert api.check_framework(prepared.plan, {"PATH": "/bin"}).problems == ()
    problems = api.review(parse_spec({"name": "x", "nodes": 0}), changes_from_mapping({}))
    assert {problem.path for problem in problems} == {"nodes", ""}
    with pytest.raises(InvalidInput, match="there is no program nothing"):
        spec = spec_from_mapping({"name": "demo", "command": ["nothing"]})
        job = api.prepare_job(spec)
        api.start(api.prepare_run(job.record, prepared.overrides, new_job=job.new))
    with pytest.raises(InvalidInput):
        api.start_function(api.prepare_run(job.record, prepared.overrides, new_job=True), b"")


def test_what_muster_is_and_has(api: MusterAPI) -> None:
    assert api.caller().project == "default"
    assert "/" in api.location()
    assert api.space_warning() is None
    names = [shape.name for shape in api.shapes()]
    assert "local" in names
    assert api.shape("local").local
    with pytest.raises(InvalidInput, match="no shape named"):
        api.shape("nothing")
    run = start(api, "true")
    wait(api, run.id)
    assert {item.kind: item.count for item in api.disk()}["runs"] == 1
    # a run whose supervisor still ends is not pruned
    until(lambda: api.prune(0, None, dry_run=True).runs == ("demo-1",), "the run can be pruned")
    assert api.prune(0, None).runs == ("demo-1",)
    assert api.runs(RunFilter()) == []
    api.close()
    assert api.runs(RunFilter()) == []


def test_a_waiting_run_says_what_it_waits_for(api: MusterAPI) -> None:
    run = start(api, "true", suspend=True)
    assert api.waiting_for(run.id) == "submitted suspended"


def test_the_replicas_of_an_array(api: MusterAPI) -> None:
    run = start(api, SWEEP, array={"lr": "0.1,0.2,0.3"})
    assert wait(api, run.id) == "FAILED"
    table = api.replica_table([run.id], TableQuery())
    assert [(row.replica, row.state, row.exit_code, row.parameters) for row in table.rows] == [
        (0, "SUCCEEDED", 0, {"lr": "0.1"}),
        (1, "FAILED", 7, {"lr": "0.2"}),
        (2, "SUCCEEDED", 0, {"lr": "0.3"}),
    ]
    assert table.rows[2].metrics == {"loss": 1.5, "val.acc": 0.3}
    assert (table.matching, table.states) == (3, {"SUCCEEDED": 2, "FAILED": 1})
    sorted_table = api.replica_table([run.id], TableQuery("val.acc", descending=True, limit=1))
    assert [row.replica for row in sorted_table.rows] == [2]
    with pytest.raises(InvalidInput, match="has no width"):
        api.replica_table([run.id], TableQuery("width"))
    with pytest.raises(InvalidInput, match="unknown state 'asleep'"):
        api.replica_table([run.id], TableQuery(states=["ASLEEP"]))
    assert [node.replica for node in api.shown_nodes(run.id)] == [1]
    assert [node.rank for node in api.nodes(run.id, NodeFilter(states=["FAILED"]))] == [1]
    assert api.last_event(run.id) == api.events(run.id)[-1].seq
    # again
    prepared = api.prepare_retry(run.id, Retry())
    assert prepared.notes[0] == "retries 1 of 3 replicas of demo-1: 1"
    again = api.start(prepared)
    assert again.job_id == run.job_id
    assert wait(api, again.id) == "FAILED"
    both = api.replica_table([run.id, again.id], TableQuery())
    assert [(row.run, row.replica) for row in both.rows] == [
        ("demo-1", 0),
        ("demo-2", 1),
        ("demo-1", 2),
    ]
    assert text_of(api, again.id, Selection(streams=["stdout"])) == b"replica 1 of lr=0.2\n"


@pytest.mark.parametrize(
    ("retry", "problem"),
    [
        (Retry(), "no replica of demo-1 has failed"),
        (Retry("unfinished"), "all replicas of demo-1 have succeeded"),
        (Retry(only="2"), "demo-1 has no replica 2"),
        (Retry(only="a"), "'a' is not a replica number"),
    ],
)
def test_a_retry_without_replicas_is_refused(api: MusterAPI, retry: Retry, problem: str) -> None:
    run = start(api, "true", array={"lr": "0.1,0.2"})
    assert wait(api, run.id) == "SUCCEEDED"
    with pytest.raises(InvalidInput, match=problem):
        api.prepare_retry(run.id, retry)


def test_only_an_array_that_is_not_in_progress_is_retried(api: MusterAPI) -> None:
    with pytest.raises(InvalidInput, match="demo-1 has no array"):
        api.prepare_retry(start(api, "true").id, Retry())
    run = start(api, "sleep 1000", array={"lr": "0.1,0.2"})
    with pytest.raises(InvalidInput, match="demo-2 is still"):
        api.prepare_retry(run.id, Retry())
    api.cancel(run.id)
    wait(api, run.id)
    assert api.prepare_retry(run.id, Retry("unfinished")).plan.policy.initial_size == 2


def test_engines_are_listed_and_checked(api: MusterAPI) -> None:
    local = next(engine for engine in api.engines() if engine.name == "local")
    assert (local.origin, local.unusable) == ("built in", "")
    assert local.capabilities is not None and local.capabilities["exec"]
    assert all(finding.name for finding in api.check_engine("local"))
    with pytest.raises(InvalidInput, match="no engine named 'locl' is installed"):
        api.check_engine("locl")
