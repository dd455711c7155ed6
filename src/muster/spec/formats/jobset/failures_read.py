"""Read JobSet's failurePolicy as failure rules.

JobSet's rules match failed Jobs by the reason: a deadline, a pod failure policy, or too many failed
pods. Muster's rules match failed nodes by reason and exit code. One JobSet rule may become several,
named NAME.deadline, NAME.pods and NAME.limit (JobSet's names have no dots); `failures_write`
merges them again.

Kubernetes applies a pod failure policy before it retries. If Jobs have retries, Muster therefore
applies rules for the policy's failures before retries too: NAME.at-once for a JobSet rule that also
matches other failures, and GROUP.at-once for failures that no rule matches.

JobSet's rules are about Jobs. A Job that is read as an array (`job_arrays`) is a group of its own:
a JobSet rule that restarts single Jobs restarts groups there (NAME.arrays). If its indexes have
limits of their own, other indexes continue when one has failed, and rules apply when the group has
(NAME.indexes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, get_args

from msgspec.structs import replace

from muster.spec.formats.jobset import job_messages
from muster.spec.formats.jobset.downward_api import Pod
from muster.spec.formats.jobset.failure_rules import rule_name
from muster.spec.formats.jobset.job_arrays import backoff_limit
from muster.spec.formats.jobset.kubernetes import Job, PodFailureRule
from muster.spec.formats.jobset.kubernetes_limits import MAX_INT32
from muster.spec.formats.jobset.model import JobSet, ReplicatedJob, Rule
from muster.spec.formats.notes import Notes
from muster.spec.policies import (
    ActionName,
    Backoff,
    FailurePolicy,
    FailureRule,
    GroupFailureName,
    ReasonName,
    StrategyName,
)
from muster.spec.rules.policies import covered

#: JobSet's action -> Muster's action, and whether the restart is counted.
ACTIONS: dict[str, tuple[ActionName, bool]] = {
    "FailJobSet": ("fail", True),
    "RestartJobSet": ("restart_run", True),
    "RestartJobSetAndIgnoreMaxRestarts": ("restart_run", False),
    "RestartJob": ("restart_replica", True),
    "RestartJobAndIgnoreMaxRestarts": ("restart_replica", False),
}
STRATEGIES: dict[str, StrategyName] = {
    "Recreate": "recreate",
    "BlockingRecreate": "blocking_recreate",
    "InPlaceRestart": "in_place",
}
#: JobSet restarts without delay.
AT_ONCE = Backoff(initial=0.0, jitter=0.0)

DEADLINE: tuple[ReasonName, ...] = ("deadline",)
#: The reasons for which Jobs can fail.
_REASONS = ("DeadlineExceeded", "PodFailurePolicy", "BackoffLimitExceeded")
#: The reasons for which Jobs fail when indexes have: how Muster's group fails then, and the Job
#: controller's message.
GROUP_FAILURES: dict[str, tuple[GroupFailureName, str]] = {
    "BackoffLimitExceeded": ("total_retries", job_messages.LIMIT),
    "MaxFailedIndexesExceeded": ("max_failed", job_messages.MAX_FAILED_INDEXES),
    "FailedIndexes": ("min_success", job_messages.FAILED_INDEXES),
}
#: Suffixes of rules for groups that are arrays, and for those whose indexes have limits.
ARRAYS, INDEXES = ".arrays", ".indexes"
#: The reasons that count for backoffLimit: all but a deadline.
LIMIT: tuple[ReasonName, ...] = tuple(r for r in get_args(ReasonName) if r != "deadline")
#: The reasons with a meaningful exit code. For others, Muster has ended the node itself.
CODES: tuple[ReasonName, ...] = ("exit", "out_of_memory")
#: Kubernetes: DisruptionTarget.
LOST: tuple[ReasonName, ...] = ("node_lost", "preempted")
#: Reasons that specs of earlier versions lack.
NEW_REASONS: tuple[ReasonName, ...] = ("preempted", "canceled")
ALL_CODES = tuple(range(1, 256))
AT_ONCE_NAME = ".at-once."
#: The rule for the run's own deadline. JobSet: the JobSet fails under any rules.
WHOLE_DEADLINE = "spec.activeDeadlineSeconds"


class _Make(Protocol):
    """Makes a rule with the action of a JobSet rule that matches a part of its failures."""

    def __call__(self, suffix: str, groups: Sequence[str], **what: object) -> FailureRule: ...


class Split:
    """How a group's pod failure policy splits its failures. The first rule that matches applies."""

    def __init__(
        self,
        rules: Sequence[PodFailureRule],
        *,
        retried: bool,
        pod: Pod,
        limits: tuple[GroupFailureName, ...] = (),
    ) -> None:
        #: Whether failures that the policy does not match are retried, or fail only an index.
        self.retried = retried or bool(limits)
        #: A pod of the Job.
        self.pod = pod
        #: How the Job can fail because of indexes that have; empty: it has no limits for indexes.
        self.limits = limits
        #: Exit codes that fail an index, and whether a lost node does.
        self.failed_index: tuple[int, ...] = ()
        self.failed_index_lost = False
        #: Exit codes that end the Job.
        self.failed: tuple[int, ...] = ()
        #: Exit codes that are not counted.
        self.ignored: tuple[int, ...] = ()
        #: Whether a lost node ends the Job, or is not counted.
        self.failed_lost = self.ignored_lost = False
        #: Number of a rule -> exit codes for which it ends the Job.
        self.failed_by: dict[int, tuple[int, ...]] = {}
        #: Number of the rule on lost nodes.
        self.failed_lost_by = 0
        left, lost_left = list(ALL_CODES), True
        for number, rule in enumerate(rules):
            if rule.on_exit_codes is not None:
                inside = rule.on_exit_codes.operator == "In"
                values = rule.on_exit_codes.values
                codes = tuple(code for code in left if (code in values) == inside)
                left = [code for code in left if code not in codes]
                if rule.action == "FailJob":
                    self.failed += codes
                    self.failed_by[number] = codes
                elif rule.action == "Ignore":
                    self.ignored += codes
                elif rule.action == "FailIndex":
                    self.failed_index += codes
            elif rule.on_pod_conditions and lost_left:
                lost_left = False
                self.failed_lost = rule.action == "FailJob"
                self.failed_lost_by = number
                self.ignored_lost = rule.action == "Ignore"
                self.failed_index_lost = rule.action == "FailIndex"
        self.failed_index = tuple(sorted(self.failed_index))
        self.failed, self.ignored = tuple(sorted(self.failed)), tuple(sorted(self.ignored))

    @property
    def is_array(self) -> bool:
        """Whether the group is a single Job."""
        return self.pod.job is not None

    @property
    def has_deadline(self) -> bool:
        """Whether the Job has a deadline."""
        return self.pod.rj.template.spec.active_deadline_seconds is not None

    @property
    def fails(self) -> bool:
        """Whether the policy ends the Job for any failure."""
        return bool(self.failed) or self.failed_lost


