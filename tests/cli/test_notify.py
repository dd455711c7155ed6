"""`muster notify`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import cli
from muster.client.client import Client
from muster.errors import InvalidInput, NotFound
from muster.store.notification_records import DeliveryState
from support.embedded import embedded
from support.receivers import Receiver, Reply, receiving
from support.runs import start_spec

WAITS = "events are sent only while a `muster server` runs on this MUSTER_HOME\n"


@pytest.fixture
def receiver(client: Client) -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, ["notify", *words], catch_exceptions=False)


def out(*words: str) -> str:
    """What a command prints on standard output."""
    done = call(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_notification_is_added(client: Client, receiver: Receiver) -> None:
    words = ("--on", "run.failed, job.*", "--job", "train", "--tag", "team=ml", "--tag", "any")
    done = call("add", "hook", receiver.url, *words, "--format", "slack")
    made = client.notification("hook")
    assert done.stdout == f"{made.id}\n"
    shown = f"http://127.0.0.1:{receiver.port}/..."
    first, key, note = done.stderr.splitlines(keepends=True)
    assert first == f"hook sends run.failed,job.* to {shown}\n"
    assert key.startswith("key of the signatures, which is not shown again: whsec_")
    assert note == WAITS
    assert (made.on, made.job, made.tags, made.format) == (
        *(["run.failed", "job.*"], "train", {"team": "ml", "any": None}, "slack"),
    )


def test_what_is_added_without_options(client: Client) -> None:
    made = json.loads(out("add", "chat", "https://hooks.slack.com/services/T/B/x", "--json"))
    assert made["on"] == ["run.succeeded", "run.failed", "run.needs_attention"]
    assert (made["format"], made["target"]) == ("slack", "https://hooks.slack.com/...")
    assert made["key"].startswith("whsec_")
    assert "key" not in client.notification("chat").to_dict()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("add", "a", "ftp://x"), "'ftp://x' is not a target"),
        (("add", "a", "https://x.org", "--on", "run.done"), "--on: there is no event 'run.done'"),
        (("add", "a", "command:page"), "allows no command page"),
        (("add", "a", "mailto:ana@example.com"), "has no [notifications.smtp]"),
        (("add", "a", "file:/etc/x"), "is not below"),
    ],
)
def test_what_cannot_be_added(client: Client, words: tuple[str, ...], why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call(*words)
    assert why in str(caught.value)
    assert client.notifications() == []


def test_settings_of_server_toml_are_used(client: Client, tmp_path: Path) -> None:
    home = embedded(client).home
    home.server.write_text(
        f'[notifications]\nfolders = ["{tmp_path}"]\n'
        '[notifications.commands]\npage = ["/bin/sh", "-c", "grep -q muster.test"]\n'
        '[notifications.smtp]\nhost = "127.0.0.1"\nsender = "m@example.com"\n'
    )
    out("add", "page", "command:page")
    assert out("test", "page") == "the event was delivered to command:page: exit code 0\n"
    out("add", "file", f"file:{tmp_path}/events")
    assert out("test", "file").startswith("the event was delivered to file:")
    assert json.loads((tmp_path / "events").read_text())["type"] == "muster.test"
    out("add", "mail", "mailto:ana@example.com")
    home.server.write_text("[notifications]\nfolder = []\n")
    with pytest.raises(InvalidInput, match="folder: unknown field"):
        call("add", "other", f"file:{tmp_path}/events")


def test_a_test_prints_the_answer(receiver: Receiver) -> None:
    out("add", "hook", receiver.url)
    shown = f"http://127.0.0.1:{receiver.port}/..."
    receiver.answer = lambda _: Reply(200, body=b"thanks")
    assert out("test", "hook") == f"the event was delivered to {shown}: HTTP 200: thanks\n"
    receiver.answer = lambda _: Reply(500)
    done = call("test", "hook")
    assert (done.exit_code, done.stdout) == (
        *(1, f"the event was not delivered to {shown}: HTTP 500\n"),
    )
    done = call("test", "hook", "--json")
    assert json.loads(done.stdout) == {"delivered": False, "answer": "HTTP 500"}


def test_a_notification_is_changed(client: Client, receiver: Receiver) -> None:
    out("add", "hook", receiver.url)
    shown = f"http://127.0.0.1:{receiver.port}/..."
    assert out("edit", "hook", "--on", "run.*") == f"hook sends run.* to {shown}\n"
    done = call("edit", "hook", "--new-key", "--json")
    assert json.loads(done.stdout)["key"].startswith("whsec_")
    assert call("edit", "hook").exit_code == 2
    assert "`muster notify resume hook` resumes it" in out("pause", "hook")
    assert client.notification("hook").paused
    assert out("resume", "hook") == f"hook sends run.* to {shown}\n"
    assert out("delete", "hook") == "hook is deleted\n"
    with pytest.raises(NotFound):
        client.notification("hook")


def test_lists(client: Client, receiver: Receiver) -> None:
    assert call("list").stderr == "no notifications: `muster notify add` makes one\n"
    assert call("failed").stderr == "every event could be sent, or is tried again\n"
    out("add", "hook", receiver.url, "--on", "run.failed", "--job", "train")
    done = call("list")
    header, row = done.stdout.splitlines()
    assert header.split()[:3] == ["NOTIFICATION", "TARGET", "ON"]
    assert row.split()[0] == "hook"
    assert done.stderr == WAITS
    (one,) = json.loads(out("list", "--json"))
    assert (one["name"], one["on"], one["job"]) == ("hook", ["run.failed"], "train")
    assert "no event has happened yet" in out("show", "hook")


def test_what_could_not_be_sent_is_shown_and_retried(
    client: Client, receiver: Receiver, tmp_path: Path
) -> None:
    out("add", "hook", receiver.url, "--on", "run.failed")
    run = start_spec(client, {"name": "broken", "command": ["false"]}, tmp_path).wait(60)
    store = embedded(client).store
    (claimed,) = store.notifications.claim(4e9, 4e9 + 60, limit=5)
    store.notifications.settle(claimed, DeliveryState.FAILED, "HTTP 500: no", 1.0)
    shown = out("failed")
    assert "hook" in shown and f"runs/{run.id}" in shown and "HTTP 500: no" in shown
    (one,) = json.loads(out("failed", "--json"))
    assert (one["type"], one["attempts"], one["answer"]) == ("run.failed", 1, "HTTP 500: no")
    assert "failed" in out("show", "hook")
    assert out("retry", "hook") == "1 event is sent again\n"
    assert out("retry") == "0 events are sent again\n"
    (one,) = json.loads(out("show", "hook", "--json"))["deliveries"]
    assert (one["state"], one["attempts"]) == ("pending", 0)
