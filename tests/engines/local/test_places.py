"""Working directories of programs, and a /tmp for each node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput
from muster.spec.reader import spec_from_mapping
from support.embedded import embedded

OWN_TMP = {"source": "scratch:incarnation/tmp", "path": "/tmp"}


@pytest.fixture(params=["namespaces", "plain"], autouse=True)
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    level: str = request.param
    if level == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    return level


def run(client: Client, script: str, **spec: Any) -> JobRun:
    """Run a script on one group of nodes. group: its other fields."""
    group = {"name": "g", "command": ["sh", "-c", script], **spec.pop("group", {})}
    job = embedded(client).prepare_job(
        spec_from_mapping({"name": "demo", "node_groups": [group], **spec})
    )
    return client.start(client.prepare_run(job.record, new_job=job.new)).wait(240)


def output(run: JobRun) -> list[str]:
    return [record.message for record in run.logs(attempt="all", streams=["stdout", "stderr"])]


def work(client: Client, run: JobRun, rank: int = 0) -> Path:
    return embedded(client).home.run_dir(run.id).work(rank)


# --- working directories


def test_a_working_dir_of_the_machine(client: Client, tmp_path: Path) -> None:
    done = run(client, "pwd", group={"working_dir": str(tmp_path)})
    assert (done.state, output(done)) == ("SUCCEEDED", [str(tmp_path)])


def test_a_working_dir_in_the_copy_of_the_code_is_created(client: Client) -> None:
    done = run(client, "pwd", group={"working_dir": "deep/er"})
    assert output(done) == [str(work(client, done) / "deep" / "er")]


@pytest.mark.parametrize("path", ["/mnt/data", "/mnt/data/new/one"])
def test_a_working_dir_in_a_mount_is_created(client: Client, path: str, tmp_path: Path) -> None:
    mount = {"source": str(tmp_path), "path": "/mnt/data"}
    done = run(client, "touch here", mounts=[mount], group={"working_dir": path})
    assert done.state == "SUCCEEDED", output(done)
    assert (tmp_path / Path(path).relative_to("/mnt/data") / "here").exists()


@pytest.mark.parametrize(
    ("name", "fault"), [("gone", "not found on this machine"), ("file", "is not a directory")]
)
def test_a_working_dir_without_a_directory_is_refused(
    client: Client, tmp_path: Path, name: str, fault: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput) as refused:
        run(client, "pwd", group={"working_dir": str(tmp_path / name)})
    (problem,) = refused.value.problems
    assert problem.path == "node_groups[g].working_dir"
    assert problem.message == f"{tmp_path}/{name} {fault}"


def test_a_working_dir_that_goes_while_the_run_restarts_fails_it(
    client: Client, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    done = run(
        client,
        f"rmdir {place}; exit 1",
        group={"working_dir": str(place)},
        failure={"max_restarts": 1, "strategy": "recreate", "backoff": {"initial": 0}},
    )
    assert done.state == "FAILED"
    assert f"working_dir: folder {place} not found on this machine" in done.details


def test_a_link_is_not_made_in_a_directory_used_in_place(client: Client, tmp_path: Path) -> None:
    mount = {"source": "scratch:run/data", "path": "/mnt/data", "link": "data"}
    with pytest.raises(InvalidInput, match=f"the link data would be created in {tmp_path} itself"):
        run(client, "true", mounts=[mount], group={"working_dir": str(tmp_path)})


def test_a_working_dir_that_cannot_be_created_fails_the_run(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    mount = {"source": str(tmp_path), "path": "/mnt/data"}
    done = run(client, "pwd", mounts=[mount], group={"working_dir": "/mnt/data/file/x"})
    assert done.state == "FAILED"
    assert "working_dir: cannot make " in done.details


@pytest.mark.parametrize("name", ["code.py", "code.sh", "code"])
def test_code_starts_in_a_working_dir_outside_its_copy(
    client: Client, name: str, tmp_path: Path
) -> None:
    text = {"code.py": "import os; print(os.getcwd())", "code.sh": "pwd", "code": "#!/bin/sh\npwd"}
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / name).write_text(text[name])
    code = {"artifact": str(tmp_path / "code" / name), "node_groups": [{"name": "g"}]}
    code["node_groups"][0]["working_dir"] = "/usr"  # type: ignore[index]
    job = embedded(client).prepare_job(spec_from_mapping({"name": "demo", **code}))
    done = client.start(client.prepare_run(job.record, new_job=job.new)).wait(240)
    assert (done.state, output(done)) == ("SUCCEEDED", ["/usr"])


# --- a /tmp for each node


def test_each_node_has_its_own_tmp(client: Client, isolation: str) -> None:
    """It works although MUSTER_HOME is below /tmp."""
    assert embedded(client).home.root.is_relative_to("/tmp")
    meet = "cd $MUSTER_MOUNT_TMP; ls | grep own; echo $NODE_RANK > own-$NODE_RANK; cat own-*"
    done = run(client, meet, mounts=[OWN_TMP], group={"nodes": 2})
    assert done.state == "SUCCEEDED", done.details
    assert sorted(output(done)) == ["0", "1"]
    where = embedded(client).home.run_dir(done.id).node(1) / "life" / "tmp"
    assert (where / "own-1").read_text() == "1\n"
    if isolation == "namespaces":
        assert not Path("/tmp/own-1").exists()


def test_programs_see_the_node_s_tmp_at_slash_tmp(client: Client, isolation: str) -> None:
    if isolation == "plain":
        pytest.skip("nothing can be mounted")
    marker = Path(f"/tmp/muster-{os.getpid()}")
    marker.touch()
    try:
        script = f"test ! -e {marker} && echo x > /tmp/new && stat -c %a /tmp && python3 -V"
        done = run(client, script, mounts=[OWN_TMP])
    finally:
        marker.unlink()
    assert (done.state, output(done)[0]) == ("SUCCEEDED", "1777"), done.details


def test_tmp_is_empty_at_the_start_of_each_incarnation(client: Client) -> None:
    """MUSTER_HOME, which is mounted below it, is not emptied."""
    script = """
        cd $MUSTER_MOUNT_TMP; test ! -e flag || exit 9
        mkdir deep; touch flag deep/file; chmod 500 deep; test $MUSTER_RESTART = 2
    """
    done = run(
        client, script, mounts=[OWN_TMP], failure={"max_restarts": 2, "strategy": "in_place"}
    )
    assert done.state == "SUCCEEDED", done.details
    assert work(client, done).is_dir()


def test_mounts_below_a_mounted_tmp_are_visible(
    client: Client, tmp_path: Path, isolation: str
) -> None:
    """Each is at its path with its files, whatever the order in the spec."""
    (tmp_path / "old").write_text("old\n")
    inside = {"source": str(tmp_path), "path": str(tmp_path)}
    cache = {"source": "scratch:node/cache", "path": "/tmp/cache"}
    script = f"cat {tmp_path}/old; echo 1 > {tmp_path}/new; cd $MUSTER_MOUNT_CACHE && pwd"
    done = run(client, script, mounts=[inside, cache, OWN_TMP])
    assert done.state == "SUCCEEDED", done.details
    assert (tmp_path / "new").read_text() == "1\n"
    assert output(done)[0] == "old"
    if isolation == "namespaces":
        assert output(done)[1] == "/tmp/cache"
        assert not Path("/tmp/cache").exists()


@pytest.mark.parametrize("kind", ["scratch:incarnation/tmp", "scratch:run/tmp"])
def test_a_mount_over_muster_home_is_refused(client: Client, kind: str) -> None:
    home = embedded(client).home.root
    with pytest.raises(InvalidInput, match="it would hide"):
        run(client, "true", mounts=[{"source": kind, "path": str(home)}])


def test_a_user_s_directory_over_the_parent_of_muster_home_is_refused(
    client: Client, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="it would hide"):
        run(client, "true", mounts=[{"source": str(tmp_path), "path": "/tmp"}])


def test_the_machine_s_tmp_can_be_mounted(client: Client, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    script = f"test -e {tmp_path}/there"
    done = run(client, script, mounts=[{"source": "/tmp", "path": "/tmp"}])
    assert (done.state, done.notes) == ("SUCCEEDED", [])


def test_mounts_that_need_namespaces_are_noted_without_them(client: Client, isolation: str) -> None:
    mounts = [OWN_TMP, {"source": "scratch:run/x", "path": "/no/x"}, {"source": "scratch:run/y"}]
    done = run(client, "true", mounts=mounts)
    where = "without namespaces nodes find scratch:"
    notes = [
        f"/tmp is this machine's: {where}incarnation/tmp at $MUSTER_MOUNT_TMP",
        f"/no/x is not there: {where}run/x at $MUSTER_MOUNT_X",
    ]
    assert list(done.notes) == (notes if isolation == "plain" else [])


def test_the_log_directory_may_be_below_a_mounted_tmp(client: Client, tmp_path: Path) -> None:
    done = run(client, "echo hi", mounts=[OWN_TMP], logging={"directory": str(tmp_path)})
    assert (done.state, output(done)) == ("SUCCEEDED", ["hi"])