def failure_policy(jobset: JobSet, pods: Mapping[str, Pod], notes: Notes) -> FailurePolicy:
    """The failure policy of a JobSet that `check_jobset` has accepted.

    jobset: with a replicated Job for each group. pods: of each group.
    """
    spec = jobset.spec
    running = [rj for rj in spec.replicated_jobs if rj.replicas]
    splits = {rj.name: _split(jobset, rj, pods[rj.name]) for rj in running}
    rules = [*_ignored(splits), *_failed_indexes(splits)]
    policy = spec.failure_policy
    if policy is None:
        return FailurePolicy(rules=(*rules, *_without_rule("fail", splits)))
    most = max(policy.max_restarts, 0)  # JobSet accepts negative numbers as 0
    may_restart = most > 0 or bool(policy.rules)
    if spec.active_deadline_seconds is not None and may_restart:
        _note_deadline(running, notes)
        rules.append(FailureRule(action="fail", name=WHOLE_DEADLINE, reasons=DEADLINE))
    for number, rule in enumerate(policy.rules):
        rules += _rules(jobset, rule, rule_name(rule, number), splits, notes)
    rules += _without_rule("restart_run" if most else "fail", splits)
    return FailurePolicy(
        max_restarts=most,
        # the default of arrays differs
        action="restart_run" if most and any(s.is_array for s in splits.values()) else None,
        rules=tuple(_reached(rules, notes)),
        strategy=STRATEGIES[policy.restart_strategy],
        backoff=AT_ONCE,
    )


