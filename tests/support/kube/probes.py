"""Probes of containers."""

from __future__ import annotations

import http.client
import socket
import subprocess
import time
from collections.abc import Callable, Sequence

from support.kube.containers import Container
from support.kube.objects import Obj
from support.kube.volumes import Paths

#: Real seconds that a probe may take, and that are at least between two.
_TIMEOUT, _SHORTEST = 10.0, 0.05


class Probe:
    """A readiness or startup probe. scale: real seconds of a second between probes."""

    def __init__(
        self, probe: Obj, container: Container, paths: Paths, address: str, scale: float
    ) -> None:
        self._probe, self._container, self._scale = probe, container, scale
        self._paths, self._address = paths, address

    def run(self, changed: Callable[[bool], object]) -> None:
        """Probe until the container has ended, and say when the result changes."""
        ready = False
        time.sleep(self._probe.get("initialDelaySeconds", 0) * self._scale)
        while self._container.code is None:
            found = self.succeeds()
            if found != ready and self._container.code is None:
                ready = found
                changed(ready)
            time.sleep(max(self._probe.get("periodSeconds", 10) * self._scale, _SHORTEST))

    def succeeds(self) -> bool:
        """Whether it succeeds now."""
        try:
            if "exec" in self._probe:
                return self._runs(self._probe["exec"]["command"])
            if "httpGet" in self._probe:
                get = self._probe["httpGet"]
                connection = http.client.HTTPConnection(
                    self._address, get["port"], timeout=_TIMEOUT
                )
                connection.request("GET", get.get("path", "/"))
                status = connection.getresponse().status
                connection.close()
                return 200 <= status < 400
            port = self._probe["tcpSocket"]["port"]
            socket.create_connection((self._address, port), _TIMEOUT).close()
        except (OSError, http.client.HTTPException, subprocess.TimeoutExpired):
            return False
        return True

    def _runs(self, command: Sequence[str]) -> bool:
        words = [self._paths.translate(word) for word in command]
        quiet = subprocess.DEVNULL
        options = {"env": self._container.env, **self._container.user.process_options()}
        done = subprocess.run(
            words, timeout=_TIMEOUT, stdout=quiet, stderr=quiet, check=False, **options
        )
        return done.returncode == 0

    def _answers(self, port: int, path: str = "/", **_more: object) -> bool:
        connection = http.client.HTTPConnection(self._address, port, timeout=_TIMEOUT)
        try:
            connection.request("GET", path)
            return 200 <= connection.getresponse().status < 400
        finally:
            connection.close()
