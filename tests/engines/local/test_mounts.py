"""The folders of mount sources, and links and bind mounts to them."""

from __future__ import annotations

import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.engines.local.mounts import emptied_folders, link_mounts, source_folders
from muster.plan.model import MountPlan, RunPlan
from muster.storage.home import Home

PlanOf = Callable[..., RunPlan]


def mount(source: str, path: str = "/mnt/x") -> dict[str, str]:
    return {"source": source, "path": path}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    for rank in range(2):
        home.run_dir("r1").node(rank).mkdir(parents=True)
    return home


def links(plan: RunPlan, home: Home, rank: int = 0) -> dict[str, Path]:
    mounts = plan.groups[0].mounts
    folders = source_folders(plan, home, home)
    made = link_mounts(mounts, folders, home.run_dir(plan.run_id).node(rank))
    return {path: Path(link).resolve() for path, link in made.items()}


def test_each_kind_of_source_has_its_folder(plan_of: PlanOf, home: Home, tmp_path: Path) -> None:
    sources = [str(tmp_path), "file:///b", "volume:v", "scratch:run/s", "scratch:node/t", "s3://c"]
    plan = plan_of(mounts=[mount(s, f"/mnt/{i}") for i, s in enumerate(sources)])
    assert [m.source for m in plan.groups[0].mounts] == sources, "the plan keeps them as written"
    run = home.run_dir("r1").path
    assert source_folders(plan, home, home) == {
        str(tmp_path): tmp_path,
        "file:///b": run / "mounts" / "1",
        "volume:v": home.root / "volumes" / "v",
        "scratch:run/s": run / "scratch" / "s",
        "s3://c": run / "mounts" / "4",
    }


def test_groups_with_the_same_source_share_its_folder(plan_of: PlanOf, home: Home) -> None:
    groups = [{"name": n, "mounts": [mount("file:///a"), mount("s3://b", "/mnt/y")]} for n in "ab"]
    folders = source_folders(plan_of(node_groups=groups), home, home)
    assert [path.name for path in folders.values()] == ["0", "1"]


@pytest.mark.parametrize(
    ("source", "shared"),
    [
        ("volume:v", True),
        ("scratch:run/s", True),
        ("scratch:node/s", False),
        ("scratch:incarnation/s", False),
        ("scratch:life/s", False),
    ],
)
def test_nodes_share_volumes_and_run_scratch_only(
    plan_of: PlanOf, home: Home, source: str, shared: bool
) -> None:
    plan = plan_of(nodes=2, mounts=[mount(source)])
    first, second = (links(plan, home, rank)["/mnt/x"] for rank in range(2))
    assert (first == second) == shared
    for folder in (first, second):
        mode = 0o1777 if "incarnation" in source or "life" in source else 0o700
        assert stat.S_IMODE(folder.stat().st_mode) == mode
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_node_scratch_and_volumes_keep_their_files(plan_of: PlanOf, home: Home) -> None:
    """A restarted node finds its files."""
    plan = plan_of(mounts=[mount("scratch:node/s"), mount("volume:v", "/mnt/v")])
    for folder in links(plan, home).values():
        (folder / "file").write_text("kept")
    for folder in links(plan, home).values():
        assert (folder / "file").read_text() == "kept"


def test_node_scratch_is_created_again_for_a_new_node(plan_of: PlanOf, home: Home) -> None:
    """The links are left when its folder is cleared."""
    plan = plan_of(mounts=[mount("scratch:node/s")])
    folder = links(plan, home)["/mnt/x"]
    folder.rmdir()
    assert links(plan, home)["/mnt/x"].is_dir()


def test_only_incarnation_scratch_is_emptied(plan_of: PlanOf, tmp_path: Path) -> None:
    sources = (
        "scratch:incarnation/a",
        "scratch:node/b",
        "scratch:run/c",
        "volume:d",
        "scratch:incarnation/e",
    )
    plan = plan_of(mounts=[mount(source, f"/mnt/{source[-1]}") for source in sources])
    mounts = plan.groups[0].mounts
    assert emptied_folders(mounts, tmp_path) == [str(tmp_path / "life" / name) for name in "ae"]


