"""Who may add which notifications."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.api.notifications import NotificationChange, NotificationRequest
from muster.caller import Caller
from muster.errors import Forbidden, InvalidInput
from muster.permissions import Right
from muster.service.embedded import EmbeddedAPI
from muster.service.notifications import create
from muster.spec.override_flags import overrides_from_flags
from muster.spec.reader import spec_from_mapping
from muster.submission import of_this_process
from support.api_runs import prepare
from support.authorities import caller_with

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
    caller = caller_with("sam", "default", MEMBER | {*more})
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
    viewer = caller_with("vic", "default", {Right.READ})
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


def test_who_is_told_by_a_spec_has_to_exist(local: EmbeddedAPI) -> None:
    def refused(notify: object) -> list[str]:
        with pytest.raises(InvalidInput) as caught:
            prepare(local, "true", notify=notify)
        return [str(one) for one in caught.value.problems]

    (text,) = refused(["chat"])
    assert text == (
        "notify.chat: project default has no notification 'chat' "
        "(`muster notify add chat TARGET` adds it)"
    )
    add(local, "https://hooks.example.com/x", "chat")
    assert prepare(local, "true", notify="chat").spec.notify == {"chat": "ended"}
    assert refused({"chta": "failed", "mail": "ended"}) == [
        "notify.chta: project default has no notification 'chta' (did you mean \"chat\"?)",
        "notify.mail: project default has no notification 'mail' (use chat)",
    ]
    # an override may add one, and turn one off
    spec = spec_from_mapping({"name": "x", "command": ["true"], "notify": {"chat": "failed"}})
    job = local.prepare_job(spec)
    for changed, then in (("never", "never"), ("succeeded", "succeeded")):
        overrides = overrides_from_flags(sets=[f"notify.chat={changed}"])
        prepared = local.prepare_run(job.record, overrides, new_job=job.new)
        assert prepared.spec.notify == {"chat": then}


def test_a_rule_of_oci_says_itself_when_it_acts(local: EmbeddedAPI) -> None:
    request = NotificationRequest("rule", "https://hooks.example.com/x", ("run.failed",))
    create(local.context, request, condition={})
    with pytest.raises(InvalidInput, match="has no notification 'rule'"):
        prepare(local, "true", notify=["rule"])
