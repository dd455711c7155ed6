"""Threads of a root process that act as an account, and processes that become one."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest

from muster.unix_account import (
    UnixAccount,
    act_as,
    acting_as,
    as_root,
    become,
    current,
    process_options,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as others")

NUMBER = 2_099_000_001
ACCOUNT = UnixAccount(NUMBER, NUMBER, (NUMBER,), "/", "somebody")
OTHER = UnixAccount(NUMBER + 1, NUMBER + 1, (NUMBER + 1,), "/", "somebody-else")


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Path]:
    """A file of root alone, in folders that everybody can pass through."""
    changed = [one for one in (tmp_path, *tmp_path.parents) if not one.stat().st_mode & 0o001]
    for folder in changed:
        folder.chmod(folder.stat().st_mode | 0o011)
    file = tmp_path / "private"
    file.touch(0o600)
    yield file
    for folder in changed:
        folder.chmod(0o700)


def may_read(file: Path) -> bool:
    try:
        file.read_bytes()
    except PermissionError:
        return False
    return True


def test_a_thread_has_the_rights_of_whom_it_acts_as(private: Path) -> None:
    with acting_as(ACCOUNT):
        assert current() == ACCOUNT
        assert not may_read(private)
        with as_root():
            assert current() is None
            assert may_read(private)
            with acting_as(OTHER):
                assert not may_read(private)
        assert current() == ACCOUNT
        assert not may_read(private)
    assert current() is None
    assert may_read(private)


def test_the_groups_are_those_of_the_account(private: Path) -> None:
    os.chown(private, 0, NUMBER)
    private.chmod(0o640)
    with acting_as(ACCOUNT):
        assert may_read(private)
        with as_root(), acting_as(OTHER):
            assert not may_read(private)
        assert may_read(private)
    os.chown(private, 0, os.getgid())
    with acting_as(ACCOUNT):
        assert not may_read(private)


def test_what_it_creates_belongs_to_it(private: Path) -> None:
    private.parent.chmod(0o777)
    with acting_as(ACCOUNT):
        made = private.with_name("made")
        made.touch()
    found = made.stat()
    assert (found.st_uid, found.st_gid) == (NUMBER, NUMBER)
    private.parent.chmod(0o711)


def test_other_threads_are_not_affected(private: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(may_read, private).result()
        with acting_as(ACCOUNT):
            assert pool.submit(may_read, private).result()
            assert pool.submit(current).result() is None


def test_a_new_thread_acts_as_the_one_that_starts_it(private: Path) -> None:
    found = []

    def look() -> None:
        found.append((current(), may_read(private)))
        with as_root():
            found.append((current(), may_read(private)))

    with acting_as(ACCOUNT):
        thread = Thread(target=look)
        thread.start()
        thread.join()
    assert found == [(ACCOUNT, False), (None, True)]


def test_an_error_does_not_leave_it_acting() -> None:
    with pytest.raises(ZeroDivisionError), acting_as(ACCOUNT):
        raise ZeroDivisionError
    assert current() is None


def test_a_decorated_function_has_the_rights_of_root(private: Path) -> None:
    read = as_root()(may_read)
    with acting_as(ACCOUNT):
        assert read(private)
        assert not may_read(private)
    assert read(private)


def test_programs_that_it_executes_run_as_the_account() -> None:
    assert process_options() == {}
    with acting_as(ACCOUNT):
        options = process_options()
        done = subprocess.run(
            ["sh", "-c", "id -u; id -g; id -G; umask"],
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
            **options,
        )
    assert done.stdout.split() == [*[str(NUMBER)] * 3, "0077"]


def in_child(work: str) -> str:
    """What a shell prints in a process that has become the account."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            act_as(ACCOUNT)
            become(ACCOUNT)
            done = subprocess.run(["sh", "-c", work], capture_output=True, text=True, check=False)
            os.write(writing, (done.stdout + done.stderr).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as file:
        return file.read()


def test_a_process_becomes_the_account_for_good() -> None:
    status = dict(
        line.split(":\t", 1)
        for line in in_child("cat /proc/self/status").splitlines()
        if ":\t" in line
    )
    assert status["Uid"].split() == [str(NUMBER)] * 4
    assert status["Gid"].split() == [str(NUMBER)] * 4
    assert status["Groups"].split() == [str(NUMBER)]
    assert status["NoNewPrivs"] == "1"
    assert {int(status[f"Cap{kind}"], 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert in_child("umask").strip() == "0077"


def test_setuid_programs_do_not_help_it(private: Path) -> None:
    program = private.with_name("id")
    program.write_bytes(Path("/usr/bin/id").read_bytes())
    program.chmod(0o4755)
    assert in_child(f"{program} -u").strip() == str(NUMBER)


def test_its_own_programs_cannot_look_into_it() -> None:
    # its memory is that of the root process that forked it
    output = in_child("head -c 1 /proc/$PPID/mem; ls /proc/$PPID/fd; head -c 1 /proc/$PPID/environ")
    assert output.count("Permission denied") == 3


def test_switching_takes_next_to_no_time() -> None:
    def used() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_utime

    with acting_as(ACCOUNT):
        pass  # loads what it needs
    before = used()
    for _ in range(1000):
        with acting_as(ACCOUNT):
            pass
    assert used() - before < 0.5
