"""Write failure rules as JobSet's failurePolicy and the pod failure policies of its Jobs.

JobSet's rules cannot match exit codes. A Job's pod failure policy can, and JobSet's rules can match
Jobs that it has ended. Each group can therefore have one set of exit codes for its rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from muster.spec.formats.jobset import job_messages
from muster.spec.formats.jobset.failures_read import (
    ACTIONS,
    ALL_CODES,
    ARRAYS,
    AT_ONCE,
    AT_ONCE_NAME,
    CODES,
    DEADLINE,
    GROUP_FAILURES,
    INDEXES,
    LIMIT,
    LOST,
    NEW_REASONS,
    STRATEGIES,
    WHOLE_DEADLINE,
)
from muster.spec.formats.jobset.job_arrays_write import has_index_limits, is_job
from muster.spec.formats.notes import Loss
from muster.spec.models import JobSpec
from muster.spec.policies import FailurePolicy, FailureRule

_ACTION_OF: dict[tuple[str, bool], str] = {ours: name for name, ours in ACTIONS.items()}
#: Names that `failures_read` makes.
_OURS = re.compile(
    r"[^.]*(\.(arrays|indexes))?"
    r"(\.(deadline|max_failed|min_success|total_retries|(pods|limit)(\..*)?))?"
)
_STRATEGY_OF = {ours: name for name, ours in STRATEGIES.items()}


class WrittenFailures:
    """The failurePolicy of a job, and the podFailurePolicy of each group."""

    def __init__(self, spec: JobSpec) -> None:
        self.losses: list[Loss] = []
        #: Group -> the rules of its podFailurePolicy.
        self.pods: dict[str, list[dict[str, Any]]] = {}
        self._groups = [group.name for group in spec.node_groups]
        jobs = [group for group in spec.node_groups if is_job(spec, group)]
        #: Groups that are written as one Job, and those of them whose indexes have limits.
        self._arrays = {group.name for group in jobs}
        self._limited = {group.name for group in jobs if has_index_limits(group)}
        self._retried = {group.name for group in spec.node_groups if group.retries}
        self._retried |= self._limited
        rules = [r for r in spec.failure.rules if r.name != WHOLE_DEADLINE]
        own = [r for r in rules if not (self._write_pods(r) or self._is_implied(r, spec.failure))]
        policy = replace(spec.failure, rules=())
        usual = "restart_replica" if self._arrays else "restart_run"
        #: The failurePolicy; None if the defaults are enough.
        self.failure: dict[str, Any] | None = None
        if own or policy != type(policy)():
            self.failure = {"maxRestarts": policy.max_restarts}
            if policy.strategy is not None:
                self.failure["restartStrategy"] = _STRATEGY_OF[policy.strategy]
            rules_made = [self._rule(bundle) for bundle in self._bundles(own)]
            written = [rule for rule in rules_made if rule is not None]
            written += self._default(policy.action or usual) if policy.max_restarts else []
            if written:
                self.failure["rules"] = written
            self._policy_losses(spec)
            self._out_of_order(own)

    def _policy_losses(self, spec: JobSpec) -> None:
        policy = spec.failure
        if policy.backoff != AT_ONCE:
            self.losses.append(Loss("failure.backoff", "JobSet restarts without delay"))
        if policy.strategy is None:
            why = "JobSet recreates all pods at every restart"
            self.losses.append(Loss("failure.strategy", why))
        elif policy.strategy == "in_place":
            why = "requires JobSet's gate InPlaceRestart, the agent's image and a service account"
            self.losses.append(Loss("failure.strategy", why))
            if policy.rules:
                why = "apply there when a whole Job has failed, not to a restart in place"
                self.losses.append(Loss("failure.rules", why))

    def _out_of_order(self, rules: Sequence[FailureRule]) -> None:
        """Note rules that apply later there. JobSet applies all rules in their order."""
        late = [number for number, rule in enumerate(rules) if not rule.before_retries]
        for rule in rules[min(late, default=len(rules)) :]:
            if rule.before_retries and ".pods." not in (rule.name or ""):
                self.losses.append(
                    Loss(_path(rule), "applies after the rules before it in the JobSet")
                )

    def _default(self, action: str) -> list[dict[str, Any]]:
        """The rule for failures that no other rule matches. JobSet: all Jobs restart."""
        if action == "restart_run":
            return []
        of_job = "restart_replica"
        if self._arrays:  # a Job is a group there
            of_job = "restart_group" if self._arrays == set(self._groups) else ""
        if action == of_job:
            return [{"name": "otherwise", "action": "RestartJob"}]
        self.losses.append(
            Loss("failure.action", f"becomes a restart of all Jobs: JobSet has no {action}")
        )
        return []

    def _write_pods(self, rule: FailureRule) -> bool:
        """Whether a rule can be written as Ignore or FailIndex in a pod failure policy. Writes it
        if so."""
        name = rule.groups[0] if len(rule.groups) == 1 else ""
        plain = not rule.messages and not rule.signals and rule.max_restarts is None
        if not (name and plain and rule.action in ("restart_node", "fail_replica")):
            return False
        if rule.action == "fail_replica":
            action, suffix = "FailIndex", "index"
            possible = name in self._limited
        else:
            action, suffix = "Ignore", "ignored"
            possible = not rule.count and (name not in self._retried or rule.before_retries)
        if not possible:
            return False
        if rule.exit_codes and rule.reasons == CODES:
            self._pods(name).append({"action": action, "onExitCodes": _codes(rule.exit_codes)})
        elif _is_lost(rule):
            self._pods(name).append({"action": action, "onPodConditions": [_disruption()]})
        else:
            return False
        usual = f"{name}.{suffix}" if rule.exit_codes else f"{name}.{suffix}-lost"
        if rule.name != usual:
            self.losses.append(Loss(_path(rule), f"is named {usual} when the manifest is read"))
        return True

    def _is_implied(self, rule: FailureRule, policy: FailurePolicy) -> bool:
        """Whether another rule, or the default, covers this one there, for Jobs that a pod failure
        policy ends. `failures_read` makes such rules."""
        base, mark, rest = f"{rule.name}.".partition(AT_ONCE_NAME)
        if not (mark and rule.before_retries and len(rule.groups) == 1):
            return False
        if rule.groups == (base,) and rest in ("", "lost.") and not rule.messages:
            same = rule.action == ("restart_run" if policy.max_restarts else "fail")
        else:
            same = any(_covers(other, rule, base) for other in policy.rules)
        return same and self._by_pods(rule, alone=False)

    def _pods(self, group: str) -> list[dict[str, Any]]:
        return self.pods.setdefault(group, [])

    def _rule(self, bundle: Sequence[FailureRule]) -> dict[str, Any] | None:
        """The JobSet rule for rules that were read from one JobSet rule; None if there is none."""
        first = bundle[0]
        action = _ACTION_OF.get((self._job_action(first), first.count))
        if action is None:
            why = f"is left out: JobSet has no {first.action}"
            self.losses.append(Loss(_path(first), why))
            return None
        if any(r.signals or r.max_restarts is not None for r in bundle):
            what = "signals" if first.signals else "max_restarts"
            self.losses.append(Loss(_path(first), f"is left out: JobSet's rules have no {what}"))
            return None
        reasons = [self._reasons(rule, bundle) for rule in bundle]
        if None in reasons:
            why = "is left out: JobSet has no such rule, or only one that applies before retries"
            self.losses.append(Loss(_path(first), why))
            return None
        made: dict[str, Any] = {"action": action}
        if first.name is not None:
            made = {"name": self._name(first), **made}
        targets = self._targets(bundle)
        if targets:
            made["targetReplicatedJobs"] = targets
        named = list(dict.fromkeys(name for some in reasons for name in some or ()))
        if () in reasons:  # the others are about groups that it does not match
            named = []
        if named:
            made["onJobFailureReasons"] = named
        if first.messages:
            made["onJobFailureMessagePatterns"] = list(first.messages)
            if any(rule.text is None for rule in bundle):
                why = "match the Job controller's messages there, not what nodes write"
                self.losses.append(Loss(f"{_path(first)}.messages", why))
            if any(rule.text is not None and not _is_job_message(rule.text) for rule in bundle):
                why = "is left out: patterns match the Job controller's messages there"
                self.losses.append(Loss(f"{_path(first)}.text", why))
        return made

    def _reasons(self, rule: FailureRule, bundle: Sequence[FailureRule]) -> tuple[str, ...] | None:
        """The reasons of the failed Jobs that a rule matches; None if there are no such reasons."""
        name = _suffix(rule)
        if rule.group_failed:
            failures = {failure: reason for reason, (failure, _) in GROUP_FAILURES.items()}
            conditions = rule.exit_codes or rule.reasons or not self._about_limits(rule)
            return None if conditions else tuple(failures[name] for name in rule.group_failed)
        if self._limited.intersection(rule.groups or self._groups) and rule.reasons != DEADLINE:
            # it would apply to nodes
            return ("PodFailurePolicy",) if self._by_pods(rule, alone=False) else None
        if not rule.exit_codes and not rule.reasons:
            return ()
        if not rule.exit_codes and rule.reasons == DEADLINE:
            return ("DeadlineExceeded",)
        if not rule.exit_codes and {*rule.reasons, *NEW_REASONS} == set(LIMIT):
            both = ("BackoffLimitExceeded", "PodFailurePolicy")
            return both if name == "pods.limit" else both[:1]
        if name.startswith("limit.") and len(rule.groups) == 1 and self._rest(rule, bundle):
            return ("BackoffLimitExceeded",)
        alone = len(bundle) == 1 and rule.text is None
        return ("PodFailurePolicy",) if self._by_pods(rule, alone=alone) else None

    def _about_limits(self, rule: FailureRule) -> bool:
        """Whether all groups of a rule have limits of indexes."""
        return set(rule.groups or self._groups) <= self._limited

    def _job_action(self, rule: FailureRule) -> str:
        """The rule's action, with Jobs as replicas; "" if JobSet has none for its groups."""
        arrays = self._arrays.intersection(rule.groups or self._groups)
        if not arrays or rule.action not in ("restart_replica", "restart_group"):
            return rule.action
        whole = rule.action == "restart_group" and arrays == {*(rule.groups or self._groups)}
        return "restart_replica" if whole else ""

    def _bundles(self, rules: Sequence[FailureRule]) -> list[list[FailureRule]]:
        """Groups of neighbours that were one JobSet rule: their names differ after the first
        dot."""
        made: list[list[FailureRule]] = []
        for rule in rules:
            base = (rule.name or "").partition(".")[0]
            same = made and self._job_action(made[-1][0]) == self._job_action(rule)
            if same and "." in (rule.name or "") and _alike(made[-1][0], rule, base):
                made[-1].append(rule)
            else:
                made.append([rule])
        return made

    def _rest(self, rule: FailureRule, bundle: Sequence[FailureRule]) -> bool:
        """Let the group's Jobs fail at once for the failures that the rule does not match. Only for
        rules that `failures_read` makes for the remaining failures."""
        if rule.exit_codes and rule.reasons == CODES:
            self._fail_with_codes(rule.groups[0], {*ALL_CODES} - {*rule.exit_codes})
            return True
        missing = set(LIMIT) - {*rule.reasons, *NEW_REASONS}
        if rule.exit_codes or not missing <= {*CODES, *LOST}:
            return False
        if missing >= set(CODES) and not any(
            other.exit_codes and other.groups == rule.groups for other in bundle
        ):
            self._fail_with_codes(rule.groups[0], {*ALL_CODES})
        if "node_lost" in missing:
            self._fail_at_once(rule.groups[0], onPodConditions=[_disruption()])
        return True

    def _fail_with_codes(self, group: str, codes: set[int]) -> None:
        """Let a group's Jobs fail at once for exit codes, if rules before do not match all."""
        left = codes - self._earlier_codes(group)
        if left:
            self._fail_at_once(group, onExitCodes=_codes(sorted(left)))

    def _earlier_codes(self, group: str) -> set[int]:
        """The exit codes that rules of a group's pod failure policy match, other than FailJob."""
        found: set[int] = set()
        for rule in self._pods(group):
            codes = rule.get("onExitCodes")
            if codes is not None and rule["action"] != "FailJob":
                values = {*codes["values"]}
                found |= values if codes["operator"] == "In" else {*ALL_CODES} - values
        return found

    def _fail_at_once(self, group: str, **what: Any) -> None:
        made = {"action": "FailJob", **what}
        if made not in self._pods(group):
            self._pods(group).append(made)

    def _by_pods(self, rule: FailureRule, *, alone: bool) -> bool:
        """Let the groups' Jobs fail at once for a rule's failures. False if they cannot."""
        if rule.exit_codes and rule.reasons in ((), CODES):
            what: dict[str, Any] = {"onExitCodes": _codes(rule.exit_codes)}
        elif not rule.exit_codes and _is_lost(rule):
            what = {"onPodConditions": [_disruption()]}
        else:
            return False
        groups = rule.groups or self._groups
        if self._retried & set(groups) and not rule.before_retries:
            return False  # Muster uses retries up before the rule applies, JobSet after
        others = [p for g in groups for p in self._pods(g) if p["action"] == "FailJob"]
        if any(other != {"action": "FailJob", **what} for other in others) and alone:
            return False  # JobSet could not distinguish the two
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
        given = (rule.name or "").partition(".")[0]
        cleaned = re.sub(r"[^A-Za-z0-9_,:]", "_", given).strip(",:")
        name = cleaned if cleaned[:1].isalpha() else f"r_{cleaned}"
        if name != given or not _OURS.fullmatch(rule.name or ""):
            self.losses.append(Loss(f"{_path(rule)}.name", f"is named {name} in the JobSet"))
        return name


