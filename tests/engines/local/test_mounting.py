"""Where the bytes of mounts are, and how nodes see them where nothing can be mounted."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.engines.local.mounting import fresh, link_mounts, place
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
    placed = place(plan, home)
    made = link_mounts(mounts, placed, home.run_dir(plan.run_id).node(rank))
    return {path: Path(link).resolve() for path, link in made.items()}


def test_places(plan_of: PlanOf, home: Home, tmp_path: Path) -> None:
    sources = [str(tmp_path), "file:///b", "volume:v", "scratch:run/s", "scratch:node/t", "s3://c"]
    plan = plan_of(mounts=[mount(s, f"/mnt/{i}") for i, s in enumerate(sources)])
    assert [m.source for m in plan.groups[0].mounts] == sources, "names stay as they are"
    run = home.run_dir("r1").path
    assert place(plan, home) == {
        str(tmp_path): tmp_path,
        "file:///b": run / "mounts" / "1",
        "volume:v": home.root / "volumes" / "v",
        "scratch:run/s": run / "scratch" / "s",
        "s3://c": run / "mounts" / "4",
    }


def test_one_place_for_a_source_that_several_use(plan_of: PlanOf, home: Home) -> None:
    groups = [{"name": n, "mounts": [mount("file:///a"), mount("s3://b", "/mnt/y")]} for n in "ab"]
    placed = place(plan_of(node_groups=groups), home)
    assert [path.name for path in placed.values()] == ["0", "1"]


@pytest.mark.parametrize(
    ("source", "shared"),
    [
        ("volume:v", True),
        ("scratch:run/s", True),
        ("scratch:node/s", False),
        ("scratch:life/s", False),
    ],
)
def test_who_shares_what(plan_of: PlanOf, home: Home, source: str, shared: bool) -> None:
    plan = plan_of(nodes=2, mounts=[mount(source)])
    first, second = (links(plan, home, rank)["/mnt/x"] for rank in range(2))
    assert (first == second) == shared
    for folder in (first, second):
        mode = 0o1777 if "life" in source else 0o700
        assert stat.S_IMODE(folder.stat().st_mode) == mode
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_what_is_there_stays(plan_of: PlanOf, home: Home) -> None:
    """A node starts again where it was."""
    plan = plan_of(mounts=[mount("scratch:node/s"), mount("volume:v", "/mnt/v")])
    for folder in links(plan, home).values():
        (folder / "file").write_text("kept")
    for folder in links(plan, home).values():
        assert (folder / "file").read_text() == "kept"


def test_a_node_that_is_new_has_nothing_yet(plan_of: PlanOf, home: Home) -> None:
    """Its folder was emptied but for the links."""
    plan = plan_of(mounts=[mount("scratch:node/s")])
    folder = links(plan, home)["/mnt/x"]
    folder.rmdir()
    assert links(plan, home)["/mnt/x"].is_dir()


def test_what_each_life_finds_empty(plan_of: PlanOf, tmp_path: Path) -> None:
    sources = ("scratch:life/a", "scratch:node/b", "scratch:run/c", "volume:d", "scratch:life/e")
    plan = plan_of(mounts=[mount(source, f"/mnt/{source[-1]}") for source in sources])
    mounts = plan.groups[0].mounts
    assert fresh(mounts, tmp_path) == [str(tmp_path / "life" / name) for name in "ae"]


def test_two_paths_to_one_directory(plan_of: PlanOf, home: Home) -> None:
    plan = plan_of(mounts=[mount("scratch:node/s"), mount("scratch:node/s", "/mnt/y")])
    assert len(set(links(plan, home).values())) == 1


def test_places_come_from_checked_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        link_mounts([MountPlan("scratch:node/..", "scratch", "/mnt/x", "X")], {}, tmp_path)  # type: ignore[arg-type]
