"""Users, groups, capabilities and files of containers: with a Podman of the tests' own."""

from __future__ import annotations

import re

from engines.container.conftest import MakeSession
from muster.engines.container.bodies import security_of, why_root
from muster.plan.model import ContainerPlan, ExtraContainerPlan
from support.podman_service import IMAGE

SHOW = (
    "id -u; id -g; id -G; touch /made 2>/dev/null || echo read-only; "
    "grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status"
)
SAFE = ContainerPlan(
    user="1234:5",
    groups=(6, 7),
    non_root=True,
    cap_drop=("ALL",),
    read_only=True,
    no_new_privileges=True,
    seccomp="unconfined",
)


def test_words_of_the_api() -> None:
    assert security_of(ContainerPlan()) == {}
    assert security_of(SAFE) == {
        "GroupAdd": ["6", "7"],
        "CapDrop": ["ALL"],
        "ReadonlyRootfs": True,
        "SecurityOpt": ["no-new-privileges", "seccomp=unconfined"],
    }
    plan = ContainerPlan(privileged=True, cap_add=("IPC_LOCK",))
    assert security_of(plan) == {"Privileged": True, "CapAdd": ["IPC_LOCK"]}


def test_who_may_be_root() -> None:
    assert [why_root(SAFE, user) for user in ("5", "5:6")] == ["", ""]
    assert why_root(ContainerPlan(), "") == ""
    text = "non_root is set: give container.user a number"
    assert why_root(SAFE, "0:5") == why_root(SAFE, "") == f"its image runs as root, and {text}"
    assert why_root(SAFE, "ana") == f"ana may be root, and {text}"


def test_what_processes_may(run: MakeSession) -> None:
    root = ContainerPlan(cap_add=("SYS_PTRACE",))
    extra = ExtraContainerPlan("root", "init", IMAGE, ("sh", "-c", SHOW), container=root)
    one = run(SHOW, container=SAFE, extra_containers=(extra,))
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0
    found = one.output(0).splitlines()
    own = [line for line in found if not line.startswith("[root]")]
    assert own[:2] == ["1234", "5"]
    assert {"6", "7"} <= {*own[2].split()}
    assert "read-only" in own
    status = dict(re.findall(r"(\w+):\s+(\w+)", "\n".join(own)))
    assert (status["CapEff"], status["NoNewPrivs"], status["Seccomp"]) == ("0" * 16, "1", "0")
    other = [line.removeprefix("[root] ") for line in found if line.startswith("[root]")]
    assert other[:2] == ["0", "0"]
    capabilities = next(line for line in other if line.startswith("CapEff"))
    assert int(capabilities.split()[1], 16) & 1 << 19  # CAP_SYS_PTRACE
    assert "read-only" not in other
    one.close()


def test_an_image_that_runs_as_root_is_refused(run: MakeSession) -> None:
    one = run("true", container=ContainerPlan(non_root=True))
    one.start(0)
    text = "its image runs as root, and non_root is set: give container.user a number"
    assert one.ended(0)[0]["message"] == text
    one.close()
