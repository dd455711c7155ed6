"""Read and write Kubernetes' probes and hooks.

Muster's probes support HTTP. An HTTPS probe becomes a command that runs Python on the node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from muster.errors import Problem
from muster.spec import models as spec
from muster.spec.formats.jobset.kubernetes import (
    Container,
    HTTPGetAction,
    LifecycleHandler,
    Probe,
)
from muster.spec.formats.jobset.kubernetes_limits import MAX_INT32
from muster.spec.models import LivenessProbe, StartupProbe
from muster.spec.wording import alternatives, short

Made = TypeVar("Made", StartupProbe, LivenessProbe)
#: Kubernetes: certificates are not verified, status codes from 200 to 399 are successes.
_GET = (
    "import os,ssl,sys,urllib.request as r;"
    "c=ssl._create_unverified_context();"
    "o=r.build_opener(r.ProxyHandler({}),r.HTTPSHandler(context=c));"
    "o.open(sys.argv[1]+'://'+os.environ['MUSTER_NODE_ADDRESS']+':'+sys.argv[2]+sys.argv[3])"
)
_GETTER = ("python3", "-c", _GET)
#: The program of a hook that waits.
_SLEEP = "sleep"
#: The command of a probe for a file.
_EXISTS = ("test", "-e")


def startup_probe(container: Container, path: str, problems: list[Problem]) -> StartupProbe | None:
    """The probe for when a container is up. A readiness probe may fail without limit, as its
    failures have no effect on the container."""
    startup, ready = container.startup_probe, container.readiness_probe
    if startup is not None:
        made = _probe(StartupProbe, startup, container, f"{path}.startupProbe", problems)
        if ready is not None and _action(ready) != _action(startup):
            text = "differs from the startupProbe, and Muster has one probe"
            hint = "keep the one for which other nodes have to wait"
            problems.append(Problem(f"{path}.readinessProbe", text, hint))
        return made
    if ready is None:
        return None
    made = _probe(StartupProbe, ready, container, f"{path}.readinessProbe", problems)
    return made and replace(made, threshold=MAX_INT32)


def liveness_probe(
    container: Container, path: str, problems: list[Problem]
) -> LivenessProbe | None:
    """The probe for whether a container still works. As there, it is tried once the container has
    started; here also not before it is ready."""
    if container.liveness_probe is None:
        return None
    return _probe(
        LivenessProbe, container.liveness_probe, container, f"{path}.livenessProbe", problems
    )


def _action(probe: Probe) -> tuple[object, ...]:
    return probe.exec_, probe.http_get, probe.tcp_socket


def _probe(
    kind: type[Made], probe: Probe, container: Container, path: str, problems: list[Problem]
) -> Made | None:
    actions: dict[str, Any] = {
        "exec": probe.exec_,
        "httpGet": probe.http_get,
        "tcpSocket": probe.tcp_socket,
    }
    given = [name for name, action in actions.items() if action is not None]
    if len(given) != 1 and not any(p.path.startswith(f"{path}.") for p in problems):
        text = f"has {' and '.join(given) or 'no action'}"
        problems.append(Problem(path, text, "use one of exec, httpGet and tcpSocket"))
    if probe.success_threshold > 1:
        text = f"is {probe.success_threshold}: Muster needs one success"
        problems.append(Problem(f"{path}.successThreshold", text, "remove it"))
    what: dict[str, Any] = {}
    if probe.exec_ is not None:
        if not probe.exec_.command:
            problems.append(Problem(f"{path}.exec.command", "is empty", "add the program to run"))
        command = probe.exec_.command
        if command[:2] == _EXISTS and len(command) == 3:
            what["file"] = command[2]
        else:
            what["exec_"] = command
    elif probe.tcp_socket is not None:
        what["tcp"] = _port(probe.tcp_socket.port, container, f"{path}.tcpSocket.port", problems)
    elif probe.http_get is not None:
        get = probe.http_get
        port = _port(get.port, container, f"{path}.httpGet.port", problems)
        if get.scheme == "HTTPS":
            what["exec_"] = (*_GETTER, "https", str(port), _page(get))
        else:
            what |= {"tcp": port, "http": _page(get)}
    else:
        return None
    return kind(
        **what,
        period=float(probe.period or 10),
        timeout=float(probe.timeout or 1),
        threshold=probe.failure_threshold or 3,
        initial_delay=float(probe.initial_delay),
    )


def hook_command(
    handler: LifecycleHandler | None, container: Container, path: str, problems: list[Problem]
) -> tuple[str, ...] | None:
    """The command of a hook; None if there is none."""
    if handler is None:
        return None
    actions = {"exec": handler.exec_, "httpGet": handler.http_get, "sleep": handler.sleep}
    given = [name for name, action in actions.items() if action is not None]
    if len(given) != 1 and not any(p.path.startswith(f"{path}.") for p in problems):
        text = f"has {' and '.join(given) or 'no action'}"
        problems.append(Problem(path, text, "use one of exec, httpGet and sleep"))
    if handler.exec_ is not None:
        if not handler.exec_.command:
            problems.append(Problem(f"{path}.exec.command", "is empty", "add the program to run"))
        return handler.exec_.command
    if handler.http_get is not None:
        get = handler.http_get
        port = _port(get.port, container, f"{path}.httpGet.port", problems)
        return (*_GETTER, get.scheme.lower(), str(port), _page(get))
    if handler.sleep is not None:
        return (_SLEEP, str(handler.sleep.seconds))
    return None


def _page(get: HTTPGetAction) -> str:
    return get.path if get.path.startswith("/") else f"/{get.path}"


def _port(port: int | str, container: Container, path: str, problems: list[Problem]) -> int | None:
    if isinstance(port, str):
        named = {p.name: p.container_port for p in container.ports if p.name}
        if port not in named:
            hint = f"use {alternatives(named)}" if named else "write its number"
            problems.append(Problem(path, f"{short(port)} is not a port of the container", hint))
            return None
        return named[port]
    if not 1 <= port <= 65535:
        problems.append(Problem(path, f"{port} is not a port", "ports are 1 to 65535"))
        return None
    return port


def _http_get(command: Sequence[str] | None) -> dict[str, Any] | None:
    """The httpGet that a command from here stands for; None for other commands."""
    if command is None or tuple(command[:3]) != _GETTER:
        return None
    scheme, port, path = command[3:]
    return {"path": path, "port": int(port), "scheme": scheme.upper()}


def write_hook(command: Sequence[str]) -> dict[str, Any]:
    """A handler that runs a command."""
    if (get := _http_get(command)) is not None:
        return {"httpGet": get}
    if command[0] == _SLEEP and len(command) == 2 and command[1].isdecimal():
        return {"sleep": {"seconds": int(command[1])}}
    return {"exec": {"command": list(command)}}


def write_probe(probe: spec.Probe) -> tuple[str, dict[str, Any]]:
    """The field of a container and the probe in it. Seconds are rounded up to whole ones."""
    made: dict[str, Any] = {}
    if probe.http is not None:
        made["httpGet"] = {"path": probe.http, "port": probe.tcp}
    elif probe.tcp is not None:
        made["tcpSocket"] = {"port": probe.tcp}
    elif (get := _http_get(probe.exec_)) is not None:
        made["httpGet"] = get
    else:
        made["exec"] = {"command": list(probe.exec_ or (*_EXISTS, probe.file or ""))}
    made["initialDelaySeconds"] = math.ceil(probe.initial_delay)
    made["periodSeconds"] = math.ceil(probe.period)
    made["timeoutSeconds"] = math.ceil(probe.timeout)
    if isinstance(probe, StartupProbe) and probe.threshold >= MAX_INT32:
        return "readinessProbe", made
    kind = "startupProbe" if isinstance(probe, StartupProbe) else "livenessProbe"
    return kind, made | {"failureThreshold": probe.threshold}
