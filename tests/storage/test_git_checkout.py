"""Commits fetched from real repositories with the real git."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.spec.sources import Git
from muster.storage.git_checkout import Checkout, check_out
from muster.storage.git_program import GitFailed, Remote, explain
from support.repositories import ENV, Repository, serve


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "served" / "code")


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


def fetch(into: Path, url: str, environ: dict[str, str] | None = None, **more: str) -> Checkout:
    return check_out(Git(url=url, **more), into, environ or ENV)


def refused(into: Path, url: str, environ: dict[str, str] | None = None, **more: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        fetch(into, url, environ, **more)
    return str(caught.value)


def test_the_default_branch_is_fetched(repository: Repository, into: Path) -> None:
    commit = repository.commit(train__py="one", sub___more__py="two")
    repository("checkout", "-q", "-b", "other")
    repository.commit(train__py="other")
    repository("checkout", "-q", "main")

    found = fetch(into, repository.url)

    assert found.git == Git(url=repository.url, commit=commit)
    assert found.files == ["sub/more.py", "train.py"]
    assert (found.folder / "train.py").read_text() == "one"


@pytest.mark.parametrize("ref", ["feature/x", "v1", "light"])
def test_a_branch_or_tag_is_fetched(repository: Repository, into: Path, ref: str) -> None:
    repository.commit(train__py="main")
    repository("checkout", "-q", "-b", "feature/x")
    commit = repository.commit(train__py="feature")
    repository("tag", "-a", "v1", "-m", "v1")
    repository("tag", "light")
    repository("checkout", "-q", "main")

    found = fetch(into, repository.url, branch=ref)

    assert (found.git.branch, found.git.commit) == (ref, commit)
    assert (found.folder / "train.py").read_text() == "feature"


@pytest.mark.parametrize("digits", [40, 9])
@pytest.mark.parametrize("field", ["commit", "branch"])
def test_an_older_commit_is_fetched(
    repository: Repository, into: Path, digits: int, field: str
) -> None:
    old = repository.commit(train__py="old")
    repository.commit(train__py="new")

    found = fetch(into, repository.url, **{field: old[:digits]})

    assert found.git.commit == old
    assert (found.folder / "train.py").read_text() == "old"


def test_only_the_requested_commit_is_fetched(repository: Repository, into: Path) -> None:
    for number in range(5):
        repository.commit(train__py=str(number))

    found = fetch(into, repository.url)

    assert (found.folder / ".git" / "shallow").read_text().strip() == found.git.commit


def test_committed_files_are_code_even_if_they_are_ignored(
    repository: Repository, into: Path
) -> None:
    repository.commit(__gitignore="*.log\n", kept__log="x", train__py="")
    (repository.path / "new.py").write_text("not committed")

    assert fetch(into, repository.url).files == [".gitignore", "kept.log", "train.py"]


def test_a_folder_of_a_repository_is_fetched(repository: Repository, into: Path) -> None:
    repository.commit(train__py="", jobs___a___b__py="b")

    found = fetch(into, repository.url, path="jobs/a")

    assert found.files == ["b.py"]
    assert found.folder.name == "a"
    assert (found.folder / "b.py").read_text() == "b"


def test_a_local_path_is_fetched(repository: Repository, into: Path) -> None:
    commit = repository.commit(train__py="")
    assert fetch(into, str(repository.path)).git.commit == commit


def test_submodules_are_fetched(repository: Repository, into: Path, tmp_path: Path) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit(lib__py="lib")
    repository.commit(train__py="")
    repository("submodule", "add", "-q", inner.url, "vendor/inner")
    repository.commit()

    found = fetch(into, repository.url)

    assert found.files == [".gitmodules", "train.py", "vendor/inner/lib.py"]
    assert (found.folder / "vendor" / "inner" / "lib.py").read_text() == "lib"


def test_a_missing_submodule_is_reported(
    repository: Repository, into: Path, tmp_path: Path
) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit(lib__py="lib")
    repository.commit(train__py="")
    repository("submodule", "add", "-q", inner.url, "inner")
    repository.commit()
    inner.path.rename(tmp_path / "moved")

    assert f"a submodule of {repository.url} cannot be fetched" in refused(into, repository.url)


def test_git_variables_of_the_environment_do_not_select_a_repository(
    repository: Repository, into: Path, tmp_path: Path
) -> None:
    """They are set in git's hooks, for example, and name the repository of the hook."""
    commit = repository.commit(train__py="")
    other = Repository(tmp_path / "other")
    other.commit(other__py="")
    inside = ENV | {"GIT_DIR": f"{other.path}/.git", "GIT_WORK_TREE": str(other.path)}

    assert fetch(into, repository.url, inside).git.commit == commit


def test_hooks_are_not_run(
    repository: Repository, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(train__py="")
    hook = tmp_path / "hooks" / "post-checkout"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    config = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(hook.parent),
    }

    fetch(into, repository.url, ENV | config)

    assert not (tmp_path / "ran").exists()


# --- errors


