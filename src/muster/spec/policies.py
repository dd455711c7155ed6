"""Policies of a run: order, success, failure, restarts, checkpoints.

Rules between fields are in `spec.rules.policies`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from muster.spec.patterns import check_pattern
from muster.spec.values import Count, Duration, Natural, ReplicaNumbers, Text
from muster.spec.wording import Refused, short

#: JobSet's failurePolicy.rules.name, and the characters of names of runs and groups.
_RULE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._,:-]*")
#: JobSet's 128, and room for suffixes where one of its rules becomes several.
_MAX_RULE_NAME = 255


def _exit_codes(value: Any) -> Any:
    """The single numbers of 137, "1-9" or a list of these."""
    if isinstance(value, bool) or not isinstance(value, (int, str, list, tuple)):
        return value
    codes: list[int] = []
    for item in value if isinstance(value, (list, tuple)) else str(value).split(","):
        match = re.fullmatch(r"\s*(\d{1,3})\s*(?:-\s*(\d{1,3})\s*)?", str(item))
        if match is None:
            raise Refused(f"{short(item)} is not an exit code", "write 137, or 1-9 for a range")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= 255:
            raise Refused(f"{short(item)} is not an exit code of a failure", "use 1 to 255")
        codes += range(first, last + 1)
    return sorted(set(codes))


def _signal(value: Any) -> Any:
    """The name of a signal, given by name (with or without SIG) or by number."""
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return signal.Signals(value).name
        if isinstance(value, str):
            name = value.upper()
            return signal.Signals[name if name.startswith("SIG") else f"SIG{name}"].name
    except (ValueError, KeyError):
        raise Refused(f"{short(value)} is not a signal", "write a name such as SIGUSR1") from None
    return value


def _pattern(value: Any) -> Any:
    if isinstance(value, str):
        check_pattern(value)
    return value


def _is_rule_name(name: str) -> bool:
    return len(name) <= _MAX_RULE_NAME and _RULE_NAME.fullmatch(name) is not None


def _rule_name(name: Any) -> Any:
    if isinstance(name, str) and not _is_rule_name(name):
        hint = "use up to 255 letters, digits, . _ , : and -, starting with a letter"
        raise Refused(f"{short(name)} is not a name for a rule", hint)
    return name


ExitCodes = Annotated[
    tuple[int, ...],
    Meta(
        extra={"parse": _exit_codes},
        extra_json_schema={
            "type": ["integer", "string", "array"],
            "items": {"type": ["integer", "string"]},
        },
    ),
]
SignalName = Annotated[
    str, Meta(extra={"parse": _signal}, extra_json_schema={"type": ["string", "integer"]})
]
RuleName = Annotated[str, Meta(extra={"parse": _rule_name})]
Pattern = Annotated[str, Meta(extra={"parse": _pattern}, min_length=1)]

#: Reasons of a failure; the same as `lifecycle.status.Reason`.
ReasonName = Literal[
    "exit",
    "out_of_memory",
    "node_lost",
    "preempted",
    "canceled",
    "startup_timeout",
    "deadline",
    "hang",
    "unhealthy",
    "preflight",
    "not_started",
    "output_lost",
]
ActionName = Literal[
    "fail", "fail_replica", "restart_run", "restart_group", "restart_replica", "restart_node"
]
#: The same as `lifecycle.policy.GroupFailure`.
GroupFailureName = Literal["max_failed", "total_retries", "min_success"]
StrategyName = Literal["in_place", "recreate", "blocking_recreate"]


class DependsOn(Struct, frozen=True, kw_only=True):
    """A group that must start first."""

    group: Text
    """Name of the group."""
    status: Literal["ready", "complete"] = "ready"
    """ready: all its nodes are ready or have ended. complete: it has succeeded."""


class EarlySuccess(Struct, frozen=True, kw_only=True):
    """Replicas whose success is enough for an array to succeed. Give replicas, count or both."""

    replicas: ReplicaNumbers | None = None
    """The replicas that count: 0-3,7. Default: all."""
    count: Count | None = None
    """How many of them must succeed. Default: all of them."""


class SuccessPolicy(Struct, frozen=True, kw_only=True):
    """When the run succeeds."""

    when: Literal["all", "any"] = "all"
    """all: every group listed in `groups` has its minimum of successful replicas. any: one replica
    of these groups has succeeded."""
    groups: tuple[Text, ...] = ()
    """Groups that decide. Default: all except those with min_success 0."""
    others: Literal["stop", "wait"] = "stop"
    """What happens to nodes that still run then: stop ends them, wait lets them finish."""


class Backoff(Struct, frozen=True, kw_only=True):
    """Delay before a restart, the same for all restarts of the run, whichever node failed. The
    first restart after a stable period is not delayed."""

    initial: Annotated[Duration, Meta(ge=0)] = 1.0
    """Delay of the second consecutive restart."""
    factor: Annotated[float, Meta(ge=1)] = 2.0
    """Factor by which the delay grows with each consecutive restart."""
    max: Annotated[Duration, Meta(ge=0)] = 300.0
    """Maximum delay."""
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Maximum fraction by which each delay is randomly extended."""
    reset_after: Annotated[Duration, Meta(ge=0)] = 600.0
    """After this time without a restart, consecutive restarts are counted from 0 again."""


