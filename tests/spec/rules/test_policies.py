"""Rules for order, success, failure, time and names, and the errors that users read."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.errors import InvalidInput
from muster.spec.overrides import overrides_from_mapping
from muster.spec.policies import FailureRule
from muster.spec.reader import read_spec, spec_from_mapping
from muster.spec.resolve import resolve
from muster.spec.rules import policies
from muster.spec.rules.groups import cycles

GROUPS = "command: x\nnode_groups:\n"

BAD = {
    # --- order
    "unknown group to wait for": (
        GROUPS + "- {name: data}\n- {name: b, depends_on: [{group: date}]}\n",
        [
            "job.yaml:4: node_groups[1].depends_on[0].group: no group named 'date' "
            '(did you mean "data"?)'
        ],
    ),
    "a group that waits for itself": (
        GROUPS + "- {name: a, depends_on: [{group: a}]}\n",
        ["job.yaml:3: node_groups[0].depends_on[0].group: a cannot wait for itself (remove it)"],
    ),
    "waiting twice": (
        GROUPS
        + "- {name: a}\n- {name: b, depends_on: [{group: a}, {group: a, status: complete}]}\n",
        [
            "job.yaml:4: node_groups[1].depends_on[1].group: a is listed twice "
            "(keep only one of them)"
        ],
    ),
    "a cycle": (
        GROUPS + "- {name: c}\n- {name: a, depends_on: [{group: b}]}\n"
        "- {name: b, depends_on: [{group: c}, {group: a}]}\n",
        [
            "job.yaml:4: node_groups[1].depends_on: is circular: a -> b -> a "
            "(one of them must start first)"
        ],
    ),
    "two orders": (
        "startup: in_order\n" + GROUPS + "- {name: a}\n- {name: b, depends_on: [{group: a}]}\n",
        [
            "job.yaml:1: startup: in_order conflicts with depends_on of group b "
            "(keep only one of them)"
        ],
    ),
    # --- success
    "groups of success": (
        "command: x\nsuccess: {groups: [work, workers, workers]}\n",
        [
            "job.yaml:2: success.groups[0]: no group named 'work' (did you mean \"workers\"?)",
            "job.yaml:2: success.groups[2]: workers is listed twice (remove one)",
        ],
    ),
    "any of no group": (
        "success: {when: any}\n" + GROUPS + "- {name: a, min_success: 0}\n",
        [
            "job.yaml:1: success.when: no group can succeed: each has min_success 0 "
            "(list groups in success.groups)"
        ],
    ),
    # --- failure
    "groups of a rule": (
        "command: x\nfailure:\n  rules:\n  - {action: fail, groups: [workers, worker, workers]}\n",
        [
            "job.yaml:4: failure.rules[0].groups[1]: no group named 'worker' "
            '(did you mean "workers"?)',
            "job.yaml:4: failure.rules[0].groups[2]: workers is listed twice (remove one)",
        ],
    ),
    "two rules of one name": (
        "command: x\nfailure:\n  rules:\n  - {action: fail, exit_codes: 1}\n"
        "  - {action: fail, exit_codes: 2, name: rule-1}\n",
        [
            "job.yaml:5: failure.rules[1].name: failure.rules[0] is already named 'rule-1' "
            "(rule names are unique)"
        ],
    ),
    "name of a rule": (
        "command: x\nfailure:\n  rules:\n  - {action: fail, name: 'a b'}\n",
        [
            "job.yaml:4: failure.rules[0].name: 'a b' is not a name for a rule (use up to 255 "
            "letters, digits, . _ , : and -, starting with a letter)"
        ],
    ),
    "a rule after one that matches all": (
        "command: x\nfailure:\n  rules:\n  - {action: fail}\n"
        "  - {action: restart_run, exit_codes: 3}\n",
        [
            "job.yaml:5: failure.rules[1]: never applies: failure.rules[0] matches all its "
            "failures first (put it before that one, or remove it)"
        ],
    ),
    "a rule after a wider one": (
        "command: x\nfailure:\n  rules:\n  - {action: fail, exit_codes: 1-9}\n"
        "  - {action: restart_run, exit_codes: [3, 4], reasons: [exit]}\n"
        "  - {action: restart_run, exit_codes: [9, 10]}\n",
        [
            "job.yaml:5: failure.rules[1]: never applies: failure.rules[0] matches all its "
            "failures first (put it before that one, or remove it)"
        ],
    ),
    "a rule after one that comes before retries": (
        "command: x\nfailure:\n  rules:\n  - {action: restart_run, exit_codes: 3}\n"
        "  - {action: fail, before_retries: true}\n",
        [
            "job.yaml:4: failure.rules[0]: never applies: failure.rules[1] matches all its "
            "failures first (give it before_retries and put it before that one, or remove it)"
        ],
    ),
    "a rule before retries after another": (
        "command: x\nfailure:\n  rules:\n  - {action: fail, before_retries: true}\n"
        "  - {action: fail, before_retries: true, exit_codes: 3}\n",
        [
            "job.yaml:5: failure.rules[1]: never applies: failure.rules[0] matches all its "
            "failures first (put it before that one, or remove it)"
        ],
    ),
    "a final rule that counts restarts": (
        "command: x\nfailure:\n  rules:\n"
        "  - {action: fail, exit_codes: 1, count: false, max_restarts: 2}\n",
        [
            "job.yaml:4: failure.rules[0].count: has no effect with action: fail, which restarts "
            "nothing (remove it, or choose another action)",
            "job.yaml:4: failure.rules[0].max_restarts: has no effect with action: fail, which "
            "restarts nothing (remove it, or choose another action)",
        ],
    ),
    "exit codes of failures without one": (
        "command: x\nfailure:\n  rules:\n"
        "  - {action: fail, exit_codes: 1, signals: [9], reasons: [exit, node_lost, hang]}\n",
        [
            "job.yaml:4: failure.rules[0].reasons: failures with reason node_lost have no "
            "exit_codes, so this rule never matches (write a separate rule for node_lost)",
            "job.yaml:4: failure.rules[0].reasons: failures with reason node_lost have no "
            "signals, so this rule never matches (write a separate rule for node_lost)",
        ],
    ),
    "invalid conditions": (
        "command: x\nfailure:\n  rules:\n  - {action: fail, exit_codes: '0-300'}\n"
        "  - {action: fail, exit_codes: [one]}\n  - {action: fail, signals: [SIGFOO]}\n"
        "  - {action: fail, messages: ['a(']}\n  - {action: fail, reasons: [lost]}\n"
        "  - {action: stop}\n",
        [
            "job.yaml:4: failure.rules[0].exit_codes: '0-300' is not an exit code of a failure "
            "(use 1 to 255)",
            "job.yaml:5: failure.rules[1].exit_codes: 'one' is not an exit code "
            "(write 137, or 1-9 for a range)",
            "job.yaml:6: failure.rules[2].signals[0]: 'SIGFOO' is not a signal "
            "(write a name such as SIGUSR1)",
            "job.yaml:7: failure.rules[3].messages[0]: 'a(' is not a regular expression: missing ) "
            "(the syntax is RE2's: https://github.com/google/re2/wiki/Syntax)",
            "job.yaml:8: failure.rules[4].reasons[0]: cannot be 'lost' "
            '(did you mean "node_lost"?)',
            "job.yaml:9: failure.rules[5].action: cannot be 'stop' (use fail, fail_replica, "
            "restart_run, restart_group, restart_replica or restart_node)",
        ],
    ),
    "an initial delay above the maximum": (
        "command: x\nfailure: {backoff: {initial: 10m}}\n",
        [
            "job.yaml:2: failure.backoff.initial: 10m is longer than max, 5m "
            "(make it shorter, or max longer)"
        ],
    ),
    # --- time
    "an attempt longer than its run": (
        "command: x\nattempt_timeout: 2h\nmax_runtime: 1h\n",
        [
            "job.yaml:2: attempt_timeout: 2h is longer than max_runtime, 1h "
            "(make it shorter; a run may have several attempts)"
        ],
    ),
    "ready after the timeout": (
        "ready_timeout: 1h\n"
        + GROUPS
        + "- {name: a, timeout: 30m}\n- {name: b, timeout: 30m, ready_timeout: 31m}\n",
        [
            "job.yaml:1: ready_timeout: 1h is longer than the timeout of group a, 30m "
            "(a replica must be ready before it times out)",
            "job.yaml:5: node_groups[1].ready_timeout: 31m is longer than the timeout of group b, "
            "30m (a replica must be ready before it times out)",
        ],
    ),
    "a hang timeout without output": (
        "hang_timeout: 1m\nlogging: {enabled: false}\n" + GROUPS + "- {name: a, hang_timeout: 5}\n",
        [
            "job.yaml:1: hang_timeout: needs the output, but logging.enabled is false "
            "(keep only one of them)",
            "job.yaml:5: node_groups[0].hang_timeout: needs the output, but logging.enabled is "
            "false (keep only one of them)",
        ],
    ),
    "timeouts of zero": (
        "command: x\nhang_timeout: 0\ncheckpoint: {grace: 0}\n",
        [
            "job.yaml:2: hang_timeout: must be more than 0, not 0",
            "job.yaml:3: checkpoint.grace: must be more than 0, not 0",
        ],
    ),
    "a signal that cannot be caught": (
        "command: x\ncheckpoint: {signal: kill}\n",
        [
            "job.yaml:2: checkpoint.signal: SIGKILL cannot be caught, so there would be no time "
            "for a checkpoint (use one such as SIGUSR1)"
        ],
    ),
    # --- names
    "subdomain": (
        "command: x\nsubdomain: my.lab\n",
        [
            "job.yaml:2: subdomain: 'my.lab' is not a valid part of a host name (use up to 63 "
            "lower-case letters, digits and -; start and end with a letter or digit)"
        ],
    ),
    "placeholders": (
        GROUPS + "- name: a\n  hostname: w-${indx}-${attempt}\n"
        "  node_env: {A: '${rnk} ${HOME}', B: '${zzz}'}\n"
        "  node_args: ['$${indx} $$${rank}', '--i=${indx}']\n  working_dir: a/../..\n",
        [
            "job.yaml:4: node_groups[0].hostname: no placeholder named ${indx} "
            '(did you mean "index"?)',
            "job.yaml:4: node_groups[0].hostname: ${attempt} is not known when nodes get their "
            "names (use rank, group, replica, index, run.name or run.replica)",
            "job.yaml:5: node_groups[0].node_env.A: no placeholder named ${rnk} "
            '(did you mean "rank"?)',
            "job.yaml:5: node_groups[0].node_env.B: no placeholder named ${zzz} (use rank, "
            "group, replica, index, run.name, run.replica, attempt, run.restarts, run.id, address "
            "or hostname; $${zzz} is the text itself)",
            "job.yaml:6: node_groups[0].node_args[1]: no placeholder named ${indx} "
            '(did you mean "index"?)',
            "job.yaml:7: node_groups[0].working_dir: a/../.. contains .. (write it without ..)",
        ],
    ),
    "a variable with two values": (
        "env: {A: 1}\n" + GROUPS + "- {name: a, env: {B: 1}, node_env: {A: 2, B: 2, C: 2}}\n",
        [
            "job.yaml:4: node_groups[0].node_env.A: A is also in env (keep only one of them)",
            "job.yaml:4: node_groups[0].node_env.B: B is also in env (keep only one of them)",
        ],
    ),
    "too much for one environment": (
        GROUPS + f"- {{name: a, env: {{A: {'x' * 15000}}}, node_env: {{B: {'y' * 6000}}}}}\n",
        [
            "job.yaml:3: node_groups[0].env: 21,002 characters in names and values, 20,000 are "
            "allowed (put large values into a file)"
        ],
    ),
    "one name for two nodes": (
        GROUPS + "- {name: a, hostname: head}\n- {name: b, hostname: head}\n"
        "- {name: c, nodes: 3, hostname: '${group}'}\n",
        [
            "job.yaml:4: node_groups[1].hostname: ranks 0 and 1 would both be named head "
            "(use ${rank} to make it unique)",
            "job.yaml:5: node_groups[2].hostname: ranks 2 and 3 would both be named c "
            "(use ${rank} to make it unique)",
        ],
    ),
    "the name of another rank": (
        GROUPS + "- {name: a}\n- {name: b, nodes: 2, hostname: 'node-${index}'}\n",
        [
            "job.yaml:4: node_groups[1].hostname: rank 1 would be named node-0, as rank 0 is "
            "(node-N is rank N on every node, in addition to its host name)"
        ],
    ),
    "more nodes than can be named": (
        GROUPS + "- {name: a, nodes: 1000000000000, hostname: 'w${rank}'}\n",
        ["job.yaml:2: node_groups: 1,000,000,000,000 nodes in all (a run can have 100,000)"],
    ),
    "invalid host names": (
        f"name: {'J' * 60}\n" + GROUPS + "- {name: a, hostname: 'w_${rank}'}\n"
        "- {name: b, hostname: localhost}\n- {name: c, hostname: '${run.name}'}\n",
        [
            "job.yaml:4: node_groups[0].hostname: 'w_0', of rank 0, is not a valid host name "
            "(use up to 63 "
            "lower-case letters, digits and -; start and end with a letter or digit)",
            "job.yaml:5: node_groups[1].hostname: localhost is reserved on each node "
            "(use another name)",
            f"job.yaml:6: node_groups[2].hostname: '{'j' * 55}...', of rank 2, is not a valid "
            f"host name "
            "(use up to 63 lower-case letters, digits and -; start and end with a letter or digit)",
        ],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_conflicts_are_reported_with_their_place(tmp_path: Path, case: str) -> None:
    text, expected = BAD[case]
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_spec(path)
    assert [str(p).replace(str(path), "job.yaml") for p in caught.value.problems] == expected


@pytest.mark.parametrize(
    "data",
    [
        {"failure": {"rules": [{"action": "restart_run", "max_restarts": 0}]}},
        {"node_groups": [{"name": "a", "max_restarts": 5}]},
        {"failure": {"rules": [{"action": "fail", "signals": ["SIGSEGV"], "reasons": ["exit"]}]}},
        {"failure": {"rules": [{"action": "fail", "exit_codes": 1}, {"action": "fail"}]}},
        {
            "failure": {
                "rules": [
                    {"action": "fail"},
                    {"action": "fail", "exit_codes": 1, "before_retries": True},
                ]
            }
        },
        {"failure": {"rules": [{"action": "fail", "name": "n" * 255}]}},
        {
            "failure": {
                "rules": [
                    {"action": "restart_run", "messages": ["code 4"], "text": "code ${exit_code}"},
                    {"action": "fail", "messages": ["code 4"]},
                ]
            }
        },
        {"failure": {"backoff": {"initial": 0, "max": 0}}},
        {
            "success": {"when": "any", "groups": ["a"]},
            "node_groups": [{"name": "a", "min_success": 0}],
        },
        {"ready_timeout": "10m", "node_groups": [{"name": "a", "timeout": "10m"}]},
        {"node_groups": [{"name": "a"}, {"name": "b", "hostname": "node-${rank}"}]},
        {"node_groups": [{"name": "a", "hostname": "node-7"}]},
        {"name": "My_Job.1", "node_groups": [{"name": "a", "hostname": "${run.name}"}]},
        {"node_groups": [{"name": "a", "node_env": {"A": "$HOME ${HOME} ${run.id}"}}]},
    ],
)
def test_valid_policies(data: dict[str, Any]) -> None:
    resolve(spec_from_mapping({"command": "x", **data}), overrides_from_mapping({}))


def test_invalid_fields_cause_no_further_problems() -> None:
    data = {
        "command": "x",
        "success": {"groups": ["a"]},
        "failure": {
            "rules": [
                {"action": "fail", "exit_codes": "many", "groups": ["a"]},
                {"action": "restart_run", "groups": ["a"]},
            ],
            "backoff": {"initial": "1h", "max": "long"},
        },
        "node_groups": [{"name": "A!"}],
    }
    with pytest.raises(InvalidInput) as caught:
        spec_from_mapping(data)
    assert [problem.path for problem in caught.value.problems] == [
        "node_groups[0].name",
        "failure.rules[0].exit_codes",
        "failure.backoff.max",
    ]


NAMES = [f"g{number}" for number in range(6)]


@given(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.lists(st.sampled_from([*NAMES, "missing"]), max_size=4, unique=True),
        min_size=1,
    )
)
def test_only_cyclic_orders_are_refused(needs: dict[str, list[str]]) -> None:
    groups = [
        {"name": name, "depends_on": [{"group": other} for other in others]}
        for name, others in needs.items()
    ]
    wrong = any(o == name or o not in needs for name, others in needs.items() for o in others)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError:
        wrong = True
    try:
        spec_from_mapping({"command": "x", "node_groups": groups})
    except InvalidInput:
        assert wrong
    else:
        assert not wrong


@given(st.dictionaries(st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES)), min_size=1))
def test_each_reported_cycle_is_a_cycle(needs: dict[str, set[str]]) -> None:
    found = cycles(needs)
    for cycle in found:
        assert len(cycle) > 1
        for name, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert other in needs[name]
    settings = {name for cycle in found for name in cycle}
    rest = {
        name: others - settings - {name} for name, others in needs.items() if name not in settings
    }
    TopologicalSorter(rest).prepare()


def values(of: Any) -> Any:
    return st.lists(st.sampled_from(of), max_size=2, unique=True).map(tuple)


@given(
    st.lists(
        st.builds(
            FailureRule,
            action=st.just("fail"),
            groups=values(["a", "b"]),
            exit_codes=values([1, 2]),
            reasons=values(["exit", "hang"]),
            messages=values(["x", "y"]),
            text=st.sampled_from([None, "t"]),
            before_retries=st.booleans(),
        ),
        max_size=8,
    )
)
def test_covered_rules_are_found_as_by_comparing_all(rules: list[FailureRule]) -> None:
    order = sorted(range(len(rules)), key=lambda number: not rules[number].before_retries)
    expected = {}
    for place, number in enumerate(order):
        for before in order[:place]:
            if policies._covers(rules[before], rules[number]):
                expected[number] = before
                break
    assert policies.covered(rules) == expected


@pytest.mark.parametrize("name", ["groups", "messages", "both"])
def test_few_of_many_rules_are_compared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def covers(before: FailureRule, rule: FailureRule) -> bool:
        compared.append(rule)
        return real(before, rule)

    real = policies._covers
    monkeypatch.setattr(policies, "_covers", covers)
    names = [("common", str(n)) if name == "both" else (str(n),) for n in range(200)]
    field = "messages" if name == "both" else name
    rules = [replace(FailureRule(action="fail"), **{field: own}) for own in names]
    assert policies.covered(rules) == {}
    assert len(compared) <= len(rules)
