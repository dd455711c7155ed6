"""Real processes of a node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.node import processes
from muster.node.processes import CannotStart


def outputs(folder: Path) -> tuple[str, str]:
    return str(folder / "out"), str(folder / "err")


def wait_for(pid: int) -> tuple[int, int]:
    return processes.exit_of(os.waitpid(pid, 0)[1])


def test_spawn_appends_output_and_returns_the_exit_code(tmp_path: Path) -> None:
    out, err = outputs(tmp_path)
    (tmp_path / "out").write_text("before\n")
    script = "echo hello; echo oops >&2; exit 7"
    pid = processes.spawn(["sh", "-c", script], {"PATH": os.defpath}, out, err)
    assert wait_for(pid) == (7, 0)
    assert (tmp_path / "out").read_text() == "before\nhello\n"
    assert (tmp_path / "err").read_text() == "oops\n"


def test_signals_give_the_exit_codes_of_a_shell(tmp_path: Path) -> None:
    pid = processes.spawn(["sh", "-c", "kill -9 $$"], {"PATH": os.defpath}, *outputs(tmp_path))
    assert wait_for(pid) == (137, 9)


def test_a_program_is_looked_up_on_the_path_of_its_environment(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 5\n")
    tool.chmod(0o755)
    pid = processes.spawn(["tool"], {"PATH": f"{tool.parent}:/bin"}, *outputs(tmp_path))
    assert wait_for(pid) == (5, 0)


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        (["no-such-tool"], 127, "no-such-tool: command not found (PATH is /bin)"),
        (["/no/such/tool"], 127, "no such program: /no/such/tool"),
        (["./plain"], 126, "cannot execute ./plain: Permission denied"),
        (["./plain"], 126, "Permission denied (to make it executable: chmod +x ./plain)"),
        (["./headless"], 126, "a script needs a first line such as #!/bin/sh"),
        (["./python9"], 126, "./python9: its first line names /no/python9, which does not exist"),
        (["./windows"], 126, "its lines end as on Windows (CR LF), so that /bin/sh is not found"),
    ],
)
def test_programs_that_cannot_start_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], code: int, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_text("no program")
    (tmp_path / "headless").write_text("no program")
    (tmp_path / "headless").chmod(0o755)
    (tmp_path / "python9").write_text("#!/no/python9\n")
    (tmp_path / "python9").chmod(0o755)
    (tmp_path / "windows").write_bytes(b"#!/bin/sh\r\n")
    (tmp_path / "windows").chmod(0o755)
    with pytest.raises(CannotStart) as caught:
        processes.spawn(argv, {"PATH": "/bin"}, *outputs(tmp_path))
    assert caught.value.code == code
    assert text in str(caught.value)


def test_children_start_with_default_signals(tmp_path: Path) -> None:
    """Python ignores SIGPIPE; a program that inherits that never ends when its reader does."""
    pid = processes.spawn(
        ["grep", "SigIgn", "/proc/self/status"], {"PATH": os.defpath}, *outputs(tmp_path)
    )
    wait_for(pid)
    ignored = int((tmp_path / "out").read_text().split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))


ADVERSARY = """
    import os, signal, sys, time
    for n in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(n, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            with open(sys.argv[1], "w") as f:
                f.write(str(os.getpid()))
            while True:
                if os.fork() == 0:
                    time.sleep(0.001)
                    os._exit(0)
                os.wait()
        os._exit(0)
    os.wait()
    while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read():
        pass
"""

CHECKER = """
    import os, sys
    from muster.node import processes
    processes.become_subreaper()
    pid = processes.spawn(
        [sys.executable, "-c", sys.argv[1], sys.argv[2]], dict(os.environ), "/dev/null", "/dev/null"
    )
    os.waitpid(pid, 0)
    escaped = int(open(sys.argv[2]).read())
    os.kill(escaped, 0)
    processes.kill_everything(False, [pid])
    try:
        os.kill(escaped, 0)
    except ProcessLookupError:
        sys.exit(0)
    sys.exit("it is still alive")
"""


def test_the_subreaper_finds_daemons(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", textwrap.dedent(CHECKER)]
    done = subprocess.run(
        [*argv, textwrap.dedent(ADVERSARY), str(tmp_path / "pid")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


STRAYS = """
    import os, signal, subprocess, sys
    from muster.node import processes
    processes.become_subreaper()
    known = subprocess.Popen(["sleep", "98762"])
    script = "setsid sh -c 'setsid sleep 98762 & echo; sleep 98762' & wait"
    agent = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
    agent.stdout.read(1)
    assert set(processes.children()) == {known.pid, agent.pid}
    agent.kill()
    agent.wait()
    processes.end_children({known.pid})
    assert processes.children() == [known.pid]
    known.kill()
    known.wait()
    processes.end_children(())
    assert processes.children() == []
"""


def test_orphans_of_a_child_are_found_and_ended(
    alive: Callable[[str], list[str]],
) -> None:
    argv = [sys.executable, "-c", textwrap.dedent(STRAYS)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert alive("98762") == []


OTHERS = """
    import os, subprocess, sys
    from muster.node import processes
    processes.become_subreaper()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    how, mark = sys.argv[1:]
    theirs = subprocess.Popen(["sleep", mark], **quiet)
    os.setuid(65534)
    ours = [subprocess.Popen(["sleep", mark]) for _ in range(2)]
    if how == "everything":
        processes.kill_everything(False, [])
    else:
        processes.end_children(())
    print(processes.children() == [theirs.pid])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of another user")
@pytest.mark.parametrize("how", ["everything", "children"])
def test_a_process_of_another_user_does_not_keep_the_others_alive(
    alive: Callable[[str], list[str]], how: str
) -> None:
    mark = {"everything": "98763", "children": "98764"}[how]  # both may run at once
    argv = [sys.executable, "-c", textwrap.dedent(OTHERS), how, mark]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == "True\n", done.stderr
        assert len(alive(mark)) == 1
    finally:
        for pid in alive(mark):
            os.kill(int(pid), signal.SIGKILL)


def test_children_on_kernels_without_a_list_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    real = open

    def without_list(path: str, *args: str) -> object:
        if path.endswith("/children"):
            raise FileNotFoundError(path)
        return real(path, *args)

    with subprocess.Popen(["sleep", "1000"]) as child:
        monkeypatch.setattr("builtins.open", without_list)
        assert child.pid in processes.children()
        child.kill()
