"""Which volume of a pod cannot be mounted, from events of the kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from muster.engines.kubernetes.mount_failures import MountFailure, mount_failure

TIME = "2026-02-03T04:05:06Z"
NFS = (
    'MountVolume.SetUp failed for volume "nfs-0" : mount failed: exit status 32\n'
    "Mounting command: mount\nMounting arguments: -t nfs nas:/data /var/lib/kubelet/pods/1/nfs-0\n"
    "Output: mount.nfs: Connection timed out.\n"
)
SUM = (
    "Unable to attach or mount volumes: unmounted volumes=[nfs-0 data], unattached volumes=[a]: "
    "timed out waiting for the condition"
)


def event(message: object, last: object = TIME, reason: str = "FailedMount") -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": last}


@pytest.mark.parametrize(
    ("message", "volume", "why"),
    [
        (
            'MountVolume.SetUp failed for volume "muster-contact" : secret "demo-r1" not found',
            "muster-contact",
            'secret "demo-r1" not found',
        ),
        (NFS, "nfs-0", "mount.nfs: Connection timed out"),
        (
            'AttachVolume.Attach failed for volume "pvc-1" : rpc error: code = Internal',
            "pvc-1",
            "rpc error: code = Internal",
        ),
        (
            'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) other',
            "pvc-1",
            "Volume is already used by pod(s) other",
        ),
        (SUM, "nfs-0, data", "timed out waiting for the condition"),
        ("the disk is on fire", "", "the disk is on fire"),
        (None, "", ""),
    ],
)
def test_the_volume_and_the_reason(message: object, volume: str, why: str) -> None:
    assert mount_failure([event(message)]) == MountFailure(volume, why, TIME)


def test_the_last_one_counts_but_a_sum_does_not() -> None:
    newer = event('MountVolume.SetUp failed for volume "b" : no', "2026-02-03T04:05:07Z")
    found = mount_failure([newer, event(NFS), event(SUM, "2026-02-03T04:06:00Z")])
    assert found == MountFailure("b", "no", "2026-02-03T04:05:07Z")


def test_other_events_say_nothing() -> None:
    assert mount_failure([]) is None
    assert mount_failure([event("Successfully pulled image", reason="Pulled"), {}]) is None


def test_a_long_text_is_cut() -> None:
    found = mount_failure([event("x" * 1000)])
    assert found is not None
    assert len(found.why) == 300


@pytest.mark.parametrize("odd", [{"series": []}, {"metadata": "x", "lastTimestamp": None}])
def test_odd_events_are_read_as_far_as_possible(odd: dict[str, Any]) -> None:
    assert mount_failure([{**event("it is away"), **odd}]) is not None