def _reached(rules: Sequence[FailureRule], notes: Notes) -> Iterator[FailureRule]:
    """The rules without those that can never apply."""
    left_out = covered(rules)
    for number, rule in enumerate(rules):
        if number not in left_out:
            yield rule
        elif AT_ONCE_NAME not in f"{rule.name}.":
            notes.add(f"rule {rule.name}", "is left out: earlier rules match all of its failures")


def _split(jobset: JobSet, rj: ReplicatedJob, pod: Pod) -> Split:
    job = rj.template.spec
    policy = job.pod_failure_policy
    limits: list[GroupFailureName] = []
    if job.backoff_limit_per_index is not None:
        limits += ["total_retries"] if backoff_limit(job) < MAX_INT32 else []
        limits += [] if job.max_failed_indexes is None else ["max_failed"]
        limits.append("min_success")
    return Split(
        policy.rules if policy is not None else (),
        retried=retries(jobset, job) > 0,
        pod=pod,
        limits=tuple(limits),
    )


def retries(jobset: JobSet, job: Job) -> int:
    """The number of failed pods that a Job replaces before it fails."""
    if jobset.restarts_in_place:
        return 0  # agents restart the pods; the limit only stops Kubernetes from doing so
    return backoff_limit(job)


def _note_deadline(running: Sequence[ReplicatedJob], notes: Notes) -> None:
    for rj in running:
        if rj.template.spec.active_deadline_seconds is not None:
            why = (
                "of a Job ends the run, as the JobSet's own does: Muster does not distinguish them"
            )
            notes.add("activeDeadlineSeconds", why, rj.name)


def _ignored(splits: dict[str, Split]) -> Iterator[FailureRule]:
    """Rules for Ignore. Kubernetes: the pod is replaced and the failure not counted."""
    for group, split in splits.items():
        if split.ignored:
            yield FailureRule(
                action="restart_node",
                name=f"{group}.ignored",
                groups=(group,),
                reasons=CODES,
                exit_codes=split.ignored,
                count=False,
                before_retries=True,
            )
        if split.ignored_lost:
            yield FailureRule(
                action="restart_node",
                name=f"{group}.ignored-lost",
                groups=(group,),
                reasons=LOST,
                count=False,
                before_retries=True,
            )


def _failed_indexes(splits: dict[str, Split]) -> Iterator[FailureRule]:
    """Rules for FailIndex: the index fails without retries."""
    for group, split in splits.items():
        if split.failed_index:
            yield FailureRule(
                action="fail_replica",
                name=f"{group}.index",
                groups=(group,),
                reasons=CODES,
                exit_codes=split.failed_index,
            )
        if split.failed_index_lost:
            yield FailureRule(
                action="fail_replica", name=f"{group}.index-lost", groups=(group,), reasons=LOST
            )


def _without_rule(action: ActionName, splits: dict[str, Split]) -> Iterator[FailureRule]:
    """Rules for failures that end a Job at once and that no rule matches."""

    def make(suffix: str, groups: Sequence[str], **what: object) -> FailureRule:
        return FailureRule(action=action, name=suffix, groups=tuple(groups), **what)  # type: ignore[arg-type]

    for group, split in splits.items():
        if split.retried:
            yield from _failed(f"{group}{AT_ONCE_NAME[:-1]}", group, split, make)


