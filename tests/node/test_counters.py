"""What is read from /proc agrees with what the programs know of themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from muster.node import counters
from muster.node.counters import Process, processes_of, read_nodes
from support.faults import until

#: In place of an agent: it starts the program, and waits for it.
AGENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"

#: Uses a known time, in itself and in a child that ends, memory and disk, and reports them.
PROGRAM = """
    import json, os, resource, subprocess, sys, time
    burn = "import time\\nwhile time.process_time() < 1.2: pass"
    exec(burn)
    subprocess.run([sys.executable, "-c", burn])
    data = os.urandom(1 << 20) * 150
    with open("file", "wb") as file:
        file.write(data[: 8 << 20])
        os.fsync(file.fileno())
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    io = dict(line.split(": ") for line in open("/proc/self/io"))
    smaps = [line for line in open("/proc/self/smaps_rollup") if line.startswith("Pss:")]
    print(json.dumps({
        "cpu": sum(one.ru_utime + one.ru_stime for one in used),
        "memory": int(smaps[0].split()[1]) * 1024,
        "written": int(io["write_bytes"]),
    }), flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux")
def test_counters_agree_with_the_program_within_2_percent(tmp_path: os.PathLike[str]) -> None:
    words = [sys.executable, "-c", AGENT, textwrap.dedent(PROGRAM)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, cwd=tmp_path, **pipes) as agent:  # type: ignore[call-overload]
        told = json.loads(agent.stdout.readline())
        found = read_nodes([agent.pid])[agent.pid].counters
        # the kernel counts four times (two processes, in user mode and in its own) in hundredths
        assert found.cpu == pytest.approx(told["cpu"], rel=0.02)
        assert found.memory == pytest.approx(told["memory"], rel=0.02)
        assert found.disk_written == pytest.approx(told["written"], rel=0.02)
        assert (found.processes, found.received, found.sent) == (1, None, None)
        assert found.memory > 150 << 20
        agent.stdin.close()


def test_orphans_and_nested_processes_belong_to_the_node() -> None:
    """Below a process that adopts orphans, as an agent does."""
    script = """
        import subprocess, sys
        from muster.node import processes
        processes.become_subreaper()
        subprocess.run(["sh", "-c", "sleep 1000 & sh -c 'sleep 1000 & wait' & exit 0"])
        print(flush=True)
        sys.stdin.read()
        processes.end_children(())
    """
    words = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        until(lambda: len(processes_of([agent.pid])[agent.pid]) == 3)
        assert read_nodes([agent.pid])[agent.pid].counters.processes == 3
        assert read_nodes([agent.pid, 2**22 + 1]).keys() == {agent.pid}
        agent.communicate()


def test_a_chain_of_any_length_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    first = 2**22 + 1  # above the largest pid there can be
    chain = [Process(first + n, first + n - 1, 1, 0, 1) for n in range(1, 5001)]
    agent, other = Process(first, 1, 1, 0, 1), Process(first + 9999, 1, 1, 0, 1)
    monkeypatch.setattr(counters, "_processes", lambda: iter([*chain, agent, other]))
    assert processes_of([first]) == {first: [process.pid for process in chain]}
    assert read_nodes([first])[first].counters.processes == 5000