def test_a_missing_branch_gets_a_suggestion(repository: Repository, into: Path) -> None:
    repository.commit(train__py="")
    repository("branch", "feature")
    text = refused(into, repository.url, branch="featur")
    assert text == (
        f"git.branch: {repository.url} has no branch or tag featur (did you mean feature?)"
    )


def test_a_missing_branch_gets_a_list_of_branches(repository: Repository, into: Path) -> None:
    repository.commit(train__py="")
    assert "(use main)" in refused(into, repository.url, branch="zzz")


@pytest.mark.parametrize("commit", ["0123456789" * 4, "0123456"])
def test_a_missing_commit_is_reported(repository: Repository, into: Path, commit: str) -> None:
    repository.commit(train__py="")
    text = refused(into, repository.url, commit=commit)
    assert text.startswith(f"git.commit: {repository.url} has no commit {commit} (")


def test_a_missing_folder_is_reported(repository: Repository, into: Path) -> None:
    repository.commit(jobs___train__py="")
    text = refused(into, repository.url, path="job")
    assert text == f"git.path: {repository.url} has no folder job (did you mean jobs?)"


def test_a_missing_repository_is_reported(into: Path, tmp_path: Path) -> None:
    text = refused(into, f"file://{tmp_path}/none")
    assert text.startswith(f"git.url: file://{tmp_path}/none not found, or access denied: ")


def test_a_repository_without_commits_is_reported(repository: Repository, into: Path) -> None:
    assert "has no commits" in refused(into, repository.url)


def test_an_unreachable_server_is_reported(into: Path) -> None:
    text = refused(into, "https://127.0.0.1:1/a.git")
    assert text.startswith("git.url: cannot reach https://127.0.0.1:1/a.git: ")


def test_a_link_to_the_outside_is_refused(repository: Repository, into: Path) -> None:
    (repository.path / "out").symlink_to("/etc/passwd")
    repository.commit(train__py="")
    text = refused(into, repository.url)
    assert text.startswith(f"artifact: the link out points outside {repository.url}")


