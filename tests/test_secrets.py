"""Secrets in variables, arguments, texts and errors are masked."""

from __future__ import annotations

import pytest

from muster.errors import EngineError, InvalidInput, Problem
from muster.secrets import (
    HIDDEN,
    SEALED_MARK,
    hidden,
    hidden_words,
    hide,
    print_traceback,
    redacted,
    secret_lines,
    without_lines,
)


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "aws_secret_access_key", "DB_PASSWORD", "PASSWD", "OPENAI_API_KEY", "APIKEY"),
        *("DB_PASS", "GITHUB_PAT", "JWT", "SIGNING_KEY"),
    ],
)
def test_secrets_are_recognized_by_name(name: str) -> None:
    assert hide(name, "x") == HIDDEN
    assert hide(name, "") == "", "an empty value is not masked"


@pytest.mark.parametrize(
    "name", ["PATH", "OMP_NUM_THREADS", "KEYBOARD", "MASTER_ADDR", "PWD", "HF_TOKEN_PATH", "PASSES"]
)
def test_other_variables_are_shown(name: str) -> None:
    assert hide(name, "x") == "x"


def test_nested_secrets_are_hidden() -> None:
    data = {
        "env": {"A": "1", "A_TOKEN": "2"},
        "node_groups": [{"name": "TOKEN", "env": {"B_TOKEN": "3"}, "node_env": {"C_TOKEN": "4"}}],
        "args": ("TOKEN",),
    }
    assert hidden(data) == {
        "env": {"A": "1", "A_TOKEN": HIDDEN},
        "node_groups": [
            {"name": "TOKEN", "env": {"B_TOKEN": HIDDEN}, "node_env": {"C_TOKEN": HIDDEN}}
        ],
        "args": ("TOKEN",),
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train --password=hunter2 --lr=1", "train --password=*** --lr=1"),
        ("cannot reach postgres://me:hunter2@host/db", "cannot reach postgres://me@host/db"),
        ("--env=HF_TOKEN=hunter2 --lr=1", "--env=HF_TOKEN=*** --lr=1"),
        ("DB_PASSWORD=hunter2 ./run; next", "DB_PASSWORD=*** ./run; next"),
        ("--api-key='two words' x", "--api-key=*** x"),
        ("https://host/x?sig=abc&page=1", "https://host/x?sig=***&page=1"),
        ("curl -H 'Authorization: Bearer abc'", "curl -H 'Authorization: Bearer ***'"),
        ("curl -H 'X-Api-Key: abc' host", "curl -H 'X-Api-Key: ***' host"),
        ('--config {"password": "a", "lr": 1}', '--config {"password": ***, "lr": 1}'),
        ("{'users':[{'token':'a'}]}", "{'users':[{'token':***}]}"),
        (r'DB_PASS="a\"hunter2" x', "DB_PASS=*** x"),
        ("AccountKey=abc;x", "AccountKey=***;x"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n", "-----BEGIN OPENSSH PRIVATE KEY-----***"),
    ],
)
def test_a_text_is_shown_without_its_secrets(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "--token=$HF_TOKEN",
        "export GIT_TOKEN=...",
        "--token-file=/run/token",
        "--max_tokens=512",
        "oci://bucket@namespace/x",
        "give --password",
        "secretstorage==3.3.3",
        "env.DB_PASSWORD: must be text",
        "passes=3 --bypass 5 compat=1 path=/x pattern=y",
        "tokens: 512, token: unexpected",
        "ssl: private key",
    ],
)
def test_values_that_are_not_secrets_are_shown(text: str) -> None:
    assert redacted(text) == text


def test_secrets_in_the_arguments_of_a_command_are_hidden() -> None:
    words = ["--token", "a", "--max-tokens", "5", "sh", "-c", "x --password b y", "--token=c"]
    shown = ["--token", "***", "--max-tokens", "5", "sh", "-c", "x --password *** y", "--token=***"]
    assert hidden_words(words) == shown
    assert hidden_words(["--password", "-hunter2", "-v"]) == ["--password", "***", "-v"]
    assert hidden_words(["--password", "-v", "--token", "--fast"])[1::2] == ["-v", "--fast"]
    assert hidden_words(["--token", "$T", "--token-file", "/x", "--token"])[2:] == [
        "--token-file",
        "/x",
        "--token",
    ]


