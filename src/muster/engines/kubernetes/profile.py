"""The profile of an engine `kubernetes` (`engines.profiles`): which cluster, and how this machine
and pods reach each other.

It may be absent: then the current context of kubectl applies.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from muster.engines.profiles import to_toml
from muster.engines.remote.port_range import port_problems, read_ports
from muster.errors import InvalidInput, Problem
from muster.spec.formats.jobset.cluster_settings import NAMES, setting_problems
from muster.spec.quantities import is_bare_number, no_unit, parse_duration, parse_size
from muster.spec.wording import Refused, say, suggestion

#: An image of Python's own project with the version of this one, as jobs may need that.
DEFAULT_IMAGE = f"docker.io/library/python:{sys.version_info.major}.{sys.version_info.minor}-slim"
#: How pods and this machine reach each other: pods dial this machine, or messages go through the
#: API server.
CONTACTS = ("dial", "exec")
DEFAULT_CODE_LIMIT = 64 << 20
#: As a duration: a pod waits for as long as it takes.
NEVER = "never"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PYTHON = re.compile(r"[^\s\"'\\]+")


class KubernetesProfile(Struct, frozen=True):
    """The settings of an engine `kubernetes`."""

    #: A file as kubectl reads it; None: $KUBECONFIG, ~/.kube/config, or the pod's service account.
    kubeconfig: str | None = None
    #: The context in it; None: the current one.
    context: str | None = None
    #: None: that of the context, or of the pod in which Muster runs; else `default`.
    namespace: str | None = None
    #: Of nodes whose group names none.
    image: str = DEFAULT_IMAGE
    #: The interpreter in images that runs the node program and `python` jobs: a path, or a name on
    #: PATH.
    python: str = "python3"
    #: See CONTACTS.
    contact: str = "exec"
    #: Seconds for which a pod whose program has failed waits for a Muster process that drives the
    #: run; then JobSet restarts all pods, as often as the job allows. None: it waits on.
    decision_window: float | None = None
    #: With `dial`: the address at which pods reach this machine, and the first and last port.
    address: str | None = None
    ports: tuple[int, int] | None = None
    #: A PersistentVolumeClaim whose volume all pods share, for code: its name.
    claim: str | None = None
    #: The most bytes of code that are sent to each pod through the API server; not with `claim`,
    #: where code is sent once for all pods, nor with `dial`.
    code_limit: int = DEFAULT_CODE_LIMIT
    #: The LocalQueue of Kueue in which runs wait, and their WorkloadPriorityClass, unless the job
    #: says otherwise; None: without Kueue.
    queue: str | None = None
    queue_priority: str | None = None
    #: See `cluster_settings`: of all pods, unless the job says otherwise.
    pods: Mapping[str, Any] = {}


_KEYS = tuple(name for name in KubernetesProfile.__struct_fields__ if name != "pods")
_TEXTS = ("kubeconfig", "context", "image", "address")
_NAMES = ("namespace", "claim", "queue", "queue_priority")


def read_settings(table: Mapping[str, Any]) -> KubernetesProfile:
    """The profile with these settings, as TOML has them. Raises InvalidInput with every problem;
    their paths are keys."""
    if problems := list(_problems(table)):
        raise InvalidInput(*problems)
    given = {key: table[key] for key in _KEYS if key in table}
    if "ports" in given:
        given["ports"] = read_ports(given["ports"])
    if "code_limit" in given:
        given["code_limit"] = parse_size(given["code_limit"])
    if (window := given.get("decision_window")) is not None:
        given["decision_window"] = None if window == NEVER else parse_duration(window)
    pods = {name: table[name] for name in NAMES if name in table}
    return KubernetesProfile(**given, pods=pods)


def _problems(table: Mapping[str, Any]) -> Iterator[Problem]:
    known = (*_KEYS, *NAMES)
    for key in table:
        if key not in known:
            hint = suggestion(key, known) or f"there are {', '.join(known)}"
            yield Problem(key, "unknown setting", hint)
    for key in _TEXTS:
        value = table.get(key, "x")
        if not isinstance(value, str) or not value.isprintable() or value.split() != [value]:
            yield Problem(key, f"must be a text without spaces, not {say(value)}")
    for key in _NAMES:
        value = table.get(key, "x")
        if not isinstance(value, str) or not _LABEL.fullmatch(value):
            hint = "lower-case letters, digits and -, at most 63"
            yield Problem(key, f"must be a name in Kubernetes, not {say(value)}", hint)
    python = table.get("python", "python3")
    if not isinstance(python, str) or not _PYTHON.fullmatch(python):
        hint = "a path in the image, or the name of a program there"
        yield Problem("python", f"must be an interpreter, not {say(python)}", hint)
    limit = table.get("code_limit", 0)
    try:
        parse_size(limit)
    except Refused as error:
        yield Problem("code_limit", error.message, error.hint)
    else:
        if isinstance(limit, str) and is_bare_number(limit):
            yield Problem("code_limit", f"{limit} has no unit", f'write "{limit}MiB"')
    yield from _window_problems(table.get("decision_window", NEVER))
    yield from _contact_problems(table)
    yield from map(_as_toml, setting_problems(table))


def _as_toml(problem: Problem) -> Problem:
    """A problem of a setting that jobs have, too, with its hint as one would write it in a profile
    rather than in YAML."""
    if "put a dash before each" in problem.hint:
        return problem._replace(hint=f"write [[{problem.path}]]")
    if problem.hint.startswith(("as in [", "as in {")):
        import yaml  # only if something is wrong

        example = yaml.safe_load(problem.hint.removeprefix("as in "))
        return problem._replace(hint=f"as in {to_toml(example)}")
    return problem


def _window_problems(window: object) -> Iterator[Problem]:
    hint = 'as in "10m", or "never"'
    if window == NEVER:
        return
    try:
        seconds = parse_duration(window)
    except Refused as error:
        yield Problem("decision_window", error.message, error.hint or hint)
        return
    if is_bare_number(window):
        yield Problem("decision_window", *no_unit(window, '"'))
    elif seconds <= 0:
        yield Problem("decision_window", "must be longer than 0", hint)


def _contact_problems(table: Mapping[str, Any]) -> Iterator[Problem]:
    contact = table.get("contact", CONTACTS[1])
    if contact not in CONTACTS:
        yield Problem("contact", f"must be {' or '.join(CONTACTS)}, not {say(contact)}")
    if contact == "dial" and "address" not in table:
        hint = "give the address of this machine, or of its Service, as pods see it"
        yield Problem("address", "is missing, and pods dial it", hint)
    yield from port_problems(table)
    for key in ("address", "ports"):
        if key in table and contact == "exec":
            hint = 'leave it out, or set contact = "dial"'
            yield Problem(key, "has no effect: messages go through the API server", hint)
