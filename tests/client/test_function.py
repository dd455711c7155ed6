"""Functions as jobs, from a module, a script and a notebook; on real nodes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.client import packing
from muster.errors import InvalidInput, RunFailed
from support.mpi import needs_mpich

pytestmark = pytest.mark.skipif(
    find_spec("cloudpickle") is None, reason="cloudpickle is not installed"
)
MINUTE = 60


class Odd(Exception):  # noqa: N818
    """Cannot be unpickled: its arguments differ from those of its constructor."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Ours(ValueError):  # noqa: N818
    pass


def twice(number: int) -> int:
    return 2 * number


@muster.job(nodes=2)
def add(one: int, *, two: int = 0) -> int:
    """Adds."""
    return twice(one) + two + int(os.environ["NODE_RANK"])


@muster.job(nodes=3)
def fail(how: str) -> Any:
    import time

    if os.environ["NODE_RANK"] != "1":
        time.sleep(600)
    match how:
        case "ours":
            raise Ours("boom")
        case "odd":
            raise Odd(1, 2)
        case "exit":
            raise SystemExit(3)
        case "kill":
            os.kill(os.getpid(), 9)
        case "lock":
            return threading.Lock()


def test_calling_a_job_calls_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_RANK", "0")
    assert add(1, two=1) == 3
    assert (add.__name__, add.__doc__, repr(add)) == ("add", "Adds.", "<FunctionJob add>")


def test_results_are_returned(client: muster.Client) -> None:
    run = add.submit(20, two=2)
    assert run.result(MINUTE) == 42
    assert run.results() == [42, 43]
    assert run.state == "SUCCEEDED"
    assert add.attach(run.name).result() == 42

    other = add.options(nodes=3).submit(1)
    assert other.results(MINUTE) == [2, 3, 4]
    assert other.job_id == run.job_id  # the number of nodes belongs to the run
    renamed = add.options(framework="pytorch", name="sum").submit(1)
    assert renamed.job_name == "sum"
    assert renamed.results(MINUTE) == [2, 3]


@pytest.mark.slow
def test_each_process_has_a_result(client: muster.Client) -> None:
    @muster.job(nodes=2, processes_per_node=2)
    def rank() -> int:
        return int(os.environ["RANK"])

    assert rank.submit().results(MINUTE) == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("distributed") is None, reason="dask.distributed is not installed")
def test_only_the_main_node_calls_the_function(client: muster.Client) -> None:
    @muster.job(framework="dask", nodes=2)
    def where() -> str:
        return os.environ["NODE_RANK"]

    run = where.submit()
    assert run.results(MINUTE) == ["0"]
    assert run.result() == "0"


@pytest.mark.slow
def test_replicas_that_are_not_started_have_no_result(client: muster.Client) -> None:
    @muster.job(node_groups=[{"name": "w", "nodes": 2, "replicas": 1, "max_replicas": 3}])
    def rank() -> int:
        return int(os.environ["NODE_RANK"])

    assert rank.submit().results(MINUTE) == [0, 1]


def test_results_of_processes_that_may_fail(client: muster.Client) -> None:
    @muster.job(
        node_groups=[{"name": "w", "replicas": 3, "min_success": 2}],
        processes_per_node=2,
    )
    def most() -> int:
        if os.environ["NODE_RANK"] == "1":
            raise Ours("one of three")
        return int(os.environ["RANK"])

    run = most.submit()
    assert run.results(MINUTE) == [0, 1, 4, 5]
    assert run.state == "SUCCEEDED"


@pytest.mark.slow
@needs_mpich
def test_results_of_ranks_started_by_a_launcher(client: muster.Client) -> None:
    @muster.job(framework="mpi", nodes=2, processes_per_node=2)
    def rank(culprit: int) -> int:
        from mpi4py import MPI

        if culprit == MPI.COMM_WORLD.rank:
            raise Ours(f"of rank {culprit}")
        MPI.COMM_WORLD.Barrier()
        return int(MPI.COMM_WORLD.rank)

    assert rank.submit(-1).results(MINUTE) == [0, 1, 2, 3]
    with pytest.raises(Ours, match="of rank 3"):
        rank.submit(3).result(MINUTE)


