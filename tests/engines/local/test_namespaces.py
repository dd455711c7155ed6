"""Namespaces: the setting MUSTER_ISOLATION, and the PID namespace of a node."""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import os
import resource

import pytest

from muster.engines.local.namespaces import CRASHED, check_setting, probe, unavailable_reason
from muster.engines.local.node_process import _children_in_new_namespace


@pytest.mark.parametrize(
    ("setting", "problems"),
    [
        ("", []),
        ("plain", []),
        ("namespaces", []),
        (
            "plian",
            [
                "MUSTER_ISOLATION: unknown isolation 'plian' "
                '("plain" for none; unset it for namespaces where the kernel allows them)'
            ],
        ),
    ],
)
def test_an_unknown_isolation_is_refused(
    setting: str, problems: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_ISOLATION", setting)
    assert [str(problem) for problem in check_setting()] == problems


@pytest.mark.skipif(bool(unavailable_reason()), reason="needs namespaces")
def test_children_stay_in_this_namespace_if_there_would_be_no_way_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_args: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="Too many open files"), _children_in_new_namespace():
        raise AssertionError("nothing is forked")
    own, of_children = (
        os.readlink(f"/proc/self/ns/{name}") for name in ("pid", "pid_for_children")
    )
    assert of_children == own


@pytest.mark.skipif(bool(unavailable_reason()), reason="needs namespaces")
def test_an_attempt_that_is_killed_says_nothing_about_the_machine() -> None:
    def be_killed() -> None:
        # by what the kernel sends for a fault: the first process of a namespace gets no signal of
        # its own
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.disable()
        ctypes.string_at(0)

    def fail() -> None:
        os._exit(1)

    assert probe(be_killed, "it fails here") == CRASHED
    assert probe(fail, "it fails here") == "it fails here"
