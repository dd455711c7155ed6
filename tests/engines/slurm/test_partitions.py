"""Whether the time limit of a partition allows a run. A script stands for sinfo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.conftest import PlanOf
from muster.engines.slurm.partitions import Partition, partitions, time_problems

SINFO = """\
#!/bin/sh
echo "main|up|4|10:00|main*"
echo "short|up|4|5:00|short"
echo "long|up|2|1-00:00:00|long"
echo "free|down|2|infinite|free"
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sinfo").write_text(SINFO)
    (tmp_path / "sinfo").chmod(0o755)
    return {"PATH": f"{tmp_path}:/usr/bin:/bin"}


def test_what_slurm_says(environ: dict[str, str]) -> None:
    main, short, long, free = partitions(environ)
    assert main == Partition("main", True, "4", "10:00", True)
    assert [one.minutes for one in (main, short, long, free)] == [10, 5, 1440, None]
    assert (short.default, free.up) == (False, False)
    assert Partition("x", True, "1", "2:30:00", False).minutes == 150


@pytest.mark.parametrize(
    ("slurm", "variables", "named"),
    [
        ({}, {}, "main allows 10:00"),
        ({"partition": "short"}, {}, "short allows 5:00"),
        ({"partition": "short,main"}, {}, "main allows 10:00"),
        ({"partition": "short,long"}, {}, ""),
        ({"partition": "free"}, {}, ""),
        ({"partition": "unknown"}, {}, ""),
        ({"time": "30"}, {}, ""),
        ({"extra": ["--time=30"]}, {}, ""),
        ({"extra": ["--partition=long"]}, {}, ""),
        ({}, {"SBATCH_TIMELIMIT": "30"}, ""),
        ({}, {"SBATCH_PARTITION": "long"}, ""),
    ],
)
def test_a_run_that_its_partition_does_not_allow(
    plan_of: PlanOf,
    environ: dict[str, str],
    slurm: dict[str, Any],
    variables: dict[str, str],
    named: str,
) -> None:
    plan = plan_of(max_runtime="8m", slurm=slurm)
    found = time_problems(plan, {}, {**environ, **variables})
    if named:
        (one,) = found
        assert named in one.message and "14 minutes" in one.message
        assert "slurm.time" in one.hint
    else:
        assert found == []


def test_what_is_advised(plan_of: PlanOf, environ: dict[str, str]) -> None:
    (found,) = time_problems(plan_of(max_runtime="8m"), {}, environ)
    assert found.hint.startswith("set max_runtime to 4m or less, or set slurm.time")
    assert time_problems(plan_of(max_runtime="4m"), {}, environ) == []
    assert time_problems(plan_of(), {}, environ) == []