def test_secrets_in_data_of_other_formats_are_hidden() -> None:
    data = {"env": [{"name": "HF_TOKEN", "value": "a"}], "git": {"token_env": "T"}, "token": "b"}
    assert hidden(data) == {
        "env": [{"name": "HF_TOKEN", "value": HIDDEN}],
        "git": {"token_env": "T"},
        "token": HIDDEN,
    }


def test_secrets_are_recognized_by_value() -> None:
    assert redacted("cannot log in with hunter2", ["", "hunter2"]) == "cannot log in with ***"


@pytest.mark.parametrize("word", ["_TOKEN", "-.", "--token ", "a=", "://x:", "a-", "'", "a' "])
def test_secrets_after_long_words_are_hidden_in_time(word: str) -> None:
    text = word * 100_000
    assert redacted(f"{text}! PASSWORD=hunter2").endswith("PASSWORD=***")
    assert hidden_words([f"{text}! --password hunter2"])[0].endswith("--password ***")


SECRET = "--token=hunter2 for https://me:hunter2@host/x"


def test_errors_contain_no_secrets() -> None:
    problem = Problem("--set env.KEY_TOKEN=hunter2", SECRET, "give --password=hunter2", "a.yaml:1")
    for error in (
        EngineError(f"cannot start {SECRET}"),
        InvalidInput(problem),
        InvalidInput(SECRET),
    ):
        assert "hunter2" not in f"{error} {error!r} {error.args}"
        assert "--token=*** for https://host/x" in str(error)
    assert "hunter2" not in repr(InvalidInput(problem).problems)
    assert InvalidInput(problem).problems[0].source == "a.yaml:1"


def test_a_traceback_is_printed_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    def connect() -> None:
        raise OSError(SECRET)

    try:
        try:
            connect()
        except OSError as error:
            raise RuntimeError("no connection") from error
    except RuntimeError:
        print_traceback()
    printed = capsys.readouterr().err
    assert "RuntimeError: no connection" in printed
    assert f"OSError: --token={HIDDEN} for https://host/x" in printed


def test_secrets_in_the_parameter_sets_of_an_array_are_hidden() -> None:
    rows = '["api_token","lr"]\n["hunter2","0.1"]\n["x\\"y","1"]'
    shown = '["api_token","lr"]\n["***","0.1"]\n["***","1"]'
    assert hidden({"array": {"rows": rows}}) == {"array": {"rows": shown}}
    assert hidden({"rows": shown}) == {"rows": shown}
    assert hidden({"rows": f"{SEALED_MARK}TOKEN:{shown}"}) == {"rows": shown}
    address = '["a","b"]\n["https://me:hunter2@host/","password=\\"x y\\""]'
    assert hidden({"rows": address}) == {"rows": '["a","b"]\n["https://host/","password=***"]'}
    plain = '["lr","token_file"]\n["0.1","a b"]'
    assert hidden({"rows": plain})["rows"] is plain
    assert hidden({"rows": "api_token=hunter2"}) == {"rows": HIDDEN}
    assert hidden({"rows": [{"api_token": "hunter2"}]}) == {"rows": [{"api_token": HIDDEN}]}


def test_what_is_hidden_of_secrets_in_output() -> None:
    lines = secret_lines(["abcd\r\n  abcdefgh\t\n\nxyz\n", "efgh"])
    assert lines == ["abcdefgh", "abcd", "efgh"]
    found = without_lines(b"abcdefgh,abcd efgh;abcefgh\n", [line.encode() for line in lines])
    assert found == b"***,*** ***;abc***\n"
    assert without_lines(b"xyz\n", []) == b"xyz\n"


def test_names_of_secrets_of_kubernetes_are_shown() -> None:
    volume = {"secret": {"secretName": "registry"}, "env": [{"valueFrom": {"secretKeyRef": {}}}]}
    assert hidden(volume) is volume
    assert redacted('{"secretName": "registry"}') == '{"secretName": "registry"}'
    job = {"image_pull_secrets": "reg", "pod": {"imagePullSecrets": [{"name": "reg"}]}}
    assert hidden(job) is job
    assert hidden({"IMAGE_PULL_SECRET": "x"}) == {"IMAGE_PULL_SECRET": "***"}
    assert hidden({"secretToken": "x"}) == {"secretToken": "***"}
