"""Names, numbers, ids and prefixes of ids, against a model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from muster.errors import InvalidInput, MusterError, NotFound
from muster.store.base import Store
from muster.store.records import JobRecord, RunFilter, RunRecord
from muster.store.sqlite.store import SqliteStore
from support.store_records import PROJECT, accept, job

# names that look like names of runs, like ids, or like keywords
NAMES = st.sampled_from(["a", "a-1", "a-1-2", "a-", "last", "ocid1.a", "aab", "aaab"])
# 8 of them: prefixes are often ambiguous
IDS = st.text("ab", min_size=3, max_size=3).map("aab".__add__)
PREFIXES = st.text("ab", max_size=3) | st.text("ab", max_size=3).map("aab".__add__)
STATES = ["ACCEPTED", "FAILED"]


DISPLAY_NAMES = st.sampled_from([None, "my job", "a", "ab"])


#: Finds a Job or a run: (store, text).
Find = Callable[[Store, str], JobRecord | RunRecord]


def job_record(job_id: str, name: str, content: str, display_name: str | None = None) -> JobRecord:
    return job(name, id=job_id, content_hash=content, display_name=display_name, spec={})


def find_job(store: Store, text: str) -> JobRecord:
    return store.jobs.find(PROJECT, text)


def find_run(store: Store, text: str) -> RunRecord:
    return store.runs.find(PROJECT, text)


def outcome(find: Find, store: Store, text: str) -> str:
    """The id found, or the kind of error."""
    try:
        return find(store, text).id
    except MusterError as error:
        return type(error).__name__


def expected(text: str, exact: list[str], ids: list[str]) -> str:
    if exact:
        return exact[0]
    matches = [known for known in ids if len(text) >= 4 and known.startswith(text)]
    return matches[0] if len(matches) == 1 else "InvalidInput" if matches else "NotFound"


def newest(job: JobRecord) -> tuple[bool, int]:
    """A sort key: active Jobs first, then the newest version."""
    return job.state == "DELETED", -job.version


class Names(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.store: Store = SqliteStore.open(Path(self.folder.name) / "m.db")
        self.jobs: list[JobRecord] = []
        self.runs: list[RunRecord] = []

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(job_id=IDS, name=NAMES, content=st.sampled_from("xyz"), display_name=DISPLAY_NAMES)
    def add_job(self, job_id: str, name: str, content: str, display_name: str | None) -> None:
        known = [job for job in self.jobs if job.id == job_id]
        record = job_record(job_id, name, content, display_name)
        if known and known[0].state == "DELETED":
            with pytest.raises(InvalidInput, match="is deleted"):
                self.store.jobs.insert(record)
            return
        kept = self.store.jobs.insert(record)
        known = known or [job for job in self.active if job.content_hash == content]
        if known:
            assert kept in known
        else:
            newest = max((job.version for job in self.jobs if job.name == name), default=0)
            assert (kept.id, kept.version) == (job_id, newest + 1)
            self.jobs.append(kept)

    @property
    def active(self) -> list[JobRecord]:
        return [job for job in self.jobs if job.state == "ACTIVE"]

    @rule(data=st.data(), display_name=DISPLAY_NAMES)
    def edit_job(self, data: st.DataObject, display_name: str | None) -> None:
        if not self.jobs:
            return
        job = data.draw(st.sampled_from(self.jobs))
        edited = replace(job, display_name=display_name, updated_at=job.updated_at + 1)
        if job.state == "DELETED":
            with pytest.raises(InvalidInput, match="is deleted"):
                self.store.jobs.update(job, edited, by="ann", changes={})
            return
        self.store.jobs.update(job, edited, by="ann", changes={})
        self.jobs[self.jobs.index(job)] = edited

    @rule(data=st.data())
    def delete_job(self, data: st.DataObject) -> None:
        if not self.jobs:
            return
        job = data.draw(st.sampled_from(self.jobs))
        alive = [run for run in self.runs if (run.job_id, run.state) == (job.id, "ACCEPTED")]
        if alive and job.state == "ACTIVE":
            with pytest.raises(InvalidInput, match=f"{alive[0].name} is ACCEPTED"):
                self.store.jobs.delete(job.id, by="ann", now=3.0)
            return
        assert self.store.jobs.delete(job.id, by="ann", now=3.0) is (job.state == "ACTIVE")
        self.jobs[self.jobs.index(job)] = replace(job, state="DELETED")

    @rule(data=st.data(), run_id=IDS)
    def add_run(self, data: st.DataObject, run_id: str) -> None:
        if not self.jobs or run_id in {run.id for run in self.runs}:
            return
        of = data.draw(st.sampled_from(self.jobs))
        state = data.draw(st.sampled_from(STATES))
        at = float(data.draw(st.integers(0, 99)))  # clocks may be set back

        def enter() -> RunRecord:
            return accept(self.store, of, id=run_id, created_at=at, state=state)

        if of.state == "DELETED":
            with pytest.raises(InvalidInput, match="is deleted"):
                enter()
            return
        run = enter()
        assert run.job_id == of.id
        before = [known.number for known in self.runs if known.job_name == of.name]
        assert run.number == max(before, default=0) + 1
        assert run.name == f"{of.name}-{run.number}"
        self.runs.append(run)

    @rule(text=st.one_of(PREFIXES, NAMES, DISPLAY_NAMES.map(str)))
    def find_job(self, text: str) -> None:
        named = sorted((j for j in self.jobs if j.name == text), key=newest)
        exact = [j.id for j in self.jobs if j.id == text] + [j.id for j in named]
        if not exact:
            called = sorted((j for j in self.jobs if j.display_name == text), key=newest)
            meant = [j for j in called if j.state == "ACTIVE"] or called
            if len({j.name for j in meant}) > 1:
                assert outcome(find_job, self.store, text) == "SameName"
                return
            exact = [j.id for j in meant]
        ids = [job.id for job in self.jobs]
        prefix = text.removeprefix("ocid1.")
        assert outcome(find_job, self.store, text) == expected(prefix, exact, ids)

    @invariant()
    def lists_of_jobs_hold_all(self) -> None:
        assert self.store.jobs.listing(PROJECT, deleted=True) == self.jobs[::-1]
        assert self.store.jobs.listing(PROJECT) == self.active[::-1]

    @rule(name=NAMES, version=st.integers(0, 3))
    def find_version(self, name: str, version: int) -> None:
        exact = [j.id for j in self.jobs if (j.name, j.version) == (name, version)]
        named = any(job.name == name for job in self.jobs)
        found = "NoSuchVersion" if named and not exact else expected("", exact, [])
        assert outcome(find_job, self.store, f"{name}@{version}") == found

    @rule(text=PREFIXES, ocid=st.booleans())
    def find_run(self, text: str, ocid: bool) -> None:
        ids = [run.id for run in self.runs]
        query = f"ocid1.datasciencejobrun.oc1..{text}" if ocid else text
        assert outcome(find_run, self.store, query) == expected(text, [], ids)

    @invariant()
    def names_are_unique_and_find_their_run(self) -> None:
        names = [run.name for run in self.runs]
        assert len(set(names)) == len(names)
        for run in self.runs:
            assert self.store.runs.find(PROJECT, run.name) == run
            assert self.store.runs.find(PROJECT, run.id) == run

    @invariant()
    def last_is_the_newest(self) -> None:
        newest = self.runs[-1].id if self.runs else "NotFound"
        assert outcome(find_run, self.store, "last") == newest

    @invariant()
    def lists_hold_all(self) -> None:
        listed = [run.id for run in self.store.runs.listing(PROJECT, RunFilter())]
        assert listed == [run.id for run in reversed(self.runs)]
        alive = {run.id for run in self.runs if run.state == "ACCEPTED"}
        assert {run.id for run in self.store.runs.live()} == alive


TestNames = Names.TestCase
TestNames.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.fixture
def eight(store: Store) -> Store:
    """A store with eight versions of a Job."""
    for number in range(8):
        store.jobs.insert(job_record(f"abcd{number}", "train", str(number)))
    return store


@pytest.mark.parametrize("text", ["", "\udcff", "a\0b", "%", "abcd_", "*", "x" * 100_000, "ocid1."])
@pytest.mark.parametrize("find", [find_job, find_run])
def test_invalid_names_are_not_found(eight: Store, find: Find, text: str) -> None:
    with pytest.raises(NotFound, match=r"no (job|run) named"):
        find(eight, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trian", "no job named 'trian' (did you mean train?)"),
        ("zzz", "no job named 'zzz' (`muster jobs list` lists them)"),
        ("train@9", "job 'train' has no version '9' (it has versions 1 to 8)"),
        ("train@", "job 'train' has no version '' (it has versions 1 to 8)"),
        ("train@01", "job 'train' has no version '01' (it has versions 1 to 8)"),
        (
            "abcd",
            "several jobs have an id that starts with 'abcd': abcd0 (train), abcd1 (train), "
            "abcd2 (train), abcd3 (train), abcd4 (train), ...",
        ),
    ],
)
def test_messages_about_unknown_and_ambiguous_names(eight: Store, text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        eight.jobs.find(PROJECT, text)
    assert str(caught.value) == message


def test_an_id_takes_precedence_over_a_name_that_looks_like_it(eight: Store) -> None:
    """Scripts store ids; a Job whose name equals an id must not be found instead."""
    eight.jobs.insert(job_record("zzzz", "abcd3", "its own"))
    assert eight.jobs.find(PROJECT, "abcd3").id == "abcd3"


def test_an_ambiguous_display_name_lists_the_jobs(eight: Store) -> None:
    for number in range(2):
        eight.jobs.insert(job_record(f"z{number}", f"net-{number}", f"z{number}", "The net"))
    eight.jobs.insert(job_record("y", "other", "y", "Other"))
    message = "several jobs are named 'The net': net-1@1, net-0@1 (use an id)"
    with pytest.raises(InvalidInput) as caught:
        eight.jobs.find(PROJECT, "The net")
    assert str(caught.value) == message
    assert eight.jobs.find(PROJECT, "Other").id == "y"
    with pytest.raises(NotFound, match="did you mean Other"):
        eight.jobs.find(PROJECT, "Othr")


def test_a_name_takes_precedence_over_a_display_name(eight: Store) -> None:
    eight.jobs.insert(job_record("z", "net", "z", "train"))
    assert eight.jobs.find(PROJECT, "train").id == "abcd7"


def test_runs_are_found_by_display_name(eight: Store) -> None:
    of = eight.jobs.find(PROJECT, "train")

    def enter(run_id: str, display_name: str) -> None:
        accept(eight, of, id=run_id, display_name=display_name)

    enter("r1", "worker")
    enter("r2", "train-3")
    enter("r3", "scheduler")
    assert eight.runs.find(PROJECT, "worker").id == "r1"
    assert eight.runs.find(PROJECT, "train-3").id == "r3"
    enter("r4", "worker")
    with pytest.raises(InvalidInput) as caught:
        eight.runs.find(PROJECT, "worker")
    expected = "several runs are named 'worker': train-4, train-1 (use an id)"
    assert str(caught.value) == expected
