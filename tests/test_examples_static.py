"""Pages and examples are correct: specs are valid, quoted files and links exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from muster import errors
from muster.plan.build import mount_variable
from muster.spec.override_models import RunOverrides
from muster.spec.reader import read_spec
from muster.spec.resolve import resolve

ROOT = Path(__file__).parent.parent
JOBS = sorted(ROOT.glob("examples/*/job.yaml"))
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")],
)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
EXAMPLE = re.compile(r"\b(examples/[\w./-]+\.\w+)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_example_is_a_job_with_a_page() -> None:
    folders = {path for path in (ROOT / "examples").iterdir() if path.is_dir()}
    # a program starts the function; manifests have other names
    others = {ROOT / "examples" / name for name in ("function", "ads", "jobset")}
    assert folders - others == {job.parent for job in JOBS}
    assert all((folder / "README.md").is_file() for folder in folders)


@pytest.mark.parametrize("job", JOBS, ids=name)
def test_every_example_can_be_run(job: Path) -> None:
    spec = resolve(read_spec(job), RunOverrides()).spec

    assert spec.description
    assert spec.artifact is not None
    code = Path(spec.artifact)
    assert (code / (spec.entrypoint or "")).is_file()
    for mount in (mount for group in spec.node_groups for mount in group.mounts):
        assert mount.source.startswith("scratch:") or Path(mount.source).is_dir()


def test_the_trainer_reads_the_variable_of_its_mount() -> None:
    folder = ROOT / "examples" / "pytorch-digits"
    (mount,) = read_spec(folder / "job.yaml").mounts
    assert mount_variable(mount.destination) in (folder / "train.py").read_text()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_pages_exist(page: Path) -> None:
    text = page.read_text()
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    missing += [
        path for path in EXAMPLE.findall(text) if "NAME" not in path and not (ROOT / path).exists()
    ]
    assert missing == []


def test_the_readme_quotes_the_example() -> None:
    (quoted,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    job = yaml.safe_load((ROOT / "examples" / "recovery" / "job.yaml").read_text())
    for key, value in yaml.safe_load(quoted).items():
        assert job[key] == value


@pytest.mark.shows("jobs/use-pipelines")
def test_every_exit_code_is_documented() -> None:
    _, _, after = (ROOT / "docs/reference/cli.md").read_text().partition("| exit code |")
    table, _, _ = after.partition("\n\n")
    documented = [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    codes = {value for key, value in vars(errors).items() if key.startswith("EXIT_")}
    assert documented == sorted(codes)
