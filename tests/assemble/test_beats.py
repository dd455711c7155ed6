"""Whether others live, and who beats where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.assemble.beats import Heart, Ousted, Pulse
from muster.assemble.workdir import BEAT, WorkDir
from muster.errors import EngineError


def beat(number: int, cluster: str = "ours") -> dict[str, Any]:
    return {"cluster": cluster, "number": number}


def gone_after(pulse: Pulse, beats: list[Any], start: int, step: int = 1) -> int | None:
    """The second at which it is taken for gone. beats: what is seen, once every `step` seconds."""
    for count, seen in enumerate(beats):
        if pulse.gone(seen, float(start + count * step)):
            return start + count * step
    return None


def test_who_beats_lives_and_who_has_stopped_is_gone() -> None:
    pulse = Pulse("ours", 0.1)
    assert gone_after(pulse, [beat(n // 5) for n in range(100)], 0) is None
    assert gone_after(pulse, [beat(19)] * 100, 100) == 95 + 31
    assert gone_after(Pulse("ours", 0.1), [None] * 100, 0) == 31


def test_the_beats_of_another_cluster_are_not_ours() -> None:
    pulse = Pulse("ours", 0.1)
    assert gone_after(pulse, [beat(n) for n in range(10)], 0) is None
    assert gone_after(pulse, [beat(n, "another") for n in range(100)], 10) == 9 + 31


def test_time_in_which_nobody_could_look_does_not_count() -> None:
    pulse = Pulse("ours", 0.1)
    assert gone_after(pulse, [beat(1)] * 10, 0) is None
    assert not pulse.gone(beat(1), 1000.0)  # we were paused, and so was the other
    assert not pulse.gone(beat(2), 1001.0)
    assert gone_after(pulse, [beat(2)] * 100, 1002) == 1001 + 31


def test_looks_that_are_rare_find_out_too() -> None:
    assert gone_after(Pulse("ours", 20.0), [None] * 100, 0, step=20) == 7 * 20


def test_a_heart_gives_way_to_another_cluster(workdir: WorkDir) -> None:
    first = Heart(workdir, BEAT, "first")
    first.beat()
    with pytest.raises(Ousted, match="another main node is at work"):
        Heart(workdir, BEAT, "second").beat()
    assert workdir.read(BEAT) == beat(1, "first")
    heir = Heart(workdir, BEAT, "second", dead="first")
    heir.beat()
    assert workdir.read(BEAT) == beat(1, "second")


def test_a_beat_that_failed_is_made_up_for_at_once(workdir: WorkDir, tmp_path: Path) -> None:
    heart = Heart(workdir, BEAT, "ours")
    (tmp_path / "job").rename(tmp_path / "elsewhere")
    with pytest.raises(EngineError):
        heart.beat()
    (tmp_path / "elsewhere").rename(tmp_path / "job")
    heart.beat()
    assert workdir.read(BEAT) == beat(1)
