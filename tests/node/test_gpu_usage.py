"""What nvidia-smi says of GPUs, and which of them a node sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.node import gpu_usage
from muster.node.gpu_usage import Gpu, gpus_of, parse, read_gpus

GPUS = {0: Gpu(0.87, 10 << 30), 1: Gpu(0.0, 1 << 20), 3: Gpu(1.0, 0)}


def test_lines_of_nvidia_smi() -> None:
    assert parse("0, 87, 10240\n1, 0, 1\n2, [N/A], [N/A]\n3, 100, 0\n") == GPUS
    assert parse("NVIDIA-SMI has failed, because it could not, communicate\n") == {}


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [(None, [0, 1, 3]), ("3,0", [3, 0]), ("", []), ("7", []), ("GPU-8d2f", [])],
)
def test_a_node_sees_its_own_gpus(visible: str | None, numbers: list[int]) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpus_of(environment, GPUS) == [GPUS[number] for number in numbers]


def test_nvidia_smi_is_called_once_and_only_if_there_are_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho called >> {tmp_path}/calls\necho '0, 50, 2'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(gpu_usage, "gpu_numbers", lambda: [])
    assert read_gpus() == {}
    assert not (tmp_path / "calls").exists()
    monkeypatch.setattr(gpu_usage, "gpu_numbers", lambda: [0])
    assert read_gpus() == {0: Gpu(0.5, 2 << 20)}
    assert (tmp_path / "calls").read_text() == "called\n"
    program.write_text("#!/bin/sh\nexit 9\n")
    assert read_gpus() == {}
