"""Muster's failure rules as JobSet's failurePolicy, and the pod failure policies it refers to.

JobSet's rules cannot look at exit codes, but a Job's can; JobSet then sees that one of them
decided. So for each group there can be one set of exit codes that some rules are about.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from muster.spec.formats import job_messages
from muster.spec.formats.failures_read import (
    ACTIONS,
    ALL_CODES,
    AT_ONCE,
    AT_ONCE_NAME,
    CODES,
    DEADLINE,
    LIMIT,
    LOST,
    STRATEGIES,
    WHOLE_DEADLINE,
)
from muster.spec.formats.losses import Loss
from muster.spec.models import JobSpec
from muster.spec.policies import FailurePolicy, FailureRule

_ACTION_OF = {said: name for name, said in ACTIONS.items()}
#: Names as `failures_read` gives them.
_OURS = re.compile(r"[^.]*(\.(deadline|(pods|limit)(\..*)?))?")
_STRATEGY_OF = {said: name for name, said in STRATEGIES.items()}


class Written:
    """failure: the failurePolicy, if one is needed. pods: the rules of each group's Jobs."""

    def __init__(self, spec: JobSpec) -> None:
        self.losses: list[Loss] = []
        self.pods: dict[str, list[dict[str, Any]]] = {}
        self._groups = [group.name for group in spec.node_groups]
        self._retried = {group.name for group in spec.node_groups if group.retries}
        rules = [r for r in spec.failure.rules if r.name != WHOLE_DEADLINE]
        own = [r for r in rules if not (self._ignored(r) or self._implied(r, spec.failure))]
        policy = replace(spec.failure, rules=())
        self.failure: dict[str, Any] | None = None
        if own or policy != type(policy)():
            self.failure = {"maxRestarts": policy.max_restarts}
            if policy.strategy is not None:
                self.failure["restartStrategy"] = _STRATEGY_OF[policy.strategy]
            rules_made = [self._rule(bundle) for bundle in _bundles(own)]
            said = [rule for rule in rules_made if rule is not None]
            said += self._default(policy.action or "restart_run")
            if said:
                self.failure["rules"] = said
            self._unsaid(spec)
            self._out_of_order(own)

    def _unsaid(self, spec: JobSpec) -> None:
        policy = spec.failure
        if policy.backoff != AT_ONCE:
            self.losses.append(Loss("failure.backoff", "restarts are at once there"))
        if policy.strategy is None:
            why = "every restart makes new nodes there, unless in_place is asked for"
            self.losses.append(Loss("failure.strategy", why))
        elif policy.strategy == "in_place":
            why = "needs JobSet's gate InPlaceRestart, and the agent's image and service account"
            self.losses.append(Loss("failure.strategy", why))
            if policy.rules:
                why = (
                    "are asked there when a Job as a whole has failed, not about a restart in place"
                )
                self.losses.append(Loss("failure.rules", why))

    def _out_of_order(self, rules: Sequence[FailureRule]) -> None:
        """Rules are asked as they stand there, those of pod failure policies among them."""
        late = [number for number, rule in enumerate(rules) if not rule.before_retries]
        for rule in rules[min(late, default=len(rules)) :]:
            if rule.before_retries and ".pods." not in (rule.name or ""):
                self.losses.append(Loss(_path(rule), "is asked after those before it there"))

    def _default(self, action: str) -> list[dict[str, Any]]:
        """What is done where no rule fits. JobSet: restarts everything."""
        if action == "restart_run":
            return []
        if action == "restart_replica":
            return [{"name": "otherwise", "action": "RestartJob"}]
        self.losses.append(Loss("failure.action", f"is to restart all there; nothing is {action}"))
        return []

    def _ignored(self, rule: FailureRule) -> bool:
        """Whether a rule is one of a pod failure policy, which then says it."""
        name = rule.groups[0] if len(rule.groups) == 1 else ""
        plain = rule.action == "restart_node" and not rule.count and rule.max_restarts is None
        if not (name and plain and not rule.messages and not rule.signals):
            return False
        if name in self._retried and not rule.before_retries:
            return False
        if rule.exit_codes and rule.reasons == CODES:
            self._pods(name).append({"action": "Ignore", "onExitCodes": _codes(rule.exit_codes)})
        elif rule.reasons == LOST:
            self._pods(name).append({"action": "Ignore", "onPodConditions": [_disruption()]})
        else:
            return False
        usual = f"{name}.ignored" if rule.exit_codes else f"{name}.ignored-lost"
        if rule.name != usual:
            self.losses.append(Loss(_path(rule), f"is called {usual} when it is read again"))
        return True

    def _implied(self, rule: FailureRule, policy: FailurePolicy) -> bool:
        """Whether a rule says what another, or the default, says there of Jobs that a pod failure
        policy ends: `failures_read` made it, and will again."""
        base, mark, rest = f"{rule.name}.".partition(AT_ONCE_NAME)
        if not (mark and rule.before_retries and len(rule.groups) == 1):
            return False
        if rule.groups == (base,) and rest in ("", "lost.") and not rule.messages:
            same = rule.action == ("restart_run" if policy.max_restarts else "fail")
        else:
            same = any(_says(other, rule, base) for other in policy.rules)
        return same and self._by_pods(rule, alone=False)

    def _pods(self, group: str) -> list[dict[str, Any]]:
        return self.pods.setdefault(group, [])

    def _rule(self, bundle: Sequence[FailureRule]) -> dict[str, Any] | None:
        """One rule of JobSet's for some of ours, which were one when they were read."""
        first = bundle[0]
        action = _ACTION_OF.get((first.action, first.count))
        if action is None:
            why = f"is left out: nothing is {first.action} there"
            self.losses.append(Loss(_path(first), why))
            return None
        if any(r.signals or r.max_restarts is not None for r in bundle):
            what = "signals" if first.signals else "a limit of its own"
            self.losses.append(Loss(_path(first), f"is left out: no rule has {what} there"))
            return None
        reasons = [self._reasons(rule, bundle) for rule in bundle]
        if None in reasons:
            why = "is left out: no rule is about that there, or only one that comes before retries"
            self.losses.append(Loss(_path(first), why))
            return None
        made: dict[str, Any] = {"action": action}
        if first.name is not None:
            made = {"name": self._name(first), **made}
        targets = self._targets(bundle)
        if targets:
            made["targetReplicatedJobs"] = targets
        named = list(dict.fromkeys(name for some in reasons for name in some or ()))
        if named:
            made["onJobFailureReasons"] = named
        if first.messages:
            made["onJobFailureMessagePatterns"] = list(first.messages)
            if any(rule.text is None for rule in bundle):
                why = "are about Kubernetes' words there, not about what nodes write"
                self.losses.append(Loss(f"{_path(first)}.messages", why))
            if any(rule.text is not None and not _theirs(rule.text) for rule in bundle):
                why = "is left out: there, patterns look at what the Job controller says"
                self.losses.append(Loss(f"{_path(first)}.text", why))
        return made

    def _reasons(self, rule: FailureRule, bundle: Sequence[FailureRule]) -> tuple[str, ...] | None:
        """Why Jobs fail that the rule is about; None if they cannot say."""
        name = (rule.name or "").partition(".")[2]
        if not rule.exit_codes and not rule.reasons:
            return ()
        if not rule.exit_codes and rule.reasons == DEADLINE:
            return ("DeadlineExceeded",)
        if not rule.exit_codes and set(rule.reasons) == set(LIMIT):
            both = ("BackoffLimitExceeded", "PodFailurePolicy")
            return both if name == "pods.limit" else both[:1]
        if name.startswith("limit.") and len(rule.groups) == 1 and self._rest(rule, bundle):
            return ("BackoffLimitExceeded",)
        alone = len(bundle) == 1 and rule.text is None
        return ("PodFailurePolicy",) if self._by_pods(rule, alone=alone) else None

    def _rest(self, rule: FailureRule, bundle: Sequence[FailureRule]) -> bool:
        """Have the group's Jobs fail at once of what the rule is not about: `failures_read`
        made it of what was left."""
        if rule.exit_codes and rule.reasons == CODES:
            codes = tuple(code for code in ALL_CODES if code not in rule.exit_codes)
            self._fail_at_once(rule.groups[0], onExitCodes=_codes(codes))
            return True
        missing = set(LIMIT) - set(rule.reasons)
        if rule.exit_codes or not missing <= {*CODES, *LOST}:
            return False
        if missing >= set(CODES) and not any(
            other.exit_codes and other.groups == rule.groups for other in bundle
        ):
            self._fail_at_once(rule.groups[0], onExitCodes=_codes(ALL_CODES))
        if missing >= set(LOST):
            self._fail_at_once(rule.groups[0], onPodConditions=[_disruption()])
        return True

    def _fail_at_once(self, group: str, **what: Any) -> None:
        made = {"action": "FailJob", **what}
        if made not in self._pods(group):
            self._pods(group).append(made)

    def _by_pods(self, rule: FailureRule, *, alone: bool) -> bool:
        """Have the groups' Jobs fail at once of what the rule is about, if they can."""
        if rule.exit_codes and rule.reasons in ((), CODES):
            what: dict[str, Any] = {"onExitCodes": _codes(rule.exit_codes)}
        elif not rule.exit_codes and rule.reasons == LOST:
            what = {"onPodConditions": [_disruption()]}
        else:
            return False
        groups = rule.groups or self._groups
        if self._retried & set(groups) and not rule.before_retries:
            return False  # which are used up here before the rule is asked, and there after
        others = [p for g in groups for p in self._pods(g) if p["action"] == "FailJob"]
        if any(other != {"action": "FailJob", **what} for other in others) and alone:
            return False  # the JobSet could not tell the two apart
        for group in groups:
            self._fail_at_once(group, **what)
        return True

    def _targets(self, bundle: Sequence[FailureRule]) -> list[str]:
        if any(not rule.groups for rule in bundle):
            return []
        named = {name for rule in bundle for name in rule.groups}
        if named == set(self._groups):
            return []
        if len(bundle) == 1:
            return list(bundle[0].groups)
        return [name for name in self._groups if name in named]

    def _name(self, rule: FailureRule) -> str:
        wanted = (rule.name or "").partition(".")[0]
        cleaned = re.sub(r"[^A-Za-z0-9_,:]", "_", wanted).strip(",:")
        name = cleaned if cleaned[:1].isalpha() else f"r_{cleaned}"
        if name != wanted or not _OURS.fullmatch(rule.name or ""):
            self.losses.append(Loss(f"{_path(rule)}.name", f"is {name} there"))
        return name


