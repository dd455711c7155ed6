"""The page with the results of the contract tests."""

from __future__ import annotations

from engines.contract_table import KINDS, PAGE, kind_of, merged, names_in, page, rows_of

RESULTS = {
    ("test_contract.py", "test_a_b"): {
        "local-plain": "yes",
        "hosts": "no",
        "servers": "it has none",
    },
    ("test_restarts.py", "test_c"): {"processes": "it has none"},
    ("subject", "full disk"): {"hosts": "yes"},
    ("capability", "exec"): {"hosts": "yes"},
}


def test_the_page_is_about_tests_that_exist() -> None:
    tests = set(names_in(PAGE.parents[2] / "tests" / "engines"))
    rows = rows_of(PAGE.read_text())
    assert len(rows) > 40
    assert rows <= tests, "`make contract` writes the page again"


def test_the_page_has_no_failure() -> None:
    assert "| no |" not in PAGE.read_text()


def test_what_it_says() -> None:
    text = page(RESULTS)
    assert "| a b | - | yes | - | - | -[^1] | - | no | - | - |" in text
    assert "| c | - | - | - | -[^1] | - | - | - | - | - |" in text
    assert "| full disk | - | - | - | - | - | - | yes | - | - |" in text
    assert "| `exec` | Run a command inside a node" in text
    assert text.endswith("[^1]: it has none\n")
    assert rows_of(text) == {"a b", "c"}


def test_cases_of_one_test() -> None:
    assert {kind_of(f"True-{kind}") for kind in KINDS} == {*KINDS}
    assert {kind_of(f"{kind}-0") for kind in KINDS} == {*KINDS}
    assert kind_of("something else") is None
    assert merged("yes", "no") == merged("no", "why") == "no"
    assert merged("", "why") == merged("why", "other") == "why"
    assert merged("why", "yes") == "yes"
