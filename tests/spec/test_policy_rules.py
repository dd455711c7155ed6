"""Rules for order, success, failure, time and names: what a user reads of each."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.errors import InvalidInput
from muster.spec import policy_rules
from muster.spec.order_rules import cycles
from muster.spec.overrides import overrides_from_mapping
from muster.spec.policies import FailureRule
from muster.spec.reader import read_spec, spec_from_mapping
from muster.spec.resolve import resolve

GROUPS = "command: x\nnode_groups:\n"

BAD = {
    # --- what comes first
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
            "(keep the one you mean)"
        ],
    ),
    "a circle": (
        GROUPS + "- {name: c}\n- {name: a, depends_on: [{group: b}]}\n"
        "- {name: b, depends_on: [{group: c}, {group: a}]}\n",
        [
            "job.yaml:4: node_groups[1].depends_on: goes round in a circle: a -> b -> a "
            "(one of them has to start first)"
        ],
    ),
    "two orders": (
        "startup: in_order\n" + GROUPS + "- {name: a}\n- {name: b, depends_on: [{group: a}]}\n",
        [
            "job.yaml:1: startup: in_order stands beside depends_on of group b "
            "(keep the one you mean)"
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
    "any of none": (
        "success: {when: any}\n" + GROUPS + "- {name: a, min_success: 0}\n",
        [
            "job.yaml:1: success.when: any of none: every group has min_success 0 "
            "(name the groups it is about in success.groups)"
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
    "rules of one name": (
        "command: x\nfailure:\n  rules:\n  - {action: fail, exit_codes: 1}\n"
        "  - {action: fail, exit_codes: 2, name: rule-1}\n",
        [
            "job.yaml:5: failure.rules[1].name: 'rule-1' is the name of failure.rules[0] already "
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
    "a rule after one for all": (
        "command: x\nfailure:\n  rules:\n  - {action: fail}\n"
        "  - {action: restart_run, exit_codes: 3}\n",
        [
            "job.yaml:5: failure.rules[1]: is never reached: all it fits is decided by "
            "failure.rules[0] (put it before that one, or remove it)"
        ],
    ),
    "a rule after a wider one": (
        "command: x\nfailure:\n  rules:\n  - {action: fail, exit_codes: 1-9}\n"
        "  - {action: restart_run, exit_codes: [3, 4], reasons: [exit]}\n"
        "  - {action: restart_run, exit_codes: [9, 10]}\n",
        [
            "job.yaml:5: failure.rules[1]: is never reached: all it fits is decided by "
            "failure.rules[0] (put it before that one, or remove it)"
        ],
    ),
    "a rule after one that comes before retries": (
        "command: x\nfailure:\n  rules:\n  - {action: restart_run, exit_codes: 3}\n"
        "  - {action: fail, before_retries: true}\n",
        [
            "job.yaml:4: failure.rules[0]: is never reached: all it fits is decided by "
            "failure.rules[1] (give it before_retries and put it before that one, or remove it)"
        ],
    ),
    "a rule before retries after another": (
        "command: x\nfailure:\n  rules:\n  - {action: fail, before_retries: true}\n"
        "  - {action: fail, before_retries: true, exit_codes: 3}\n",
        [
            "job.yaml:5: failure.rules[1]: is never reached: all it fits is decided by "
            "failure.rules[0] (put it before that one, or remove it)"
        ],
    ),
    "an end that counts": (
        "command: x\nfailure:\n  rules:\n"
        "  - {action: fail, exit_codes: 1, count: false, max_restarts: 2}\n",
        [
            "job.yaml:4: failure.rules[0].count: says nothing beside action: fail, which restarts "
            "nothing (remove it, or choose another action)",
            "job.yaml:4: failure.rules[0].max_restarts: says nothing beside action: fail, which "
            "restarts nothing (remove it, or choose another action)",
        ],
    ),
    "exit codes of what has none": (
        "command: x\nfailure:\n  rules:\n"
        "  - {action: fail, exit_codes: 1, signals: [9], reasons: [exit, node_lost, hang]}\n",
        [
            "job.yaml:4: failure.rules[0].reasons: node_lost says nothing of exit_codes: both "
            "together never fit (make node_lost a rule of its own)",
            "job.yaml:4: failure.rules[0].reasons: node_lost says nothing of signals: both "
            "together never fit (make node_lost a rule of its own)",
        ],
    ),
    "conditions nobody can read": (
        "command: x\nfailure:\n  rules:\n  - {action: fail, exit_codes: '0-300'}\n"
        "  - {action: fail, exit_codes: [one]}\n  - {action: fail, signals: [SIGFOO]}\n"
        "  - {action: fail, messages: ['a(']}\n  - {action: fail, reasons: [lost]}\n"
        "  - {action: stop}\n",
        [
            "job.yaml:4: failure.rules[0].exit_codes: '0-300' is no exit code of a failure "
            "(they are 1 to 255)",
            "job.yaml:5: failure.rules[1].exit_codes: 'one' is no exit code "
            "(write 137, or 1-9 for a range)",
            "job.yaml:6: failure.rules[2].signals[0]: 'SIGFOO' is no signal "
            "(write a name such as SIGUSR1)",
            "job.yaml:7: failure.rules[3].messages[0]: 'a(' is no regular expression: missing ) "
            "(the syntax is RE2's: https://github.com/google/re2/wiki/Syntax)",
            "job.yaml:8: failure.rules[4].reasons[0]: cannot be 'lost' "
            '(did you mean "node_lost"?)',
            "job.yaml:9: failure.rules[5].action: cannot be 'stop' (there are: fail, restart_run, "
            "restart_group, restart_replica, restart_node)",
        ],
    ),
    "waits that shrink": (
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
            "(make it shorter: a run may have several attempts)"
        ],
    ),
    "ready after the end": (
        "ready_timeout: 1h\n"
        + GROUPS
        + "- {name: a, timeout: 30m}\n- {name: b, timeout: 30m, ready_timeout: 31m}\n",
        [
            "job.yaml:1: ready_timeout: 1h is longer than the timeout of group a, 30m "
            "(a replica has to be up before it has to end)",
            "job.yaml:5: node_groups[1].ready_timeout: 31m is longer than the timeout of group b, "
            "30m (a replica has to be up before it has to end)",
        ],
    ),
    "looking at output that is not kept": (
        "hang_timeout: 1m\nlogging: {enabled: false}\n" + GROUPS + "- {name: a, hang_timeout: 5}\n",
        [
            "job.yaml:1: hang_timeout: no output can be seen to stop with logging.enabled: false "
            "(keep the one you mean)",
            "job.yaml:5: node_groups[0].hang_timeout: no output can be seen to stop with "
            "logging.enabled: false (keep the one you mean)",
        ],
    ),
    "no time at all": (
        "command: x\nhang_timeout: 0\ncheckpoint: {grace: 0}\n",
        [
            "job.yaml:2: hang_timeout: must be more than 0, not 0",
            "job.yaml:3: checkpoint.grace: must be more than 0, not 0",
        ],
    ),
    "a signal nobody hears": (
        "command: x\ncheckpoint: {signal: kill}\n",
        [
            "job.yaml:2: checkpoint.signal: SIGKILL cannot be caught: there would be no time to "
            "save anything (use one such as SIGUSR1)"
        ],
    ),
    # --- names
    "subdomain": (
        "command: x\nsubdomain: my.lab\n",
        [
            "job.yaml:2: subdomain: 'my.lab' cannot be part of a host name (use up to 63 "
            "lower-case letters, digits and -, from a letter or digit to another)"
        ],
    ),
    "placeholders": (
        GROUPS + "- name: a\n  hostname: w-${indx}-${attempt}\n"
        "  node_env: {A: '${rnk} ${HOME}', B: '${zzz}'}\n"
        "  node_args: ['$${indx} $$${rank}', '--i=${indx}']\n  working_dir: a/../..\n",
        [
            "job.yaml:4: node_groups[0].hostname: no placeholder named ${indx} "
            '(did you mean "index"?)',
            "job.yaml:4: node_groups[0].hostname: ${attempt} is not known yet when nodes get their "
            "names (there are: rank, group, replica, index, run.name, run.replica)",
            "job.yaml:5: node_groups[0].node_env.A: no placeholder named ${rnk} "
            '(did you mean "rank"?)',
            "job.yaml:5: node_groups[0].node_env.B: no placeholder named ${zzz} (there are: rank, "
            "group, replica, index, run.name, run.replica, attempt, run.restarts, run.id, address, "
            "hostname; $${zzz} is the text itself)",
            "job.yaml:6: node_groups[0].node_args[1]: no placeholder named ${indx} "
            '(did you mean "index"?)',
            "job.yaml:7: node_groups[0].working_dir: a/../.. leads out of where it begins (write "
            "it without ..)",
        ],
    ),
    "a variable with two values": (
        "env: {A: 1}\n" + GROUPS + "- {name: a, env: {B: 1}, node_env: {A: 2, B: 2, C: 2}}\n",
        [
            "job.yaml:4: node_groups[0].node_env.A: A is in env, too (keep the one you mean)",
            "job.yaml:4: node_groups[0].node_env.B: B is in env, too (keep the one you mean)",
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
            "job.yaml:4: node_groups[1].hostname: ranks 0 and 1 would both be called head "
            "(${rank} makes it a node's own)",
            "job.yaml:5: node_groups[2].hostname: ranks 2 and 3 would both be called c "
            "(${rank} makes it a node's own)",
        ],
    ),
    "the name of another rank": (
        GROUPS + "- {name: a}\n- {name: b, nodes: 2, hostname: 'node-${index}'}\n",
        [
            "job.yaml:4: node_groups[1].hostname: rank 1 would be called node-0, as rank 0 is "
            "(node-N is rank N on every node, whatever it is called besides)"
        ],
    ),
    "more nodes than can be named": (
        GROUPS + "- {name: a, nodes: 1000000000000, hostname: 'w${rank}'}\n",
        ["job.yaml:2: node_groups: 1,000,000,000,000 nodes in all (a run can have 100,000)"],
    ),
    "names that are none": (
        f"name: {'J' * 60}\n" + GROUPS + "- {name: a, hostname: 'w_${rank}'}\n"
        "- {name: b, hostname: localhost}\n- {name: c, hostname: '${run.name}'}\n",
        [
            "job.yaml:4: node_groups[0].hostname: 'w_0', of rank 0, is no host name (use up to 63 "
            "lower-case letters, digits and -, from a letter or digit to another)",
            "job.yaml:5: node_groups[1].hostname: localhost is what each node calls itself "
            "(use another name)",
            f"job.yaml:6: node_groups[2].hostname: '{'j' * 55}...', of rank 2, is no host name "
            "(use up to 63 lower-case letters, digits and -, from a letter or digit to another)",
        ],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_named_with_its_place(tmp_path: Path, case: str) -> None:
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
def test_what_can_be(data: dict[str, Any]) -> None:
    resolve(spec_from_mapping({"command": "x", **data}), overrides_from_mapping({}))


def test_what_was_read_in_part_is_not_blamed_for_the_rest() -> None:
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
        st.lists(st.sampled_from([*NAMES, "nobody"]), max_size=4, unique=True),
        min_size=1,
    )
)
def test_an_order_is_refused_only_if_there_is_none(needs: dict[str, list[str]]) -> None:
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
def test_each_circle_that_is_told_is_one(needs: dict[str, set[str]]) -> None:
    found = cycles(needs)
    for cycle in found:
        assert len(cycle) > 1
        for name, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert other in needs[name]
    told = {name for cycle in found for name in cycle}
    rest = {name: others - told - {name} for name, others in needs.items() if name not in told}
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
def test_covered_rules_are_those_that_a_comparison_of_all_finds(rules: list[FailureRule]) -> None:
    asked = sorted(range(len(rules)), key=lambda number: not rules[number].before_retries)
    expected = {}
    for place, number in enumerate(asked):
        for before in asked[:place]:
            if policy_rules._covers(rules[before], rules[number]):
                expected[number] = before
                break
    assert policy_rules.covered(rules) == expected


@pytest.mark.parametrize("name", ["groups", "messages", "both"])
def test_of_many_rules_few_are_compared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def covers(before: FailureRule, rule: FailureRule) -> bool:
        compared.append(rule)
        return real(before, rule)

    real = policy_rules._covers
    monkeypatch.setattr(policy_rules, "_covers", covers)
    names = [("common", str(n)) if name == "both" else (str(n),) for n in range(200)]
    field = "messages" if name == "both" else name
    rules = [replace(FailureRule(action="fail"), **{field: own}) for own in names]
    assert policy_rules.covered(rules) == {}
    assert len(compared) <= len(rules)
