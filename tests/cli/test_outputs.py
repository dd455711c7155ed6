"""`muster outputs`."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from muster.cli.outputs import outputs
from muster.client.client import Client
from support.embedded import embedded
from support.runs import start_spec


def call(*args: str) -> Result:
    return CliRunner().invoke(outputs, args, catch_exceptions=False)


def test_files_are_listed_and_copied(client: Client, tmp_path: Path) -> None:
    text = 'echo hello > "$MUSTER_OUTPUTS/model"; echo "{}" > "$MUSTER_RUN_OUTPUTS/summary"'
    spec = {"command": ["sh", "-c", text], "name": "demo"}
    run = start_spec(client, spec, tmp_path).wait(60)
    root = embedded(client).home.run_dir(run.id).outputs

    listed = call("last")
    header, *rows = [line.split() for line in listed.stdout.splitlines()]
    assert header == ["RANK", "SIZE", "WRITTEN", "PATH"]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("-", "3B", "summary"),
        ("0", "6B", "model"),
    ]
    assert listed.stderr == f"2 files, 9B, in {root}\n"

    to = tmp_path / "copy"
    copied = call("last", "--rank", "0", "--to", str(to))
    assert copied.stdout == f"copied 1 file (6B) to {to}\n"
    assert (to / "rank-0" / "model").read_text() == "hello\n"
    assert call("last", "--force").exit_code == 2


def test_a_run_without_outputs_says_how_to_write_some(client: Client, tmp_path: Path) -> None:
    start_spec(client, {"command": ["true"], "name": "demo"}, tmp_path).wait(60)
    result = call("last")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        "demo-1 has no outputs\n"
        'to keep a file, write it to the directory "$MUSTER_OUTPUTS" in the program\n'
    )
    assert call("last", "--json").stdout == "[]\n"


def test_what_is_left_out_is_named_on_one_line(client: Client, tmp_path: Path) -> None:
    text = 'cd "$MUSTER_OUTPUTS"; ln -s /etc/shadow "$(printf \'a\\nb\')"; echo hello > model'
    start_spec(client, {"command": ["sh", "-c", text], "name": "demo"}, tmp_path).wait(60)
    copied = call("last", "--to", str(tmp_path / "copy"))
    why = "a link to /etc/shadow, outside the outputs of the run"
    assert (copied.exit_code, copied.stderr) == (1, f"warning: not copied: rank-0/a\\nb: {why}\n")
