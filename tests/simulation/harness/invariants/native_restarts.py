"""Invariants of runs that what has started their nodes restarts by itself."""

from __future__ import annotations

from collections.abc import Iterator

from muster.lifecycle.events import RunRestarted
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.states import RunState
from muster.lifecycle.status import NodeRef, Reason
from simulation.harness.invariants.restarts import adoptions, restarts_in_progress
from simulation.harness.trace import Received, Restarted, Step
from simulation.harness.view import View


def native_restarts_are_adopted(view: View) -> Iterator[str]:
    """When a controller hears that the engine has restarted the run by itself, the next step makes
    that the run's attempt: nodes have the engine's incarnation or a later one, or are scaled down,
    and the log names each attempt."""
    heard: RunRestarted | None = None
    for line in view.trace.lines:
        if isinstance(line, Restarted):
            heard = line.event
        elif isinstance(line, Step):
            known = line.after.native_restarts
            if heard is not None and line.by.startswith("controller") and line.decides:
                if known != heard.restarts:
                    yield f"step {line.number}: {known} restarts, {heard.restarts} reported"
                heard = None
            else:
                heard = heard if line.by.startswith("controller") else None
            named = [e for e in line.entries if e.kind == "attempt" and e.data.get("by")]
            if len(named) != known - line.before.native_restarts:
                yield f"step {line.number}: {len(named)} attempts in the log"
            first = of_native_restart(known)
            old = [n for n in line.after.nodes if n.incarnation < first and not n.scaled_down]
            ending = line.before.stopping is not None and all(n.state.ended for n in old)
            if old and known != line.before.native_restarts and not ending:
                yield f"step {line.number}: {old[0]} is older than incarnation {first}"


def budgets_count_native_restarts(view: View) -> Iterator[str]:
    """Each restart by the engine itself that counts is counted towards `max_restarts`, unless it
    replaces a counted restart in progress. If there are too many, the run fails."""
    known = 0
    for step, charged in adoptions(view):
        new, known = step.after.spent.native - known, step.after.spent.native
        if step.before.stopping is not None:
            continue  # no budget matters any more
        replaced = len(restarts_in_progress(view, step))
        # what is reported with it may be that restarts are in progress no more
        if not max(0, new - replaced) <= charged <= max(0, new):
            yield f"step {step.number}: {charged} of {new}, with {replaced} in progress"
        if not _hears_of_nodes_first(view, step) and charged != max(0, new - replaced):
            yield f"step {step.number}: {charged} of {new}, with {replaced} in progress"
        over = step.before.spent.run + charged > view.policy.max_restarts
        ending = step.before.stopping or step.after.stopping
        if charged and over and ending is None and not step.after.state.terminal:
            spent, most = step.after.spent.run, view.policy.max_restarts
            yield f"step {step.number}: {spent} of {most} restarts"


def _hears_of_nodes_first(view: View, step: Step) -> bool:
    """Whether a step applies reports of nodes before that of a restart."""
    first = True
    for line in view.trace.lines:
        if isinstance(line, Step):
            if line is step:
                return not first
            first = True
        elif isinstance(line, Restarted):
            if line.event.restarts == step.after.native_restarts:
                return not first
        elif isinstance(line, Received):
            first = False
    return False


def a_run_is_not_worse_off(view: View) -> Iterator[str]:
    """A run that the engine restarts by itself fails for that only if there were more restarts that
    count than `max_restarts` allows; a restart of the policy's that had started nothing when the
    engine restarted the run, and counted that, is none, unless all that it restarts was scaled down
    before. And it has not failed if an attempt of the engine has completed it."""
    launched = {ref.incarnation for ref in view.incarnations}
    counted, known, last = 0, 0, 0
    for step, _ in adoptions(view):
        own = [r for r in view.restarts if r.counted and last <= r.step.number < step.number]
        new, known = step.after.spent.native - known, step.after.spent.native
        native = of_native_restart(step.after.native_restarts)
        # the nodes of a restart that was suspended before it started any have a later number
        unstarted = sum(
            not any(restart.number <= one < native for one in launched)
            and not all(step.before.nodes[rank].scaled_down for rank in restart.ranks)
            for restart in own
        )
        counted += len(own) + new - min(new, unstarted)
        last = step.number
        ending = step.after.stopping
        if ending is None or not ending.details.startswith("the engine") or step.before.stopping:
            continue
        if counted <= view.policy.max_restarts:
            yield f"step {step.number}: {counted} of {view.policy.max_restarts} restarts"
    yield from _failed_though_completed(view)


def _failed_though_completed(view: View) -> Iterator[str]:
    final = view.trace.final
    if final is None or final.state is not RunState.FAILED or not final.native_restarts:
        return
    if final.broken or any(node.scaled_down for node in final.nodes):
        return
    last, _ = [*adoptions(view)][-1]
    if last.before.stopping is not None or last.after.stopping is not None:
        return
    number = of_native_restart(final.native_restarts)
    failures = (one.data for s in view.steps for one in s.entries if one.kind == "failure")
    if any(failure.get("restart") == number for failure in failures):
        return  # a deadline of the run, which the engine does not know
    for rank, node in enumerate(final.nodes):
        seen = view.incarnations.get(NodeRef(rank, number))
        end = None if seen is None else seen.end
        succeeded = end is not None and end.exit_code == 0 and end.reason is not Reason.OUTPUT_LOST
        if not node.scaled_down and not succeeded:
            return
    yield "all nodes of the engine's last attempt have succeeded"