def test_a_missing_git_is_reported(
    repository: Repository, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(train__py="")
    empty = into / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    text = refused(into, repository.url, ENV | {"PATH": str(empty)})
    assert text.startswith("git: the program git is not installed (install it")


# --- secrets

TOKEN = "tok/en@4711"


def test_a_token_from_the_environment_is_used_and_not_stored(
    repository: Repository, into: Path, tmp_path: Path
) -> None:
    commit = repository.commit(train__py="secret code")
    with serve(tmp_path / "served", "oauth2", TOKEN) as served:
        url = f"http://{served.address}/code/.git"
        found = fetch(into, url, ENV | {"THE_TOKEN": TOKEN}, token_env="THE_TOKEN")

    assert found.git.commit == commit
    assert found.git == Git(url=url, commit=commit, token_env="THE_TOKEN")
    assert any(given for _, given in served.seen)
    kept = [
        path for path in into.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()
    ]
    assert kept == []


@pytest.mark.parametrize("credentials", ["me:tok%2Fen%404711", "oauth2:tok%2Fen%404711"])
def test_a_password_in_the_address_is_used_and_not_stored(
    repository: Repository, into: Path, tmp_path: Path, credentials: str
) -> None:
    commit = repository.commit(train__py="")
    with serve(tmp_path / "served", credentials.partition(":")[0], TOKEN) as served:
        found = fetch(into, f"http://{credentials}@{served.address}/code/.git")
        assert found.git == Git(url=f"http://{served.address}/code/.git", commit=commit)
    config = (into / "code" if (into / "code").exists() else found.folder) / ".git" / "config"
    assert "tok" not in config.read_text()


def test_a_wrong_token_is_not_shown(repository: Repository, into: Path, tmp_path: Path) -> None:
    repository.commit(train__py="")
    with serve(tmp_path / "served", "oauth2", "other") as served:
        url = f"http://{served.address}/code/.git"
        text = refused(into, url, ENV | {"THE_TOKEN": TOKEN}, token_env="THE_TOKEN")

    assert text.startswith(f"git.url: {url} not found, or access denied: ")
    assert TOKEN not in text


def test_without_a_token_access_is_denied(
    repository: Repository, into: Path, tmp_path: Path
) -> None:
    repository.commit(train__py="")
    with serve(tmp_path / "served", "oauth2", TOKEN) as served:
        text = refused(into, f"http://{served.address}/code/.git")
    assert "not found, or access denied" in text
    assert "token_env" in text


def test_no_dialog_requests_a_password(repository: Repository, into: Path, tmp_path: Path) -> None:
    repository.commit(train__py="")
    opened = tmp_path / "opened"
    dialog = script(tmp_path / "dialog", f"echo x >> {opened}; echo {TOKEN}")
    environ = ENV | {"GIT_ASKPASS": dialog, "SSH_ASKPASS": dialog, "DISPLAY": ":0"}
    with serve(tmp_path / "served", "oauth2", TOKEN) as served:
        text = refused(into, f"http://{served.address}/code/.git", environ)
    assert "not found, or access denied" in text
    assert not opened.exists()


def script(path: Path, text: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def ssh(tmp_path: Path) -> tuple[str, Path]:
    """A PATH with an ssh that fails and appends its arguments to a file; and that file."""
    called = tmp_path / "called"
    script(tmp_path / "bin" / "ssh", f'echo "$SSH_ASKPASS_REQUIRE: $@" >> {called}; exit 255')
    return f"{tmp_path / 'bin'}:{ENV['PATH']}", called


def test_ssh_is_not_interactive(into: Path, ssh: tuple[str, Path]) -> None:
    path, called = ssh
    refused(into, "ssh://git@host/a.git", ENV | {"PATH": path})
    first = called.read_text().splitlines()[0]
    assert first.startswith("never: ")
    assert "-oBatchMode=yes -oConnectTimeout=30" in first


@pytest.mark.parametrize(
    "settings",
    [
        {"GIT_SSH_COMMAND": "ssh -oTheir=own"},
        {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "core.sshCommand",
            "GIT_CONFIG_VALUE_0": "ssh -oTheir=own",
        },
    ],
)
def test_the_user_s_settings_for_ssh_are_kept(
    into: Path, ssh: tuple[str, Path], settings: dict[str, str]
) -> None:
    path, called = ssh
    refused(into, "ssh://git@host/a.git", ENV | {"PATH": path} | settings)
    assert "-oTheir=own" in called.read_text()
    assert "BatchMode" not in called.read_text()


def test_another_program_for_ssh_is_used(into: Path, ssh: tuple[str, Path], tmp_path: Path) -> None:
    path, called = ssh
    other = script(tmp_path / "plink", f'echo "other $@" >> {called}; exit 255')
    refused(into, "ssh://git@host/a.git", ENV | {"PATH": path, "GIT_SSH": other})
    assert {line.split()[0] for line in called.read_text().splitlines()} == {"other"}


def test_a_host_unknown_to_ssh_is_reported(
    into: Path, ssh: tuple[str, Path], tmp_path: Path
) -> None:
    path, _ = ssh
    script(tmp_path / "bin" / "ssh", "echo Host key verification failed. >&2; exit 255")
    text = refused(into, "ssh://git@host/a.git", ENV | {"PATH": path})
    assert text.startswith("git.url: the host of ssh://git@host/a.git is not known to ssh (")


def test_credential_helpers_of_git_are_used(
    repository: Repository, into: Path, tmp_path: Path
) -> None:
    commit = repository.commit(train__py="")
    helper = '!f() { printf "username=me\\npassword=%s\\n" "$HELD"; }; f'
    config = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "credential.helper",
        "GIT_CONFIG_VALUE_0": helper,
        "HELD": TOKEN,
    }
    with serve(tmp_path / "served", "me", TOKEN) as served:
        found = fetch(into, f"http://{served.address}/code/.git", ENV | config)
    assert found.git.commit == commit


def test_the_token_is_on_no_command_line(
    repository: Repository, into: Path, tmp_path: Path
) -> None:
    """A wrapper of git records its arguments."""
    repository.commit(train__py="")
    real = next(p for f in os.environ["PATH"].split(":") if (p := Path(f) / "git").exists())
    spy = tmp_path / "bin" / "git"
    spy.parent.mkdir()
    spy.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\nexec {real} "$@"\n')
    spy.chmod(0o755)
    path = f"{spy.parent}:{ENV['PATH']}"
    with serve(tmp_path / "served", "oauth2", TOKEN) as served:
        url = f"http://{served.address}/code/.git"
        environ = ENV | {"THE_TOKEN": TOKEN, "PATH": path}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", path)
            fetch(into, url, environ, token_env="THE_TOKEN")

    called = (tmp_path / "called").read_text()
    assert "fetch" in called
    assert TOKEN not in called


def test_an_unset_token_variable_is_reported(repository: Repository, into: Path) -> None:
    text = refused(into, "https://127.0.0.1:1/a.git", token_env="THE_TOKEN")
    assert text == (
        "git.token_env: THE_TOKEN is not set in your environment (export THE_TOKEN=...)"
    )


NOT_READ = "fatal: Could not read from remote repository."


@pytest.mark.parametrize(
    ("stderr", "shown"),
    [
        (
            f"ssh: connect to host h port 22: Connection refused\n{NOT_READ}\n\nPlease make sure "
            "you have the correct access rights\nand the repository exists.",
            "cannot reach ssh://git@h/a: connect to host h port 22: Connection refused",
        ),
        (
            f"ssh: Could not resolve hostname h: Name or service not known\n{NOT_READ}",
            "cannot reach ssh://git@h/a: Could not resolve hostname h: Name or service not known",
        ),
        (
            "Warning: Permanently added 'h' (ED25519) to the list of known hosts.\n"
            f"git@h: Permission denied (publickey).\n{NOT_READ}",
            "ssh://git@h/a not found, or access denied: Permission denied (publickey).",
        ),
        (
            NOT_READ,
            "ssh://git@h/a cannot be cloned: Could not read from remote repository.",
        ),
    ],
)
def test_the_reason_that_ssh_gives_is_shown(stderr: str, shown: str) -> None:
    (problem,) = explain(GitFailed(stderr), Remote("ssh://git@h/a")).problems
    assert problem.message == shown