def _suffix(rule: FailureRule) -> str:
    """What `failures_read` has added to the name of the JobSet rule, but for what it is about."""
    _, dot, rest = (rule.name or "").partition(".")
    for part in (ARRAYS, INDEXES):
        if f"{dot}{rest}.".startswith(f"{part}."):
            return f"{dot}{rest}".removeprefix(part).removeprefix(".")
    return rest


def _is_lost(rule: FailureRule) -> bool:
    """Whether a rule is about what Kubernetes calls a disruption."""
    return "node_lost" in rule.reasons and set(rule.reasons) <= set(LOST)


def _is_job_message(text: str) -> bool:
    """Whether the text is a message of the Job controller."""
    if text in job_messages.OF_JOBS:
        return True
    return text.startswith(("Container ", "Pod ")) and " matching FailJob rule at index " in text


def _covers(other: FailureRule, rule: FailureRule, base: str) -> bool:
    """Whether `other` has the same effect as `rule` and matches its failures."""
    return (
        other.name in (base, f"{base}.pods.limit")
        and (other.action, other.count) == (rule.action, rule.count)
        and (other.messages, other.max_restarts) == (rule.messages, rule.max_restarts)
        and (not other.groups or set(rule.groups) <= set(other.groups))
    )


def _alike(first: FailureRule, rule: FailureRule, base: str) -> bool:
    name, suffix = first.name or "", (rule.name or "")[len(base) :]
    parts = name == base and suffix.startswith((ARRAYS, INDEXES))
    return (
        (parts or name.startswith(f"{base}."))
        and first.count == rule.count
        and (first.messages, first.max_restarts) == (rule.messages, rule.max_restarts)
    )


def _codes(codes: Sequence[int]) -> dict[str, Any]:
    """onExitCodes in the shorter form. Kubernetes: a pod that exited 0 has not failed."""
    others = [code for code in ALL_CODES if code not in codes]
    if len(others) < len(codes):
        return {"operator": "NotIn", "values": others or [0]}
    return {"operator": "In", "values": list(codes)}


def _disruption() -> dict[str, str]:
    return {"type": "DisruptionTarget", "status": "True"}


def _path(rule: FailureRule) -> str:
    return f"failure.rules[{rule.name}]" if rule.name else "failure.rules"