def _failed(suffix: str, group: str, split: Split, make: _Make) -> Iterator[FailureRule]:
    """Rules for a group's failures that end its Job in spite of retries."""
    early = split.retried
    if split.failed:
        codes = split.failed
        yield make(suffix, (group,), reasons=CODES, exit_codes=codes, before_retries=early)
    if split.failed_lost:
        yield make(f"{suffix}.lost", (group,), reasons=LOST, before_retries=early)


def _rules(
    jobset: JobSet, rule: Rule, name: str, splits: dict[str, Split], notes: Notes
) -> Iterator[FailureRule]:
    targets = tuple(
        group for group in dict.fromkeys(rule.target_replicated_jobs) if group in splits
    )
    if rule.target_replicated_jobs and not targets:
        notes.add(f"rule {name}", "is left out: its replicated Jobs have 0 replicas")
        return
    made = [
        one
        for part, groups in _parts(rule, targets, splits)
        for one in _of_part(jobset, rule, (name, part), groups, splits)
    ]
    if not made:
        reasons = " or ".join(rule.on_job_failure_reasons)
        notes.add(f"rule {name}", f"is left out: no Job can fail with {reasons}")
    yield from made


def _parts(
    rule: Rule, targets: tuple[str, ...], splits: dict[str, Split]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The groups that a JobSet rule becomes different rules for, with the suffix of their names.
    No groups: all."""
    single = "restart_replica" in ACTIONS[rule.action]
    parts: dict[str, list[str]] = {"": [], ARRAYS: [], INDEXES: []}
    for group in targets or splits:
        split = splits[group]
        arrays = ARRAYS if split.is_array and single else ""
        parts[INDEXES if split.limits else arrays].append(group)
    for part, groups in parts.items():
        if groups:
            every = len(groups) == len(splits) and not targets
            yield part, () if every else targets if groups == [*targets] else tuple(groups)


def _of_part(
    jobset: JobSet,
    rule: Rule,
    names: tuple[str, str],
    targets: tuple[str, ...],
    splits: dict[str, Split],
) -> Iterator[FailureRule]:
    """The rules that a JobSet rule becomes for some groups. names: its own, and a suffix."""
    action, count = ACTIONS[rule.action]
    if action == "restart_replica" and names[1]:
        action = "restart_group"
    name = "".join(names)
    messages = rule.on_job_failure_message_patterns

    def make(suffix: str, groups: Sequence[str], **what: object) -> FailureRule:
        return FailureRule(
            action=action,
            count=count,
            name=name + suffix,
            groups=tuple(groups),
            messages=messages,
            **what,  # type: ignore[arg-type]
        )

    reasons = rule.on_job_failure_reasons
    if names[1] == INDEXES:
        yield from _by_index(reasons, targets, splits, make, with_text=bool(messages))
        return
    if messages:
        yield from _by_message(jobset, reasons or _REASONS, targets, splits, make)
        return
    if not reasons or {"PodFailurePolicy", "BackoffLimitExceeded"} <= set(reasons):
        for group in targets or splits:
            if splits[group].retried:
                yield from _failed(f"{AT_ONCE_NAME}{group}", group, splits[group], make)
    if not reasons:
        yield make("", targets)
        return
    yield from _by_reason(reasons, targets, splits, make)


def _by_index(
    reasons: Sequence[str],
    targets: tuple[str, ...],
    splits: dict[str, Split],
    make: _Make,
    *,
    with_text: bool,
) -> Iterator[FailureRule]:
    """Rules for Jobs whose indexes have limits. with_text: each with the Job controller's message,
    which patterns match."""
    groups = targets or tuple(splits)

    def text(message: str) -> dict[str, object]:
        return {"text": message} if with_text else {}

    if not reasons or "PodFailurePolicy" in reasons:
        for group in groups:
            if with_text:
                yield from _pods_by_message(group, splits[group], make)
            else:
                yield from _failed(f".pods.{group}", group, splits[group], make)
    timed = any(splits[group].has_deadline for group in groups)
    if timed and (not reasons or "DeadlineExceeded" in reasons):
        yield make(".deadline", targets, reasons=DEADLINE, **text(job_messages.DEADLINE))
    chosen = {
        failure: message
        for reason, (failure, message) in GROUP_FAILURES.items()
        if (not reasons or reason in reasons) and any(failure in splits[g].limits for g in groups)
    }
    if with_text:
        for failure, message in chosen.items():
            yield make(f".{failure}", targets, group_failed=(failure,), text=message)
    elif chosen:
        yield make("", targets, group_failed=tuple(chosen))


def _by_message(
    jobset: JobSet,
    reasons: Sequence[str],
    targets: tuple[str, ...],
    splits: dict[str, Split],
    make: _Make,
) -> Iterator[FailureRule]:
    """As `_by_reason`, each with the Job controller's message, which the patterns match."""
    if "DeadlineExceeded" in reasons:
        yield make(".deadline", targets, reasons=DEADLINE, text=job_messages.DEADLINE)
    for rj in jobset.spec.replicated_jobs:
        if "PodFailurePolicy" in reasons and rj.name in (targets or splits):
            yield from _pods_by_message(rj.name, splits[rj.name], make)
    if "BackoffLimitExceeded" in reasons:
        for rule in _by_reason(("BackoffLimitExceeded",), targets, splits, make):
            yield replace(rule, text=job_messages.LIMIT)


def _pods_by_message(group: str, split: Split, make: _Make) -> Iterator[FailureRule]:
    early = split.retried
    for number, codes in split.failed_by.items():
        if codes:
            text = job_messages.by_exit_code(split.pod, number)
            what = {"reasons": CODES, "exit_codes": codes, "before_retries": early, "text": text}
            yield make(f".pods.{group}.{number}", (group,), **what)
    if split.failed_lost:
        text = job_messages.by_condition(split.pod, split.failed_lost_by)
        what = {"reasons": LOST, "before_retries": early, "text": text}
        yield make(f".pods.{group}.lost", (group,), **what)


def _by_reason(
    reasons: Sequence[str], targets: tuple[str, ...], splits: dict[str, Split], make: _Make
) -> Iterator[FailureRule]:
    if "DeadlineExceeded" in reasons:
        yield make(".deadline", targets, reasons=DEADLINE)
    divided = [g for g in targets or splits if splits[g].fails]
    if "PodFailurePolicy" in reasons and "BackoffLimitExceeded" in reasons:
        yield make(".pods.limit", targets, reasons=LIMIT)
    elif "PodFailurePolicy" in reasons:
        for group in divided:
            yield from _failed(f".pods.{group}", group, splits[group], make)
    elif "BackoffLimitExceeded" in reasons:
        plain = [g for g in targets or splits if not splits[g].fails]
        if not divided:
            yield make(".limit", targets, reasons=LIMIT)
        elif plain:
            yield make(".limit", plain, reasons=LIMIT)
        for group in divided:
            yield from _rest(group, splits[group], make)


def _rest(group: str, split: Split, make: _Make) -> Iterator[FailureRule]:
    """Rules for a group's failures that its pod failure policy does not match."""
    taken_codes = {*split.failed, *split.ignored}
    codes = tuple(code for code in ALL_CODES if code not in taken_codes)
    if codes and split.failed:
        yield make(f".limit.{group}", (group,), reasons=CODES, exit_codes=codes)
    taken = {*(CODES if split.failed else ()), *(LOST if split.failed_lost else ())}
    others = tuple(reason for reason in LIMIT if reason not in taken)
    yield make(f".limit.{group}.others", (group,), reasons=others)
