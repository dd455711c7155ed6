"""CPUs, memory and GPUs of this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.engines.machine import _memory as _memory_of_second
from muster.engines.machine import this_machine
from muster.node import machine
from muster.node.machine import memory_limit


def tree(root: Path, own: str, *folders: str) -> tuple[Path, Path]:
    for folder in folders:
        (root / folder).mkdir(parents=True)
    (root / "own").write_text(own)
    return root, root / "own"


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(machine, "memory_limit", lambda: 12 << 20)
    _memory_of_second.cache_clear()
    yield
    _memory_of_second.cache_clear()


def test_the_limit_of_a_control_group_is_the_machine_s_memory() -> None:
    assert machine.count_memory() == 12 << 20
    assert this_machine().memory == 12 << 20


def test_a_limit_above_the_machine_s_memory_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_limit", lambda: 1 << 62)
    assert machine.count_memory() < 1 << 60


def test_gpus_are_found_by_their_device_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine.gpu_numbers(str(tmp_path)) == [0, 1, 10]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,10")
    assert machine.gpu_numbers(str(tmp_path)) == [1, 10]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.gpu_numbers(str(tmp_path)) == []


def test_gpus_that_are_allowed_by_their_uuids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices, drivers = tmp_path / "dev", tmp_path / "gpus"
    devices.mkdir()
    for number, uuid in enumerate(["GPU-aa11", "GPU-ab22", "GPU-cc33"]):
        (devices / f"nvidia{number}").touch()
        folder = drivers / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        text = f"Model: \t\t A100\nGPU UUID:   {uuid}\nDevice Minor: \t {number}\n"
        (folder / "information").write_text(text)
    for visible, found in (("GPU-ab22", [1]), ("GPU-cc, 0", [0, 2]), ("MIG-GPU-aa11/1/0", [])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert machine.gpu_numbers(str(devices), str(drivers)) == found
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aa11")
    assert machine.gpu_numbers(str(devices), str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("own", "limits", "found"),
    [
        ("0::/a/b\n", {"a/memory.max": "4096\n", "a/b/memory.max": "max\n"}, 4096),
        ("0::/a/b\n", {"a/memory.max": "4096", "a/b/memory.max": "1024"}, 1024),
        ("0::/\n", {"memory.max": "2048"}, 2048),
        ("0::/\n", {}, None),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "512"}, 512),
        ("4:cpu:/a\n", {"memory/a/memory.limit_in_bytes": "512"}, None),
    ],
)
def test_the_lowest_limit_of_the_control_groups_counts(
    tmp_path: Path, own: str, limits: dict[str, str], found: int | None
) -> None:
    root, place = tree(tmp_path, own)
    for file, text in limits.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    assert memory_limit(str(root), str(place)) == found


def test_no_limit_without_control_groups(tmp_path: Path) -> None:
    assert memory_limit(str(tmp_path), str(tmp_path / "nothing")) is None


def test_the_addresses_of_this_machine() -> None:
    found = machine.addresses()
    assert "127.0.0.1" in found
    assert {address for _, address in machine.interfaces()} <= set(found)
    for address in found:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if not address.startswith("fe80:"):  # needs a link
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.bind((address, 0))


def test_no_addresses_where_the_kernel_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> socket.socket:
        raise PermissionError

    monkeypatch.setattr(machine, "_netlink", refuse)
    assert machine.addresses() == []
