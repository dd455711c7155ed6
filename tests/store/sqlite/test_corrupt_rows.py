"""Corrupt rows: an error names the row and a solution, and nothing else is affected."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from muster.cli.main import cli
from muster.client.client import Client
from muster.control import run_lock
from muster.errors import MusterError
from support.embedded import embedded
from support.runs import until_ready

MUTANTS = int(os.environ.get("MUSTER_MUTANTS", "20"))
VALUES: list[Any] = [
    None,
    "",
    "garbage",
    "[]",
    "{}",
    "null",
    '{"cut": [1',
    '{"groups": [{}], "policy": 3}',
    '["x", 3, null]',
    '"text"',
    "DELETED",
    "IN_PROGRESS",
    3,
    -1.5,
    1e300,
    -1e300,
    float("inf"),
    2**62,
    "[" * 3000,
    b"\xff\xfe",
]
READING = [
    "runs list",
    "runs list --json",
    "jobs list",
    "runs show victim-1",
    "runs show victim-1 --json",
    "events victim-1",
    "events victim-1 --json",
    "logs victim-1",
    "jobs show victim",
    "jobs list --json",
    "runs wait victim-1 --timeout 1s",
    "runs resume victim-1",
    "runs scale victim-1 workers=1",
    "runs suspend victim-1 --no-wait",
    "runs cancel victim-1 --no-wait",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, bytes]]:
    home = tmp_path_factory.mktemp("corrupt")
    client = Client(home)
    for name in ("victim", "other"):
        job, new = client.job(command=["echo", "hello"], name=name)
        client.start(client.prepare_run(job, new_job=new)).wait(60)
    # includes the WAL: a supervisor that is about to end may still have the file open
    with closing(sqlite3.connect(home / "muster.db")) as connection:
        content = connection.serialize()
    embedded(client).store.close()
    yield home, content
    embedded(client).close()


def restore(made: tuple[Path, bytes]) -> sqlite3.Connection:
    home, content = made
    for path in home.glob("muster.db*"):
        path.unlink()
    (home / "muster.db").write_bytes(content)
    connection = sqlite3.connect(home / "muster.db", isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    return connection


def muster(home: Path, line: str) -> tuple[int, str, str]:
    """Exit code, output and error of a command. Unexpected exceptions are raised."""
    result = CliRunner().invoke(
        cli, line.split(), env={"MUSTER_HOME": str(home)}, standalone_mode=False
    )
    error = result.exception
    if error is None or isinstance(error, click.exceptions.Exit):
        return (result.return_value or 0), result.stdout, result.stderr
    if isinstance(error, (MusterError, click.ClickException)):
        return error.exit_code, result.stdout, str(error)
    raise AssertionError(f"{line}: {error!r}") from error


def columns(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    found = []
    for table in ("runs", "run_specs", "plans", "nodes", "events", "jobs"):
        for _, name, *_ in connection.execute(f"PRAGMA table_info({table})"):
            # with any number in expires_at, the run may be deleted; with another project, it is
            # that project's
            kept = ("id", "run_id", "job_id", "rank", "seq", "name", "expires_at", "project")
            if name not in kept:
                found.append((table, name))
    return found


def damage(
    connection: sqlite3.Connection, table: str, column: str, value: Any, name: str = "victim-1"
) -> bool:
    where = {"runs": f"name = '{name}'", "jobs": "name = 'victim'"}.get(
        table, f"run_id = (SELECT id FROM runs WHERE name = '{name}')"
    )
    try:
        if isinstance(value, bytes):
            sql = f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {where}"
        else:
            sql = f"UPDATE {table} SET {column} = ? WHERE {where}"
        connection.execute(sql, (value,))
    except sqlite3.IntegrityError:
        return False  # refused by a constraint
    return True


def check_commands(home: Path) -> None:
    """Check that commands work for other runs, and that the damaged run can be deleted."""
    for line in READING:
        muster(home, line)
    code, out, _ = muster(home, "runs list")
    assert code == 0
    assert "other-1" in out
    assert "victim-1" in out
    for line in ("runs show other-1", "events other-1", "jobs show other"):
        assert muster(home, line)[0] == 0
    assert "hello" in muster(home, "logs other-1 --json")[1] + "hello"
    code, _, error = muster(home, "runs delete victim-1")
    assert code == 0 or "IN_PROGRESS" in error or "runs cancel" in error, error


def test_a_damaged_column_affects_only_its_run(
    made: tuple[Path, bytes], rng: random.Random
) -> None:
    connection = restore(made)
    # with another project, the run is in another list
    damaged = [(table, column) for table, column in columns(connection) if column != "project"]
    every = [(table, column, value) for table, column in damaged for value in VALUES]
    connection.close()
    for table, column, value in rng.sample(every, MUTANTS):
        connection = restore(made)
        changed = damage(connection, table, column, value)
        connection.close()
        if changed:
            try:
                check_commands(made[0])
            except BaseException as error:
                error.add_note(f"{table}.{column} = {value!r}")
                raise


def test_the_error_names_the_run_the_column_and_a_solution(made: tuple[Path, bytes]) -> None:
    connection = restore(made)
    assert damage(connection, "run_specs", "origins", '{"a": ')
    connection.close()
    code, _, error = muster(made[0], "runs show victim-1")
    assert code == 2
    assert error.startswith("the record of run victim-1 (id ")
    assert f"{made[0]}/muster.db is corrupt: origins: " in error
    advice = error.split("`")[1]
    assert advice.startswith("muster rm ")
    assert muster(made[0], advice.removeprefix("muster "))[0] == 0
    assert muster(made[0], "runs show victim-1")[0] == 2
    assert "victim-1" not in muster(made[0], "runs list")[1]


@pytest.mark.parametrize("table", ["run_specs", "plans", "nodes", "events"])
def test_missing_rows_affect_only_their_run(made: tuple[Path, bytes], table: str) -> None:
    connection = restore(made)
    connection.execute(
        f"DELETE FROM {table} WHERE run_id = (SELECT id FROM runs WHERE name = 'victim-1')"
    )
    connection.close()
    check_commands(made[0])


#: Valid JSON, most of it with a wrong type.
WRONG: list[Any] = [None, "x", 1.5, [], {}, -(2**70), ["x"], True]


@pytest.mark.parametrize("kind", ["attempt", "resumed"])
@pytest.mark.parametrize(
    "data", [{}, *({"attempt": value} for value in WRONG if value is not True)]
)
def test_a_damaged_start_of_an_attempt_is_named(
    made: tuple[Path, bytes], kind: str, data: dict[str, Any]
) -> None:
    connection = restore(made)
    connection.execute(
        "UPDATE events SET kind = ?, data = ? WHERE seq = 1 AND run_id = "
        "(SELECT id FROM runs WHERE name = 'victim-1')",
        (kind, json.dumps(data)),
    )
    connection.close()
    if (number := data.get("attempt")) != -(2**70):
        code, _, error = muster(made[0], "logs victim-1")
        assert code == 2
        assert f"is corrupt: its attempt is {number!r}; `muster events " in error
    check_commands(made[0])


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(
    "path",
    ["$.groups[0].name", "$.groups[0].replicas", "$.groups[0].nodes", "$.groups", "$.artifact"],
)
def test_a_damaged_part_of_the_plan_affects_only_its_run(
    made: tuple[Path, bytes], path: str, value: Any
) -> None:
    connection = restore(made)
    connection.execute(
        "UPDATE plans SET plan = json_set(plan, ?, json(?)) WHERE run_id = "
        "(SELECT id FROM runs WHERE name = 'victim-1')",
        (path, json.dumps(value)),
    )
    connection.close()
    check_commands(made[0])


# --- rows of running runs

#: Columns that a supervisor reads (DRIVEN), and columns that recovery reads (LOST).
DRIVEN = [
    ("runs", "scale_requested", '{"cut": [1'),
    ("runs", "cancel_reason", 3),
    ("runs", "state", "SUCCEEDED"),
    ("plans", "plan", '{"groups": [{}], "policy": 3}'),
]
LOST = [
    ("runs", "state", "garbage"),
    ("run_specs", "spec", "garbage"),
    ("run_specs", "overrides", "garbage"),
    ("runs", "scale_requested", '["x", 3, null]'),
    ("runs", "lifecycle", '"text"'),
    ("plans", "plan", '{"groups": [{}], "policy": 3}'),
    ("nodes", "state", "garbage"),
    ("nodes", "intent", '{"cut": [1'),
    ("events", "time", "garbage"),
]


def command(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "muster", *argv],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "MUSTER_HOME": str(home)},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = Client(tmp_path_factory.mktemp("live"))
    yield client
    embedded(client).close()


def _cases() -> Iterator[object]:
    """The first of each kind; each takes some seconds, so that the others are slow tests."""
    for lost, every in ((False, DRIVEN), (True, LOST)):
        for number, damaged in enumerate(every):
            yield pytest.param(*damaged, lost, marks=[pytest.mark.slow] if number > 1 else [])


@pytest.mark.parametrize(("table", "column", "value", "lost"), [*_cases()])
def test_a_live_run_can_be_canceled_and_deleted(
    live: Client,
    alive: Callable[[str], list[str]],
    table: str,
    column: str,
    value: Any,
    lost: bool,
) -> None:
    """lost: whether the run's supervisor was killed."""
    mark = f"of-a-corrupt-run-{os.urandom(8).hex()}"
    job, new = live.job(command=["sleep", "1000"], name="victim", env={"MARK": mark})
    run = live.start(live.prepare_run(job, new_job=new))
    until_ready(run)
    home = embedded(live).home
    with closing(sqlite3.connect(home.database, isolation_level=None, timeout=30)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        assert damage(connection, table, column, value, run.name)
    if lost:
        supervisor = run_lock.holder_pid(home.run_dir(run.id).lock)
        assert supervisor is not None
        os.kill(supervisor, signal.SIGKILL)
    command(home.root, "runs", "wait", run.name, "--timeout", "0s")
    if value != "SUCCEEDED":
        done = command(home.root, "runs", "cancel", run.name)
        assert done.returncode == 0, done.stderr
        assert f"{run.name} is" in done.stdout
        assert not alive(mark)
        done = command(home.root, "runs", "cancel", "--json", run.name)
        assert done.returncode == 0, done.stderr
        assert [canceled["id"] for canceled in json.loads(done.stdout)] == [run.id]
    done = command(home.root, "runs", "delete", run.name)
    assert done.returncode == 0, done.stderr
    assert run.name not in command(home.root, "runs", "list").stdout
    assert not alive(mark)