class FailureRule(Struct, frozen=True, kw_only=True):
    """What to do about certain failures. The first rule that matches a failure decides; if a rule
    matches several, the earliest failure counts. A rule matches if all its conditions do;
    conditions that are left out always match."""

    action: ActionName
    """What to do. fail: the run fails. fail_replica: the replica fails without retries, and the
    others continue if max_failed or min_success allow it."""
    name: RuleName | None = None
    """Name in messages. Default: rule-1, rule-2, ..."""
    groups: tuple[Text, ...] = ()
    """The failed node belongs to one of these groups."""
    exit_codes: ExitCodes = ()
    """Its exit code is one of these: 137, or "1-9"."""
    signals: tuple[SignalName, ...] = ()
    """One of these signals killed it."""
    reasons: tuple[ReasonName, ...] = ()
    """It failed for one of these reasons. preempted, canceled: in its infrastructure, such as in
    Slurm. Without a rule, a preempted node restarts as by action, with max_restarts left or not,
    and a canceled one does not restart."""
    messages: tuple[Pattern, ...] = ()
    """One of these regular expressions is found in the last lines of its stderr or in Muster's
    description of the failure. The syntax is RE2's, as in JobSet: no lookaround, no
    backreferences."""
    text: Text | None = None
    """Text in which messages are searched instead: what another system would report, with
    ${exit_code}, ${rank}, ${group}, ${replica} and ${index} of the failed node."""
    count: bool = True
    """Count its restarts towards max_restarts of the run and of the group. Those of preempted nodes
    are counted only by a rule with the reason preempted."""
    max_restarts: Natural | None = None
    """Maximum restarts by this rule; after them the run fails. Default: no limit per rule."""
    before_retries: bool = False
    """Apply this rule before a group's retries are used."""
    group_failed: tuple[GroupFailureName, ...] = ()
    """Apply this rule only when the failure fails its group: because more replicas than max_failed
    have failed, no total_retries are left, or too few replicas for min_success are left or have
    succeeded. Default: when a node fails."""


def named_rules(rules: Iterable[FailureRule]) -> Iterator[tuple[FailureRule, str]]:
    """Each rule with its name, given or default."""
    for number, rule in enumerate(rules, 1):
        yield rule, rule.name or f"rule-{number}"


class FailurePolicy(Struct, frozen=True, kw_only=True):
    """What to do when a required replica fails."""

    max_restarts: Natural = 0
    """Maximum counted restarts; after them the run fails."""
    action: Literal["restart_run", "restart_group", "restart_replica", "restart_node"] | None = None
    """Action if no rule matches and restarts are left. Default: restart_node for nodes that the
    framework can replace while the others keep running, restart_replica in a run with an array,
    else restart_run. If an array has failed, restart_replica restarts all of its failed
    replicas."""
    rules: tuple[FailureRule, ...] = ()
    """Rules, tried in order; those with before_retries first."""
    strategy: StrategyName | None = None
    """in_place: nodes keep their addresses, memory and disk; only their processes restart, once
    all old processes have ended. recreate: each replica gets new nodes as soon as its old ones
    have ended. blocking_recreate: as soon as all old nodes have ended. Default: in_place, if the
    engine can."""
    backoff: Backoff = Backoff()
    """Delay before a restart."""


class Checkpoint(Struct, frozen=True, kw_only=True):
    """How nodes save a checkpoint before the run is suspended or reaches its maximum runtime, or a
    job of Slurm its time limit."""

    signal: SignalName = "SIGUSR1"
    """Signal that is sent to them."""
    grace: Annotated[Duration, Meta(gt=0)] = 60.0
    """Time to save and exit before SIGTERM follows."""
