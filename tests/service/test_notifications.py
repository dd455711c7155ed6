"""Who may add which notifications."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.api.notifications import NotificationChange, NotificationRequest
from muster.caller import Caller, Right
from muster.errors import Forbidden, InvalidInput
from muster.service.embedded import EmbeddedAPI
from muster.submission import of_this_process

MEMBER = frozenset({Right.READ, Right.SUBMIT})


@pytest.fixture
def local(own_home: Path) -> Iterator[EmbeddedAPI]:
    """Muster for the user of this machine."""
    made = EmbeddedAPI()
    yield made
    made.close()


def remote(local: EmbeddedAPI, *more: Right) -> EmbeddedAPI:
    """Muster for a member on another machine, of a server with the usual settings."""
    submission = replace(of_this_process(), has_files=False, allow_private_addresses=False)
    caller = Caller("sam", "default", MEMBER | {*more})
    return EmbeddedAPI(caller=caller, backend=local.context.backend, submission=submission)


def add(api: EmbeddedAPI, target: str, name: str = "hook") -> None:
    api.create_notification(NotificationRequest(name, target))


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/x",
        "https://localhost:8443/x",
        "https://2130706433/x",
        "https://[::ffff:10.0.0.1]/x",
        "https://169.254.169.254/latest/meta-data",
    ],
)
def test_members_reach_nothing_of_the_servers_network(local: EmbeddedAPI, url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        add(remote(local), url)
    (problem,) = caught.value.problems
    assert problem.path == "target"
    assert "allow_private_addresses in server.toml permits others" in problem.hint
    assert "/x" not in problem.message and "meta-data" not in problem.message


def test_members_send_nothing_without_tls(local: EmbeddedAPI) -> None:
    with pytest.raises(InvalidInput, match="has to be an https URL"):
        add(remote(local), "http://192.0.2.7/x")


@pytest.mark.parametrize("target", ["file:{home}/events/a", "command:page", "nats://b/x"])
def test_what_is_the_servers_is_for_administrators(local: EmbeddedAPI, target: str) -> None:
    local.home.server.write_text('[notifications.commands]\npage = ["/bin/true"]\n')
    named = target.format(home=local.home.root)
    with pytest.raises(Forbidden, match="sam may not send events to a"):
        add(remote(local), named)
    add(remote(local, Right.ADMINISTER), named)
    add(local, named, "mine")
    # who may change those of others may not choose another target for the server's own user
    changer = remote(local, Right.OPERATE)
    with pytest.raises(Forbidden, match="sam may not change where notification mine"):
        changer.edit_notification("mine", NotificationChange("https://192.0.2.7/x"))
    assert changer.edit_notification("mine", NotificationChange(on=("run.*",))).notification.on
    with pytest.raises(Forbidden, match=r"sam may not use the (file|command|nats)"):
        changer.test_notification("mine")


def test_a_file_is_below_an_allowed_folder(local: EmbeddedAPI, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    for path in ("/etc/events", f"{tmp_path}/a", f"{local.home.root}/secret.key"):
        with pytest.raises(InvalidInput, match=r"is not below .*/events"):
            add(local, f"file:{path}")
    local.home.server.write_text(f'[notifications]\nfolders = ["{tmp_path}"]\n')
    add(local, f"file:{tmp_path}/a")
    with pytest.raises(InvalidInput, match="is not below"):
        add(local, f"file:{tmp_path}/link/a", "other")


def test_others_have_no_notification_of_the_project(local: EmbeddedAPI) -> None:
    add(local, "https://192.0.2.7/x")
    with pytest.raises(Forbidden, match="of others in project default"):
        remote(local).pause_notification("hook")
    caller = Caller("ana", "other")
    other = EmbeddedAPI(caller=caller, backend=local.context.backend)
    assert other.notifications() == []
    viewer = Caller("vic", "default", frozenset({Right.READ}))
    seeing = EmbeddedAPI(caller=viewer, backend=local.context.backend)
    assert [one.name for one in seeing.notifications()] == ["hook"]
    with pytest.raises(Forbidden, match="vic may not add notifications"):
        add(seeing, "https://192.0.2.7/x", "mine")


def test_what_is_stored_is_encrypted_for_its_readers(local: EmbeddedAPI) -> None:
    add(local, "https://192.0.2.7/the-path?key=the-key")
    (row,) = local.store.notifications.listing("default")
    assert "the-path" not in str(row) and "the-key" not in str(row)
    local.home.secret_key.unlink()
    with pytest.raises(InvalidInput, match="is missing; without it the secrets of notification"):
        local.test_notification("hook")