def test_stored_arguments_and_results_are_private(client: muster.Client, own_home: Path) -> None:
    run = add.submit(1)
    run.result(MINUTE)
    stored = [*own_home.rglob("arguments.pickle"), *own_home.rglob("result.pickle")]
    assert len(stored) == 3
    assert {path.stat().st_mode & 0o777 for path in stored} == {0o600}
    run.delete()
    assert not any(path.exists() for path in stored)


def test_the_exception_of_the_function_is_raised(client: muster.Client) -> None:
    run = fail.submit("ours")
    with pytest.raises(Ours) as caught:
        run.result(MINUTE)
    assert caught.value.args == ("boom",)
    (note,) = caught.value.__notes__
    first, second, *_, last = note.splitlines()
    assert first == f"on rank 1 of {run.name}:"
    assert second == "Traceback (most recent call last):"
    assert last.endswith("Ours: boom")
    assert "node/function.py" not in note  # only the frames of the function
    with pytest.raises(Ours):
        run.results()
    assert run.cause is not None
    assert run.cause["message"].splitlines()[-1].endswith("Ours: boom")


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("odd", "Odd: 1 and 2"),
        ("exit", "{run} is FAILED: node-1 (group workers, rank 1) failed with exit code 3"),
        ("lock", "TypeError: the function returned a lock, which cannot be sent back: "),
    ],
)
def test_exceptions_that_cannot_be_sent_raise_run_failed(
    client: muster.Client, how: str, text: str
) -> None:
    run = fail.submit(how)
    with pytest.raises(RunFailed) as caught:
        run.result(MINUTE)
    assert str(caught.value).startswith(text.replace("{run}", run.name))


def test_a_killed_node_fails_the_call(client: muster.Client) -> None:
    with pytest.raises(RunFailed, match=r"\(signal 9, SIGKILL\)"):
        fail.submit("kill").result(MINUTE)


def test_waiting_for_a_result_raises_on_timeout_and_cancel(client: muster.Client) -> None:
    run = fail.options(nodes=1).submit("ours")
    with pytest.raises(TimeoutError):
        run.result(0)
    run.cancel()
    with pytest.raises(RunFailed, match="is CANCELED: canceled by user"):
        run.result(MINUTE)


@pytest.mark.slow
def test_the_result_of_the_last_incarnation_counts(client: muster.Client, tmp_path: Path) -> None:
    @muster.job(failure={"max_restarts": 1})
    def flaky(mark: str) -> str:
        if not Path(mark).exists():
            Path(mark).touch()
            raise Ours("the first time")
        if os.environ["MUSTER_RESTART"] == "0":
            return "never"
        os._exit(7) if "dies" in mark else None
        return "the second time"

    assert flaky.submit(str(tmp_path / "a")).result(MINUTE) == "the second time"
    with pytest.raises(RunFailed, match="exit code 7"):
        flaky.submit(str(tmp_path / "dies")).result(MINUTE)


def test_a_function_can_be_run_by_its_name(client: muster.Client) -> None:
    @muster.job
    def greet(whom: str = "you") -> str:
        return f"hello {whom}"

    assert greet.submit("me").result(MINUTE) == "hello me"
    again = muster.get_job("greet").run()
    again.wait(MINUTE)
    assert greet.attach(again.id).result() == "hello you"


def test_recursive_functions_and_closures(client: muster.Client) -> None:
    """A function that calls itself by its decorated name, and a closure."""
    base = 10

    @muster.job
    def factorial(n: int) -> int:
        return base if n < 2 else n * factorial(n - 1)

    assert factorial.submit(3).result(MINUTE) == 60