def test_two_mounts_of_a_source_are_one_directory(plan_of: PlanOf, home: Home) -> None:
    plan = plan_of(mounts=[mount("scratch:node/s"), mount("scratch:node/s", "/mnt/y")])
    assert len(set(links(plan, home).values())) == 1


def test_scratch_names_cannot_leave_the_node_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        link_mounts([MountPlan("scratch:node/..", "scratch", "/mnt/x", "X")], {}, tmp_path)  # type: ignore[arg-type]


def in_namespaces(code: str, *args: str) -> str:
    """Return the output of code that runs in namespaces like those of a supervisor."""
    prelude = """
        import os, sys
        from muster.engines.local.namespaces import create_namespaces, set_up_mounts
        if not create_namespaces().namespaces:
            print("no namespaces")
            sys.exit()
        if os.fork():
            sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
        set_up_mounts()
    """
    text = textwrap.dedent(prelude) + textwrap.dedent(code)
    argv = [sys.executable, "-c", text, *args]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if done.stdout == "no namespaces\n":
        pytest.skip("the kernel refuses namespaces")
    return done.stdout


def test_mountpoints_are_created_without_changing_the_machine(tmp_path: Path) -> None:
    """Parents of missing mountpoints are overlaid; their entries stay visible."""
    base = tmp_path / "base"
    (base / "kept").mkdir(parents=True)
    (base / "kept" / "file").write_text("old")
    (base / "link").symlink_to("kept/file")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("new")
    code = """
        from pathlib import Path
        from muster.engines.local.mounts import bind_mounts
        from muster.plan.model import MountPlan
        base, data, scratch = map(Path, sys.argv[1:])
        target = str(base / "deep" / "er")
        bind_mounts([MountPlan("s", "directory", target, "V", True)], {"s": data}, scratch)
        print(open(base / "kept" / "file").read(), open(base / "link").read(),
              open(base / "deep/er/x").read())
        try:
            open(base / "deep/er/y", "w")
        except OSError as error:
            print(error.strerror)
    """
    out = in_namespaces(code, str(base), str(tmp_path / "data"), str(tmp_path / "scratch"))
    assert out == "old old new\nRead-only file system\n"
    assert not (base / "deep").exists()


@pytest.mark.parametrize("parent", ["base", "/no-such-root"])
def test_mountpoints_in_one_parent_need_one_mount_each(tmp_path: Path, parent: str) -> None:
    """The entries of the parent are mounted once, not for each mountpoint."""
    (tmp_path / "base").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("new")
    (tmp_path / "scratch").mkdir()
    code = """
        from pathlib import Path
        from muster.engines.local.mounts import bind_mounts
        from muster.plan.model import MountPlan
        parent, data, scratch = map(Path, sys.argv[1:])
        paths = [f"{parent}/{n}/deep" for n in range(50)]
        mounts = [MountPlan("s", "directory", path, "V") for path in paths]
        bind_mounts(mounts, {"s": data}, scratch)
        held = Path("/proc/self/mounts").read_text().splitlines()
        print(sum(f" {parent}/" in line for line in held), {open(f"{p}/x").read() for p in paths})
    """
    where = str(tmp_path / parent)
    out = in_namespaces(code, where, str(tmp_path / "data"), str(tmp_path / "scratch"))
    assert out == "50 {'new'}\n"


def test_a_mountpoint_can_be_created_in_the_root_directory(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("new")
    (tmp_path / "scratch").mkdir()
    code = """
        from pathlib import Path
        from muster.engines.local.mounts import bind_mounts
        from muster.plan.model import MountPlan
        data, scratch = map(Path, sys.argv[1:])
        bind_mounts([MountPlan("s", "directory", "/no-such-root/x", "V")], {"s": data}, scratch)
        print(open("/no-such-root/x/x").read(), (data / "x").read_text())
    """
    assert in_namespaces(code, str(tmp_path / "data"), str(tmp_path / "scratch")) == "new new\n"
    assert not Path("/no-such-root").exists()
