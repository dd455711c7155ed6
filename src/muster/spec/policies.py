"""What a user may say about a run's life: order, success, failure, restarts, time.

The docstrings' field texts end up in docs/spec.md. Rules between fields are in `spec.rules`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from muster.spec.patterns import check_pattern
from muster.spec.values import Duration, Text
from muster.spec.wording import Refused, short

#: JobSet: failurePolicy.rules.name, and what runs and groups may be called besides.
_RULE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._,:-]*")
#: JobSet's 128, and room for what tells apart the rules that one of them becomes.
_LONGEST_RULE_NAME = 255


def _exit_codes(value: Any) -> Any:
    """137, "1-9" or a list of such, as single numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, str, list, tuple)):
        return value
    codes: list[int] = []
    for item in value if isinstance(value, (list, tuple)) else str(value).split(","):
        match = re.fullmatch(r"\s*(\d{1,3})\s*(?:-\s*(\d{1,3})\s*)?", str(item))
        if match is None:
            raise Refused(f"{short(item)} is no exit code", "write 137, or 1-9 for a range")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= 255:
            raise Refused(f"{short(item)} is no exit code of a failure", "they are 1 to 255")
        codes += range(first, last + 1)
    return sorted(set(codes))


def _signal(value: Any) -> Any:
    """A signal's name, from a name with or without SIG, or a number."""
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return signal.Signals(value).name
        if isinstance(value, str):
            name = value.upper()
            return signal.Signals[name if name.startswith("SIG") else f"SIG{name}"].name
    except (ValueError, KeyError):
        raise Refused(f"{short(value)} is no signal", "write a name such as SIGUSR1") from None
    return value


def _pattern(value: Any) -> Any:
    if isinstance(value, str):
        check_pattern(value)
    return value


def _is_rule_name(name: str) -> bool:
    return len(name) <= _LONGEST_RULE_NAME and _RULE_NAME.fullmatch(name) is not None


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

#: Why a node failed, where its exit code does not say it all; `lifecycle.status.Reason`.
ReasonName = Literal[
    "exit",
    "out_of_memory",
    "node_lost",
    "startup_timeout",
    "deadline",
    "hang",
    "not_started",
    "output_lost",
]
ActionName = Literal["fail", "restart_run", "restart_group", "restart_replica", "restart_node"]
StrategyName = Literal["in_place", "recreate", "blocking_recreate"]


class DependsOn(Struct, frozen=True, kw_only=True):
    """A group that must come first.

    group: Its name.
    status: ready: all its nodes are up, or have ended. complete: it has succeeded.
    """

    group: Text
    status: Literal["ready", "complete"] = "ready"


class SuccessPolicy(Struct, frozen=True, kw_only=True):
    """When the run has succeeded.

    when: all: every group it looks at has its minimum of successful replicas. any: one replica
        of any of them has succeeded.
    groups: The groups it looks at. Default: all of them, less those with min_success 0.
    others: What becomes of nodes that still run then: stop ends them, wait lets them finish.
    """

    when: Literal["all", "any"] = "all"
    groups: tuple[Text, ...] = ()
    others: Literal["stop", "wait"] = "stop"


class Backoff(Struct, frozen=True, kw_only=True):
    """How long a restart waits. The first one after a stable time does not.

    initial: Before the second restart in a row.
    factor: Each further one waits so many times longer.
    max: No wait is longer.
    jitter: Each wait is made longer by up to this share of it.
    reset_after: A run that was up for so long is stable: counting starts anew.
    """

    initial: Annotated[Duration, Meta(ge=0)] = 1.0
    factor: Annotated[float, Meta(ge=1)] = 2.0
    max: Annotated[Duration, Meta(ge=0)] = 300.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    reset_after: Annotated[Duration, Meta(ge=0)] = 600.0


class FailureRule(Struct, frozen=True, kw_only=True):
    """What to do about some failures. The first rule that fits one decides; within a rule, the
    earliest failure. Everything it says must fit; what it leaves out fits always.

    action: What to do.
    name: For messages. Default: rule-1, rule-2, ...
    groups: The failed node is of one of these groups.
    exit_codes: It exited with one of these: 137, or "1-9".
    signals: One of these signals ended it.
    reasons: It failed for one of these reasons.
    messages: One of these regular expressions is found in its last lines on stderr, or in
        Muster's sentence on its end. Their syntax is RE2's, as in JobSet: no lookaround and no
        backreferences.
    text: Or in this text, with ${exit_code}, ${rank}, ${group}, ${replica} and ${index} of the
        failed node: what another system would say.
    count: Whether its restarts count towards the run's and the group's max_restarts.
    max_restarts: So many restarts by this rule, and the run fails. Default: no limit of its own.
    before_retries: Look at it, and others like it, before a group's retries are used.
    """

    action: ActionName
    name: RuleName | None = None
    groups: tuple[Text, ...] = ()
    exit_codes: ExitCodes = ()
    signals: tuple[SignalName, ...] = ()
    reasons: tuple[ReasonName, ...] = ()
    messages: tuple[Pattern, ...] = ()
    text: Text | None = None
    count: bool = True
    max_restarts: Annotated[int, Meta(ge=0)] | None = None
    before_retries: bool = False


def named_rules(rules: Iterable[FailureRule]) -> Iterator[tuple[FailureRule, str]]:
    """Each rule, and what it is called."""
    for number, rule in enumerate(rules, 1):
        yield rule, rule.name or f"rule-{number}"


class FailurePolicy(Struct, frozen=True, kw_only=True):
    """What happens when a replica fails that its group cannot do without.

    max_restarts: So many restarts, of whatever, that count; then the run fails.
    action: What to do where no rule fits and restarts are left. Default: restart_node for nodes
        that the framework can replace while others live, else restart_run.
    rules: Looked at in order, those that say before_retries first.
    strategy: in_place: nodes stay, with their addresses and what they have in memory and on disk;
        only their processes start again, when the old ones of all are gone. recreate: each
        replica gets new nodes as soon as its old ones are gone. blocking_recreate: as soon as all
        old ones are. Default: in_place, where the engine can.
    backoff: How long a restart waits.
    """

    max_restarts: Annotated[int, Meta(ge=0)] = 0
    action: Literal["restart_run", "restart_group", "restart_replica", "restart_node"] | None = None
    rules: tuple[FailureRule, ...] = ()
    strategy: StrategyName | None = None
    backoff: Backoff = Backoff()


class Checkpoint(Struct, frozen=True, kw_only=True):
    """How nodes are told to save what they have before they are suspended or their time is over.

    signal: What they get.
    grace: How long they have to save and to end by themselves; then SIGTERM follows.
    """

    signal: SignalName = "SIGUSR1"
    grace: Annotated[Duration, Meta(gt=0)] = 60.0