# --- errors before anything starts


def test_arguments_that_cannot_be_sent_are_refused(client: muster.Client) -> None:
    with pytest.raises(InvalidInput) as caught:
        add.submit(1, two=threading.Lock())  # type: ignore[arg-type]
    assert str(caught.value).startswith("arguments: argument two of add cannot be sent: ")

    lock = threading.Lock()

    @muster.job
    def holds() -> None:
        print(lock)

    with pytest.raises(InvalidInput) as caught:
        holds.submit()
    assert str(caught.value).startswith("function: the function holds cannot be sent: ")
    assert client.runs() == []


def test_arguments_that_are_too_large_are_refused(
    client: muster.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_SIZE", 1 << 20)

    @muster.job
    def size(data: bytes) -> int:
        return len(data)

    with pytest.raises(InvalidInput) as caught:
        size.submit(bytes(1 << 20))
    assert str(caught.value) == (
        "arguments: argument 1 of size takes more than 1MiB "
        "(put large values into a mount, and pass their path)"
    )
    assert size.submit(bytes(1 << 19)).result(MINUTE) == 1 << 19


def test_wrong_calls_and_options_are_refused(client: muster.Client) -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'one'"):
        add.submit()  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="frmework: unknown field"):
        add.options(frmework="pytorch").submit(1)
    with pytest.raises(InvalidInput, match="nodes: must be at least 1, not 0"):
        add.options(nodes=0).submit(1)
    with pytest.raises(InvalidInput, match="command: is the function itself"):
        muster.job(command="ls")(twice).submit(1)
    assert client.runs() == []


def test_a_missing_cloudpickle_is_reported(
    client: muster.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(InvalidInput) as caught:
        add.submit(1)
    assert str(caught.value) == ("functions need cloudpickle (pip install 'muster-jobs[function]')")


def test_another_python_version_is_reported(
    client: muster.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = pickle.loads(packing.pack_function(twice, "twice")) | {"python": [3, 2]}
    monkeypatch.setattr(packing, "pack_function", lambda *_: pickle.dumps(sent))
    run = muster.job(twice).submit(1)
    with pytest.raises(RunFailed):
        run.result(MINUTE)
    assert run.cause is not None
    assert "the function twice is of Python 3.2 and cannot be called by" in run.cause["message"]


# --- scripts and notebooks as callers

SCRIPT = """
import sibling, muster

class Mine(Exception):
    pass

@muster.job(nodes=2)
def work(number):
    if number < 0:
        raise Mine(sibling.NAME)
    return sibling.name(number)

if __name__ == "__main__":
    print(work.submit(1).results(60))
    try:
        work.submit(-1).result(60)
    except Mine as error:
        print("Mine:", error)
"""
SIBLING = "import package.more\nNAME = 'sibling'\ndef name(n):\n    return package.more.text(n)\n"
MORE = "def text(n):\n    return f'number {n}'\n"


def test_modules_next_to_the_calling_script_are_sent(client: muster.Client, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "more.py").write_text(MORE)
    (tmp_path / "sibling.py").write_text(SIBLING)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout == "['number 1', 'number 1']\nMine: sibling\n"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nbclient") is None, reason="nbclient is not installed")
def test_functions_defined_in_a_notebook(client: muster.Client, tmp_path: Path) -> None:
    import nbclient
    import nbformat

    cells = [
        "import os, muster\nscale = 3",
        "@muster.job(nodes=2)\ndef work(n):\n    return scale * n + int(os.environ['NODE_RANK'])",
        "print(work.submit(2).results(60))",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    nbclient.NotebookClient(book, kernel_name="python3").execute(cwd=str(tmp_path))
    progress, printed = book.cells[2].outputs
    assert "work-1 SUCCEEDED: nodes 2 SUCCEEDED" in progress["data"]["text/plain"]
    assert printed["text"] == "[6, 7]\n"
