"""The usage of nodes is recorded at their end, and that of kept nodes when the session closes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.engines.local import usage_recorder
from muster.engines.local.usage_recorder import UsageRecorder
from muster.storage.home import RunDir
from muster.storage.usage import read_usage

#: In place of an agent: a child uses CPU time and ends, then the agent waits.
AGENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.3: pass"])
print(flush=True)
sys.stdin.read()
"""


def in_array(rank: int) -> bool:
    """Of these runs, the nodes from rank 10 on."""
    return rank >= 10


@pytest.fixture
def agent() -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", AGENT]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def end(agent: subprocess.Popen[bytes]) -> float:
    """End an agent; the CPU time of all its processes."""
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.close()
    agent.stdout.close()
    _, _, used = os.wait4(agent.pid, 0)
    agent.returncode = 0
    return used.ru_utime + used.ru_stime


def test_a_node_that_ends_between_two_samples(
    tmp_path: Path, agent: subprocess.Popen[bytes]
) -> None:
    recorder = UsageRecorder(RunDir(tmp_path), in_array)
    assert recorder.timeout() is None
    recorder.start(3, agent.pid, ())
    assert 0 < (recorder.timeout() or 0) <= 1
    cpu = end(agent)
    recorder.end(agent.pid, cpu)
    assert recorder.timeout() is None
    assert read_usage(RunDir(tmp_path)) == {}
    recorder.close()
    (used,) = read_usage(RunDir(tmp_path)).values()
    assert (used.cpu_seconds, used.memory_peak) == (cpu, None)


def test_a_kept_node_is_sampled_when_the_session_closes(
    tmp_path: Path, agent: subprocess.Popen[bytes]
) -> None:
    recorder = UsageRecorder(RunDir(tmp_path), in_array)
    recorder.start(0, agent.pid, ())
    assert agent.stdout is not None
    agent.stdout.readline()
    recorder.close()
    assert read_usage(RunDir(tmp_path))[0].cpu_seconds == pytest.approx(0.3, abs=0.1)
    end(agent)


def test_each_node_of_an_array_has_its_own_usage(
    tmp_path: Path, agent: subprocess.Popen[bytes]
) -> None:
    """The second one takes over the agent."""
    recorder = UsageRecorder(RunDir(tmp_path), in_array)
    recorder.start(10, agent.pid, ())
    assert agent.stdout is not None
    agent.stdout.readline()
    recorder.start(18, agent.pid, ())
    recorder.end(agent.pid, end(agent) + 0.5)
    recorder.close()
    used = read_usage(RunDir(tmp_path))
    assert used[10].cpu_seconds == pytest.approx(0.3, abs=0.1)
    assert used[18].cpu_seconds == pytest.approx(0.5, abs=0.1)


def test_the_usage_of_a_large_array_is_bounded(
    tmp_path: Path, agent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that ended last are kept, and nodes that belong to no array."""
    monkeypatch.setattr("muster.storage.usage.MOST_ENDED", 3)
    recorder = UsageRecorder(RunDir(tmp_path), in_array)
    for rank in (0, 10, 11, 12, 10, 13, 14):
        recorder.start(rank, agent.pid, ())
    recorder.close()
    assert sorted(read_usage(RunDir(tmp_path))) == [0, 10, 12, 13, 14]
    recovered = UsageRecorder(RunDir(tmp_path), in_array)
    recovered.start(15, agent.pid, ())
    recovered.end(agent.pid, end(agent))
    recovered.close()
    assert sorted(read_usage(RunDir(tmp_path))) == [0, 13, 14, 15]


def test_attempts_add_up_and_samples_are_not_taken_before_they_are_due(
    tmp_path: Path, agent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = UsageRecorder(RunDir(tmp_path), in_array)
    first.start(0, agent.pid, ())
    first.end(agent.pid, 2.0)
    first.close()
    second = UsageRecorder(RunDir(tmp_path), in_array)
    second.start(0, agent.pid, ())
    monkeypatch.setattr(usage_recorder, "read_nodes", lambda _: pytest.fail("it is not due"))
    second.step()
    second.end(agent.pid, 3.0)
    second.close()
    assert read_usage(RunDir(tmp_path))[0].cpu_seconds == 5.0
    end(agent)


@pytest.mark.parametrize("error", [RecursionError("too deep"), OSError("too many open files")])
def test_a_sample_that_fails_does_not_end_the_run(
    tmp_path: Path,
    agent: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(usage_recorder, "read_nodes", fail)
    monkeypatch.setattr(usage_recorder, "_SHORTEST", 0.0)
    recorder = UsageRecorder(RunDir(tmp_path), in_array)
    recorder.start(0, agent.pid, ())
    recorder.step()
    recorder.close()
    assert capsys.readouterr().err.count("Traceback") == isinstance(error, RecursionError)
    recorder.end(agent.pid, end(agent))
    recorder.close()
    assert read_usage(RunDir(tmp_path))[0].cpu_seconds > 0


def test_a_deleted_run_is_no_error(tmp_path: Path, agent: subprocess.Popen[bytes]) -> None:
    recorder = UsageRecorder(RunDir(tmp_path / "deleted"), in_array)
    recorder.start(0, agent.pid, ())
    recorder.end(agent.pid, end(agent))
    recorder.close()


def test_starts_do_not_postpone_a_sample(
    tmp_path: Path, agent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 100.0
    monkeypatch.setattr(usage_recorder.time, "monotonic", lambda: clock)
    recorder = UsageRecorder(RunDir(tmp_path), in_array)
    recorder.start(0, agent.pid, ())
    clock += 0.75
    recorder.start(1, os.getpid(), ())
    assert recorder.timeout() == 0.25
    recorder.end(agent.pid, end(agent))


def test_gpus_are_recorded(
    tmp_path: Path, agent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-smi runs beside the session, which reaps it; only the node's own GPUs count."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, 90, 1'; echo '1, 50, 2'; echo '3, 25, 4'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(usage_recorder, "_SHORTEST", 0.0)
    recorder = UsageRecorder(RunDir(tmp_path), in_array)
    recorder.start(0, agent.pid, (1, 3))
    recorder.start(1, os.getpid(), ())
    recorder.step()
    (pid,) = recorder.pids()
    assert os.waitpid(pid, 0) == (pid, 0)
    assert recorder.reaped(pid)
    assert not recorder.reaped(pid)
    assert list(recorder.pids()) == []
    recorder.close()
    used = read_usage(RunDir(tmp_path))
    assert (used[0].gpu_average, used[0].gpu_peak, used[0].gpu_memory_peak) == (0.75, 0.75, 6 << 20)
    assert used[1].gpu_average is None
    end(agent)
