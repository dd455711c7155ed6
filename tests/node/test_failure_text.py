"""The lines of a program's output that explain its failure. The texts in `failures` are the stderr
of real programs; only paths were changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.node.failure_text import explain

TEXTS = Path(__file__).parent / "failures"
HEAD = "Traceback (most recent call last):"
FRAMES = '  File "train.py", line 3, in main\n    step()'
NOISE = (
    "2025-01-07 10:11:12.131415: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:152] "
    "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)"
)

#: file -> the line that names what went wrong, and how many lines are shown
REASONS = {
    "abort": "terminate called after throwing an instance of 'std::runtime_error' "
    "what():  cannot open shard 3",
    "assertc": "assertc: assert.c:2: main: Assertion `c == 2' failed.",
    "assertion": "AssertionError",
    "bash": "bash: line 1: cd: /nowhere: No such file or directory",
    "carets": "TypeError: 'int' object is not subscriptable",
    "chained": "RuntimeError: no data in /nowhere/data.csv",
    "daskt": "ValueError: bad partition",
    "during": "ValueError: config is broken",
    "elastic": "ValueError: bad batch",
    "exit": "no data found in /data",
    "fault": "Fatal Python error: Segmentation fault "
    "Current thread 0x00007f9568697b80 (most recent call first):",
    "group": "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)",
    "hook": "ValueError: the real one",
    "handled": "ERROR: loss is NaN, giving up",
    "ignored": "ValueError: the real one",
    "jaxt": "TypeError: dot_general requires contracting dimensions to have the same shape, "
    "got (3,) and (2,).",
    "keras3": "ValueError: Attempt to convert a value (PerReplica:{",
    "loader": "ValueError: Caught ValueError in DataLoader worker process 0.",
    "logged": "KeyError: 'lr'",
    "mp": "ValueError: bad batch on 0",
    "multi": "RuntimeError: could not load the model:",
    "nested": "ExceptionGroup: many: things (2 sub-exceptions)",
    "note": "ValueError: shape mismatch",
    "panic": "thread 'main' (21950) panicked at panic.rs:1:55: "
    "index out of bounds: the len is 0 but the index is 3",
    "pool": "ValueError: bad batch on 1",
    "quoted": "E: line one",
    "recursion": "RecursionError: maximum recursion depth exceeded",
    "sparkt": "ValueError: bad row",
    "state": "RuntimeError: Error(s) in loading state_dict for Linear:",
    "torchrun": "step 40: the loss is NaN",
    "torchrun-banner": "torchrun: rank 0 (local_rank: 0): exit code 3 (pid: 6)",
    "torchrun-raised": "ValueError: bad batch",
    "torchrun-recorded": "ValueError: bad batch",
    "torchrun-signal": "torchrun: rank 0 (local_rank: 0): Signal 9 (SIGKILL) received by PID 6",
    "syntax": "SyntaxError: invalid syntax",
    "thread": "ZeroDivisionError: division by zero",
    "threads": "ValueError: the real one",
}
#: file -> what the reason starts with, where the rest is long
STARTS = {
    "ddp-peer": "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc",
    "java": 'Exception in thread "main" java.lang.RuntimeException: job aborted '
    "Caused by: java.lang.NullPointerException: ",
    "rayt": "ray.exceptions.RayTaskError(ValueError): ",
    "tf": "tensorflow.python.framework.errors_impl.InvalidArgumentError: {{function_node",
}


def of(name: str) -> str:
    return (TEXTS / f"{name}.txt").read_text()


def test_every_text_is_in_the_table() -> None:
    assert {path.stem for path in TEXTS.iterdir()} == REASONS.keys() | STARTS.keys()


@pytest.mark.parametrize("name", sorted(REASONS.keys() | STARTS.keys()))
def test_the_reason_is_found_and_shown(name: str) -> None:
    found = explain(of(name))
    if name in REASONS:
        assert found.reasons[0] == REASONS[name]
    assert found.reasons[0].startswith(STARTS.get(name, REASONS.get(name, "")))
    assert found.reasons[0][:40] in " ".join(line.strip() for line in found.lines)
    assert len(found.lines) <= 20
    again = explain("\n".join(found.lines))
    assert again == found, "the shown lines are explained the same way"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("rayt", "ValueError: bad shard"),
        ("group", "    | ValueError: shard 3 is damaged"),
        ("group", "    | KeyError: 'x'"),
        ("java", "NullPointerException"),
        ("chained", "FileNotFoundError: [Errno 2] No such file or directory"),
        ("during", "KeyError: 'lr'"),
        ("multi", "(see the log)"),
        ("note", "batch 17 of shard 3"),
        ("keras3", "}) with an unsupported type"),
        ("state", 'Unexpected key(s) in state_dict: "x".'),
        ("logged", "no data found in /data"),
        ("handled", "KeyError: 'k'"),
        ("handled", "ERROR:root:ignored, using the default"),
        ("loader", "    raise exception"),
        ("loader", "ValueError: bad image 0"),
        ("nested", "  | ExceptionGroup: many: things (2 sub-exceptions)"),
        ("nested", "      | TypeError: t"),
        ("nested", "KeyError: 'inner'"),
        ("quoted", "last line"),
    ],
)
def test_more_lines_are_shown(name: str, shown: str) -> None:
    assert any(shown in line for line in explain(of(name)).lines)


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("tf", "cpu_feature_guard"),
        ("jaxt", "For simplicity, JAX has removed"),
        ("ignored", "too late"),
        ("threads", "queue closed"),
        ("elastic", "Connection closed by peer"),
        ("torchrun", "ChildFailedError"),
        ("torchrun", "Root Cause"),
        ("torchrun", "failed (exitcode: 1)"),
        ("java", "at Main.main"),
        ("panic", "rust_begin_unwind"),
    ],
)
def test_other_lines_are_hidden(name: str, hidden: str) -> None:
    assert hidden in of(name)
    assert not any(hidden in line for line in explain(of(name)).lines)


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        pytest.param(
            f"{HEAD}\n{FRAMES}\n    ~~^^\n^^^^^^\nValueError: a",
            ["ValueError: a"],
            id="marks in the first column",
        ),
        pytest.param(
            f"{HEAD}\n{HEAD}\n{FRAMES}\n{FRAMES}\nValueError: a\nValueError: a",
            ["ValueError: a"],
            id="two processes line by line",
        ),
        pytest.param(
            f"{HEAD}\n{FRAMES}\nI0000 00:00:17.1 2 x.cc:3] up\nsaving ...\nmy.Failure: a\n{NOISE}",
            ["my.Failure: a"],
            id="other output between",
        ),
        pytest.param(f"{NOISE}\nno such shard\n{NOISE}", ["no such shard"], id="noise around"),
        pytest.param(NOISE, [NOISE], id="nothing but noise"),
        pytest.param(
            f"{HEAD}\n{FRAMES}\nOSError: a\n\nThe above exception was the direct cause of the "
            f"following exception:\n\n{HEAD}\n{FRAMES}\nKeyError: b\n\nThe above exception was the "
            f"direct cause of the following exception:\n\n{HEAD}\n{FRAMES}\nValueError: c",
            ["ValueError: c", "KeyError: b", "OSError: a"],
            id="twice raised from another",
        ),
        pytest.param(
            f"{HEAD}\n{FRAMES}\nConnectionResetError: a\n\nDuring handling of the above exception, "
            f"another exception occurred:\n\n{HEAD}\n{FRAMES}\nValueError: b",
            ["ValueError: b"],
            id="raised while handling another",
        ),
        pytest.param(
            f"{HEAD}\n{FRAMES}\nValueError: a\nterminate called without an active exception",
            ["ValueError: a"],
            id="and a crash at the end",
        ),
        pytest.param(
            "Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call "
            "last):\n  File x\nValueError: bad row\n\n\tat org.apache.spark.Executor.run",
            ["ValueError: bad row"],
            id="in a Java exception",
        ),
        pytest.param(
            "-" * 75 + "\nValueError                Traceback (most recent call last)\n"
            "Cell In[1], line 1\n----> 1 raise ValueError('a')\n\nValueError: a",
            ["ValueError: a"],
            id="in a notebook",
        ),
        pytest.param(
            "╭── Traceback (most recent call last) ──╮\n│ train.py:3 in main │\n│ ❱ 3 x    │\n"
            "╰────╯\nValueError: a",
            ["ValueError: a"],
            id="in a frame",
        ),
        pytest.param(
            f"\x1b[36m(f pid=12, ip=10.0.0.1)\x1b[0m {HEAD}\n\x1b[36m(f pid=12, ip=10.0.0.1)\x1b[0m"
            f"   File x\n\x1b[36m(f pid=12, ip=10.0.0.1)\x1b[0m OSError: a",
            ["OSError: a"],
            id="of a Ray worker",
        ),
        pytest.param(
            f"[1,0]<stderr>:{HEAD}\n[1,1]<stderr>:{HEAD}\n[1,0]<stderr>:  File x\n"
            "[1,1]<stderr>:  File x\n[1,0]<stderr>:ValueError: a\n[1,1]<stderr>:OSError: b",
            ["ValueError: a"],
            id="Open MPI's ranks",
        ),
        pytest.param(
            "F0000 00:00:17.1 2 client.h:84] Terminating process because the JAX distributed "
            "service detected fatal errors.\n*** Check failure stack trace: ***\n    @ 0x1 f()",
            [
                "F0000 00:00:17.1 2 client.h:84] Terminating process because the JAX distributed "
                "service detected fatal errors. *** Check failure stack trace: ***"
            ],
            id="a fatal log line",
        ),
        pytest.param(f"{HEAD}\n  cut", [], id="cut off"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_reasons_of_failures(text: str, reasons: list[str]) -> None:
    found = explain(text)
    assert found.reasons == reasons
    for reason in reasons:
        assert any(line.endswith(reason) or line in reason for line in found.lines)


def test_a_long_chain_and_a_long_traceback_keep_the_last_exception() -> None:
    joint = "During handling of the above exception, another exception occurred:"
    long = "\n".join([HEAD, *[FRAMES] * 40, "ValueError: a"])
    found = explain(f"\n\n{joint}\n\n".join([long] * 9))
    assert len(found.lines) <= 20
    assert found.lines[-1] == "ValueError: a"
    assert HEAD in found.lines


@pytest.mark.parametrize(
    "record",
    [
        "ERROR:root:ignored",
        "2025-01-02 03:04:05,678 - train - ERROR - ignored",
        "2025-01-02 03:04:05.678 | ERROR    | __main__:<module>:3 - ignored",
        "[ERROR] ignored",
        "[2025-01-02 03:04:05] [error   ] ignored",
        "E0102 03:04:05.678901 12 train.py:3] ignored",
        "[rank0]:E0102 03:04:05.678901 12 train.py:3] ignored",
        "WARNING:root:ignored",
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        f"{HEAD}\n{FRAMES}\nKeyError: 'k'\n  more",
        f"{HEAD}\n{FRAMES}\nKeyError: 'k'\n\nDuring handling of the above exception, another "
        f"exception occurred:\n\n{HEAD}\n{FRAMES}\nValueError: a",
    ],
)
def test_logged_errors_do_not_explain_a_killed_process(record: str, error: str) -> None:
    text = f"starting\n{record}\n{error}\n"
    assert explain(text, killed=True) == (["starting"], ["starting"], True)
    assert explain(f"{text}no space\n", killed=True).reasons == ["no space"]
    assert explain(text).reasons[0] in ("KeyError: 'k'", "ValueError: a")
    final = f"{text}up\n{HEAD}\n{FRAMES}\nOSError: b"
    assert explain(final, killed=True).reasons == ["OSError: b"]


def test_a_crash_takes_precedence_over_logged_errors() -> None:
    logged = f"ERROR:root:ignored\n{HEAD}\n{FRAMES}\nKeyError: 'k'\n"
    assert explain(logged + of("fault"), killed=True) == explain(of("fault"))
    assert explain(logged).reasons == ["KeyError: 'k'"]
