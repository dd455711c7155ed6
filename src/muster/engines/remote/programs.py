"""The programs of a launch, where Muster is not installed on the node's host. Pure.

Frameworks name modules of `muster.node` as `python -m` does. On the host they are run from the
folder of the node program, in the Python that runs the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster.engines.launch import MISLEADING
from muster.node.launch_message import LaunchMessage, Probe
from muster.node.messages import Environment
from muster.node.run_module import words_for

_OURS = "muster.node."


def python_of(environment: Environment | None) -> str:
    """The Python of an environment; "" if there is none."""
    return "" if environment is None else f"{environment.link}/bin/python"


def environ_in(environment: Environment | None, environ: Mapping[str, str]) -> Mapping[str, str]:
    """What programs inherit, in an environment or without one. environ: the host's."""
    if environment is None:
        return environ
    kept = {name: value for name, value in environ.items() if name not in MISLEADING}
    return {**kept, "VIRTUAL_ENV": environment.link}


class HostPython:
    """The Python that runs a job on a host. path: its path there. modules: the folder there with
    Muster's (`messages.HostFacts`)."""

    def __init__(self, path: str, modules: str) -> None:
        self.path = path
        self.package = f"{modules}/muster/node"

    def words(self, words: Sequence[str]) -> list[str]:
        """A command line as it is there. A module of ours is run by this Python, whatever Python
        was named: that may be one of the submitter's machine."""
        if len(words) > 2 and words[1] == "-m" and words[2].startswith(_OURS):
            return [*words_for(self.path, self.package, words[2]), *words[3:]]
        return list(words)

    def launch(self, launch: LaunchMessage) -> LaunchMessage:
        """A launch message with the command lines that it has there."""
        services = [
            service._replace(
                argv=self.words(service.argv),
                after=self._check(service.after),
                ready=self._check(service.ready),
            )
            for service in launch.services
        ]
        return launch._replace(
            launcher=self.words(launch.launcher),
            services=services,
            gather=self._check(launch.gather),
            probe=self._probe(launch.probe),
            liveness=self._probe(launch.liveness),
            preflight=launch.preflight
            and launch.preflight._replace(command=self.words(launch.preflight.command)),
            after_start=launch.after_start and self.words(launch.after_start),
            before_stop=launch.before_stop and self.words(launch.before_stop),
        )

    def _probe(self, probe: Probe | None) -> Probe | None:
        if probe is None or probe.command is None:
            return probe
        return probe._replace(command=self.words(probe.command))

    def _check(self, check: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if check is None or "command" not in check:
            return check
        return {**check, "command": self.words(check["command"])}
