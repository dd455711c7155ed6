"""What the machines of an engine `hosts` are, found by asking them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from muster.describe.words import plural
from muster.engines.findings import Finding
from muster.engines.hosts.profile import Machine
from muster.engines.hosts.program import run_program
from muster.engines.hosts.ssh import SshSettings
from muster.node.control_groups import LIMITED
from muster.node.machine import MachineFacts
from muster.node.records import read
from muster.spec.quantities import format_size

#: Seconds for a machine to answer.
_TIMEOUT = 30.0
_AT_ONCE = 32
#: Seconds by which a clock may differ: more confuses programs that compare times of files.
_MAX_SKEW = 5.0


def examine(machines: Sequence[Machine], folder: str, ssh: SshSettings) -> list[Finding]:
    """A finding for each machine. folder: of the nodes' files there, which is created."""
    with ThreadPoolExecutor(min(_AT_ONCE, len(machines))) as pool:
        return without_repeats(pool.map(lambda one: _examine(one, folder, ssh), machines))


def without_repeats(asked: Iterable[tuple[Finding, str]]) -> list[Finding]:
    """The findings; those of machines that seem to have been found under another name before say
    so. asked: with `MachineFacts.boot`, which containers of one machine share."""
    names: dict[str, str] = {}
    found = []
    for finding, boot in asked:
        first = names.setdefault(boot, finding.name) if boot else finding.name
        if first != finding.name:
            advice = f"if it is the same machine as {first}, list it once, and set `slots`"
            advice = "; ".join(filter(None, (finding.advice, advice)))
            says = f"{finding.says}, kernel of {first}"
            finding = replace(finding, says=says, advice=advice)  # noqa: PLW2901
        found.append(finding)
    return found


def _examine(machine: Machine, folder: str, ssh: SshSettings) -> tuple[Finding, str]:
    """The finding, and `MachineFacts.boot`."""
    begun = time.time()
    try:
        answer = run_program(ssh, machine, "facts", folder, timeout=_TIMEOUT)
        facts = read(MachineFacts, json.loads(answer))
    except (OSError, ValueError) as error:
        return Finding(machine.name, False, str(error)), ""
    return describe(machine, facts, begun, time.time()), facts.boot


def describe(machine: Machine, facts: MachineFacts, begun: float, now: float) -> Finding:
    """What a machine has answered. begun, now: when it was asked, and when the answer arrived, by
    the clock of this machine."""
    gpus = len(facts.gpus) if machine.gpus is None else machine.gpus
    has = [plural(facts.cpus, "CPU"), format_size(facts.memory), plural(gpus, "GPU")]
    address = f"address {facts.address}" if facts.address else "no address"
    # it read its clock at some time in between
    ahead = max(facts.time - now, 0.0) or min(facts.time - begun, 0.0)
    says = ", ".join(
        [f"Python {facts.python}", *has, _limits(facts.limits), address, _clock(ahead)]
    )
    advice = []
    if abs(ahead) > _MAX_SKEW:
        advice.append("set its clock, as with NTP")
    if not facts.address:
        advice.append("give it an IPv4 address that the other machines reach")
    if facts.gpus and machine.gpus is not None and machine.gpus > len(facts.gpus):
        advice.append(f"it has {plural(len(facts.gpus), 'GPU')}, not {machine.gpus}")
    works = not advice
    if machine.gpus and not facts.gpus:  # GPUs of other makers are not found
        advice.append(f"no NVIDIA GPU was found, and the profile says that it has {machine.gpus}")
    return Finding(machine.name, works, says, "; ".join(advice))


def _limits(controllers: Sequence[str]) -> str:
    """What nodes can be limited in. controllers: those with which they can."""
    cannot = [text for name, text in LIMITED.items() if name not in controllers]
    return f"cannot limit {' or '.join(cannot)}" if cannot else "limits CPUs and memory"


def _clock(ahead: float) -> str:
    if not ahead:
        return "clock as here"
    return f"clock {abs(ahead):.1f} s {'ahead' if ahead > 0 else 'behind'}"
