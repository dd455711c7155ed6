"""Files and commands of the server's machine."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muster.notify import local
from muster.notify.formats import Format, Message, write
from muster.notify.local import append_line, run_command
from muster.notify.oci_events import OciNames
from support.outbox_entries import run_entry

NAMES = OciNames("ocid1.compartment.x", "vision")
MESSAGE = write(run_entry(), Format.CLOUDEVENTS, NAMES)


def test_each_event_is_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    file = folder / "all.jsonl"
    answer = append_line(file, [folder], MESSAGE)  # the folder is made
    assert (answer.delivered, answer.text) == (True, f"appended to {file}")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: append_line(file, [folder], MESSAGE), range(20)))
    lines = file.read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["event1event1"] * 21
    assert file.stat().st_mode & 0o777 == 0o600


def test_only_below_the_folders_that_are_allowed(tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
    (allowed / "link").symlink_to(other)
    (allowed / "file").symlink_to(other / "file")
    (allowed / "folder").mkdir()
    os.mkfifo(allowed / "pipe")
    assert append_line(other / "a", [allowed], MESSAGE).final
    assert append_line(allowed / "link" / "a", [allowed], MESSAGE).final
    for name in ("file", "folder", "pipe"):  # nobody reads from the pipe
        assert not append_line(allowed / name, [allowed], MESSAGE).delivered
    assert list(other.iterdir()) == []
    assert append_line(other / "a", [allowed, tmp_path], MESSAGE).delivered


def test_a_full_disk_is_told() -> None:
    answer = append_line(Path("/dev/full"), [Path("/dev")], MESSAGE)
    assert answer.text == "/dev/full: No space left on device"


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_a_command_gets_the_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    file = tmp_path / "seen"
    code = (
        "import json, os, sys\n"
        f"json.dump([json.load(sys.stdin)['id'], dict(os.environ)], open({str(file)!r}, 'w'))"
    )
    answer = run_command(python(code), run_entry(), MESSAGE)
    assert (answer.delivered, answer.text) == (True, "exit code 0")
    event, environ = json.loads(file.read_text())
    assert event == "event1event1"
    assert environ.pop("MUSTER_EVENT_TYPE") == "run.failed"
    assert environ.keys() - {"LC_CTYPE"} == {"PATH", "LANG", "MUSTER_EVENT_ID", "MUSTER_PROJECT"}


def test_a_command_that_fails() -> None:
    code = "import sys; print('a\\nbroken pager', file=sys.stderr); sys.exit(3)"
    answer = run_command(python(code), run_entry(), MESSAGE)
    assert (answer.delivered, answer.final) == (False, False)
    assert answer.text == "exit code 3: a\\nbroken pager"
    missing = run_command(["/nothing/here"], run_entry(), Message(b"", "", ""))
    assert missing.text == "/nothing/here cannot be started: No such file or directory"


def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "_TIMEOUT", 0.5)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    argv = ["/bin/sh", "-c", f"sleep 600 >{pipe} & sleep 600 >{pipe}"]
    answer = run_command(argv, run_entry(), MESSAGE)
    assert answer.text == "/bin/sh has not ended within 0s"
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # nobody has it open any more: both were ended
    os.close(reader)
