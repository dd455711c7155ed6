"""The page about policies: its statements and rules are read, and its tables are complete."""

from __future__ import annotations

import re

import pytest

from muster.iam.policies.parsing import parse_policy, parse_rule
from muster.iam.policies.vocabulary import (
    ALL_RESOURCES,
    FAMILIES,
    RULE_VARIABLES,
    TAG_VARIABLES,
    TYPES,
    VERBS,
    variables,
)
from support.pages import ROOT

PAGE = (ROOT / "docs/policies.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def rows(header: str) -> list[list[str]]:
    """The cells of a table, by the first word of its header."""
    (table,) = re.findall(rf"^\| {header} \|.*\n\| ---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]


def codes(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


@pytest.mark.parametrize("text", blocks("policy"))
def test_statements_are_read(text: str) -> None:
    policy = parse_policy(text, "page")
    assert policy.findings == ()
    assert len(policy.statements) == len(text.splitlines())


def test_rules_are_read() -> None:
    assert len(blocks("rule")) == 1
    for text in blocks("rule"):
        parse_rule(text)


def test_the_error_is_what_is_shown() -> None:
    (shown,) = blocks("text")
    wrong = shown.splitlines()[1].strip()
    found = parse_policy(wrong, "vision.policy").findings
    assert "\n".join(map(str, found)) == shown.strip()


def test_the_table_of_types_is_complete() -> None:
    found = {}
    for kind, *cells in rows("type"):
        name = codes(kind)[0]
        found[name] = []
        for cell in cells:
            full: list[str] = []
            for code in codes(cell):  # `X_CREATE` `_DELETE`
                short = code.startswith("_")
                full.append(f"{full[0].rpartition('_')[0]}{code}" if short else code)
            found[name].append(full)
    wanted = {
        name: [list(map(str, one.adds[verb])) for verb in VERBS] for name, one in TYPES.items()
    }
    assert found == wanted


def test_the_table_of_families_is_complete() -> None:
    found = {codes(name)[0]: tuple(codes(types)) for name, types in rows("family")}
    assert found == {name: types for name, types in FAMILIES.items() if name != ALL_RESOURCES}


def test_the_tables_of_variables_are_complete() -> None:
    tables = re.findall(r"^\| variable \|.*\n\| ---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    of_statements, of_rules = (
        {name for row in table.splitlines() for name in codes(row.split(" | ")[0])}
        for table in tables
    )
    tags = {f"{prefix}NAMESPACE.KEY" for prefix in TAG_VARIABLES}
    assert of_statements == {*variables(), *tags}
    assert of_rules == {*RULE_VARIABLES, "tag.NAMESPACE.KEY.value"}


def test_requests_about_a_type_have_the_variables_that_the_table_says() -> None:
    checked = 0
    for row in PAGE.splitlines():
        cells = row.strip("|").split(" | ")
        if len(cells) != 3 or not cells[2].strip().startswith("about `"):
            continue
        for name in codes(cells[0]):
            with_it = {kind for kind, one in TYPES.items() if name in one.variables}
            assert with_it == set(codes(cells[2]))
            checked += 1
    assert checked > 15