def _bundles(rules: Sequence[FailureRule]) -> list[list[FailureRule]]:
    """Rules that were one JobSet rule: neighbours whose names differ behind the first dot."""
    made: list[list[FailureRule]] = []
    for rule in rules:
        base = (rule.name or "").partition(".")[0]
        if made and "." in (rule.name or "") and _alike(made[-1][0], rule, base):
            made[-1].append(rule)
        else:
            made.append([rule])
    return made


def _theirs(text: str) -> bool:
    """Whether the Job controller says so."""
    if text in (job_messages.LIMIT, job_messages.DEADLINE):
        return True
    return text.startswith(("Container ", "Pod ")) and " matching FailJob rule at index " in text


def _says(other: FailureRule, rule: FailureRule, base: str) -> bool:
    """Whether a rule, or one that it was made together with, is about this one's failures too."""
    return (
        other.name in (base, f"{base}.pods.limit")
        and (other.action, other.count) == (rule.action, rule.count)
        and (other.messages, other.max_restarts) == (rule.messages, rule.max_restarts)
        and (not other.groups or set(rule.groups) <= set(other.groups))
    )


def _alike(first: FailureRule, rule: FailureRule, base: str) -> bool:
    return (
        (first.name or "").startswith(f"{base}.")
        and (first.action, first.count) == (rule.action, rule.count)
        and (first.messages, first.max_restarts) == (rule.messages, rule.max_restarts)
    )


def _codes(codes: Sequence[int]) -> dict[str, Any]:
    """In the shorter way. Kubernetes: a pod that exited 0 has not failed."""
    others = [code for code in ALL_CODES if code not in codes]
    if len(others) < len(codes):
        return {"operator": "NotIn", "values": others or [0]}
    return {"operator": "In", "values": list(codes)}


def _disruption() -> dict[str, str]:
    return {"type": "DisruptionTarget", "status": "True"}


def _path(rule: FailureRule) -> str:
    return f"failure.rules[{rule.name}]" if rule.name else "failure.rules"
