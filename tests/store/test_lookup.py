"""Names, numbers, ids and their beginnings, against a model of what is there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from muster.errors import InvalidInput, MusterError, NotFound
from muster.store import jobs, runs
from muster.store.database import Database
from muster.store.records import JobRecord, NodeRecord, RunRecord

# names that could be taken for each other's runs, for ids, or for words with a meaning
NAMES = st.sampled_from(["a", "a-1", "a-1-2", "a-", "last", "ocid1.a", "aab", "aaab"])
IDS = st.text("ab", min_size=4, max_size=4)  # 16 of them: prefixes are often ambiguous
STATES = ["ACCEPTED", "FAILED"]


def job_record(job_id: str, name: str, content: str) -> JobRecord:
    return JobRecord(job_id, name, 0, content, {}, None, None, "", {}, 1.0, 1.0)


def run_record(run_id: str, job: JobRecord, number: int, name: str, at: float) -> RunRecord:
    return RunRecord(
        id=run_id,
        name=name,
        number=number,
        job_id=job.id,
        job_name=job.name,
        state=STATES[number % 2],
        details="",
        engine="local",
        attempt=0,
        created_at=at,
        started_at=None,
        finished_at=None,
        exit_code=None,
        node_count=0,
        spec={},
        origins={},
        overrides={},
        plan={},
        lifecycle={},
        notes=[],
        cancel_requested_at=None,
        cancel_reason=None,
    )


def outcome(find: object, db: Database, text: str) -> str:
    """The id that was found, or the kind of error."""
    try:
        return find(db, text).id  # type: ignore[operator, no-any-return]
    except MusterError as error:
        return type(error).__name__


def expected(text: str, exact: list[str], ids: list[str]) -> str:
    if exact:
        return exact[0]
    begin = [known for known in ids if text and known.startswith(text)]
    return begin[0] if len(begin) == 1 else "InvalidInput" if begin else "NotFound"


class Store(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.db = Database.open(Path(self.folder.name) / "m.db")
        self.jobs: list[JobRecord] = []
        self.runs: list[RunRecord] = []

    def teardown(self) -> None:
        self.db.close()
        self.folder.cleanup()

    @rule(job_id=IDS, name=NAMES, content=st.sampled_from("xyz"))
    def add_job(self, job_id: str, name: str, content: str) -> None:
        kept = jobs.insert(self.db, job_record(job_id, name, content))
        known = [job for job in self.jobs if job.id == job_id]
        known = known or [job for job in self.jobs if job.content_hash == content]
        if known:
            assert kept in known
        else:
            newest = max((job.version for job in self.jobs if job.name == name), default=0)
            assert (kept.id, kept.version) == (job_id, newest + 1)
            self.jobs.append(kept)

    @rule(data=st.data(), content=st.sampled_from("xyz"))
    def edit_job(self, data: st.DataObject, content: str) -> None:
        if not self.jobs:
            return
        job = data.draw(st.sampled_from(self.jobs))
        jobs.update(
            self.db, job.id, spec={}, content_hash=content, description="", tags={}, now=2.0
        )
        self.jobs[self.jobs.index(job)] = replace(job, content_hash=content, updated_at=2.0)

    @rule(data=st.data(), run_id=IDS)
    def add_run(self, data: st.DataObject, run_id: str) -> None:
        if not self.jobs or run_id in {run.id for run in self.runs}:
            return
        job = data.draw(st.sampled_from(self.jobs))
        at = float(data.draw(st.integers(0, 99)))  # clocks may be set back

        def build(kept: JobRecord, number: int, name: str) -> tuple[RunRecord, list[NodeRecord]]:
            return run_record(run_id, kept, number, name, at), []

        run = runs.insert(self.db, job, build)
        assert run.job_id == job.id
        before = [known.number for known in self.runs if known.job_name == job.name]
        assert run.number == max(before, default=0) + 1
        assert run.name == f"{job.name}-{run.number}"
        self.runs.append(run)

    @rule(text=st.one_of(st.text("ab", max_size=4), NAMES))
    def find_job(self, text: str) -> None:
        named = sorted((j for j in self.jobs if j.name == text), key=lambda j: -j.version)
        exact = [j.id for j in self.jobs if j.id == text] + [j.id for j in named]
        ids = [job.id for job in self.jobs]
        assert outcome(jobs.find, self.db, text) == expected(text, exact, ids)

    @rule(name=NAMES, version=st.integers(0, 3))
    def find_version(self, name: str, version: int) -> None:
        exact = [j.id for j in self.jobs if (j.name, j.version) == (name, version)]
        assert outcome(jobs.find, self.db, f"{name}@{version}") == expected("", exact, [])

    @rule(text=st.text("ab", max_size=4), ocid=st.booleans())
    def find_run(self, text: str, ocid: bool) -> None:
        ids = [run.id for run in self.runs]
        asked = f"ocid1.datasciencejobrun.oc1..{text}" if ocid else text
        assert outcome(runs.find, self.db, asked) == expected(text, [], ids)

    @invariant()
    def names_are_unique_and_find_their_run(self) -> None:
        names = [run.name for run in self.runs]
        assert len(set(names)) == len(names)
        for run in self.runs:
            assert runs.find(self.db, run.name) == run
            assert runs.find(self.db, run.id) == run

    @invariant()
    def last_is_the_newest(self) -> None:
        newest = self.runs[-1].id if self.runs else "NotFound"
        assert outcome(runs.find, self.db, "last") == newest

    @invariant()
    def lists_hold_all(self) -> None:
        listed = [run.id for run in runs.listing(self.db)]
        assert listed == [run.id for run in reversed(self.runs)]
        alive = {run.id for run in self.runs if run.state == "ACCEPTED"}
        assert {run.id for run in runs.live(self.db)} == alive


TestStore = Store.TestCase
TestStore.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "m.db")
    for number in range(8):
        jobs.insert(database, job_record(f"abc{number}", "train", str(number)))
    yield database
    database.close()


@pytest.mark.parametrize("text", ["", "\udcff", "a\0b", "%", "abc_", "*", "x" * 100_000, "ocid1."])
@pytest.mark.parametrize("find", [jobs.find, runs.find])
def test_odd_words_are_simply_not_found(db: Database, find: object, text: str) -> None:
    with pytest.raises(NotFound, match=r"no (job|run) called"):
        find(db, text)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trian", "no job called 'trian' (did you mean train?)"),
        ("zzz", "no job called 'zzz' (`muster jobs list` shows what there is)"),
        ("train@9", "job 'train' has no version '9' (it has versions 1 to 8)"),
        ("train@", "job 'train' has no version '' (it has versions 1 to 8)"),
        ("train@01", "job 'train' has no version '01' (it has versions 1 to 8)"),
        (
            "ab",
            "several jobs have an id that begins with 'ab': abc0 (train), abc1 (train), "
            "abc2 (train), abc3 (train), abc4 (train), ...",
        ),
    ],
)
def test_messages(db: Database, text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        jobs.find(db, text)
    assert str(caught.value) == message


def test_id_goes_before_a_name_that_looks_like_it(db: Database) -> None:
    """Scripts keep ids; a Job that somebody calls like one must not come in between."""
    jobs.insert(db, job_record("zzzz", "abc3", "its own"))
    assert jobs.find(db, "abc3").id == "abc3"
