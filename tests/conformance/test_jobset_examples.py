"""JobSet's own examples: each runs, or is refused by name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.client.client import Client
from muster.errors import InvalidInput
from muster.spec.formats.jobset_write import write_jobset
from muster.spec.formats.manifests import read_manifest

from .jobset_examples import EXAMPLES, FOLDER, Other, Refused, Runs, name_of

#: JobSet's own, where they are at hand.
THEIRS = os.environ.get("MUSTER_JOBSET_EXAMPLES")
RUNNING = {example: said for example, said in EXAMPLES.items() if isinstance(said, Runs)}


def written(example: str, folder: Path) -> Path:
    """Our manifest of an example, as a file."""
    said = EXAMPLES[example]
    name = name_of(example)
    if isinstance(said, Other):
        found = [{"apiVersion": "v1", "kind": k, "metadata": {"name": "x"}} for k in said.kinds]
    else:
        more = (said.metadata or {}) if isinstance(said, Runs) else {}
        jobset = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name, **more},
            "spec": said.spec,
        }
        found = [*(said.beside if isinstance(said, Runs) else ()), jobset]
    marks = folder / "marks"
    marks.mkdir(exist_ok=True)
    path = folder / "manifests" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    text = yaml.safe_dump_all(found, sort_keys=False)
    path.write_text(text.replace(FOLDER, str(marks)).replace("@NAME@", name))
    return path


@pytest.mark.shows("jobset/exclusive-placement-example")
@pytest.mark.parametrize("example", EXAMPLES)
def test_it_is_read_or_refused_by_name(example: str, tmp_path: Path) -> None:
    said = EXAMPLES[example]
    files = [written(example, tmp_path), *([Path(THEIRS, f"{example}.yaml")] if THEIRS else [])]
    for file in files:
        if isinstance(said, Runs):
            write_jobset(read_manifest(file).spec)
            continue
        with pytest.raises(InvalidInput) as caught:
            read_manifest(file)
        kinds = f"there is no JobSet here, but {', '.join(getattr(said, 'kinds', ()))} ("
        assert (said.said if isinstance(said, Refused) else kinds) in str(caught.value)


def fields(data: Any, path: str = "") -> Iterator[str]:
    """Those of a manifest that say something; keys of one's own are not fields."""
    if isinstance(data, list):
        for item in data:
            yield from fields(item, path)
    elif isinstance(data, dict) and not path.endswith((".labels", ".annotations", ".nodeSelector")):
        for key, value in data.items():
            yield from fields(value, f"{path}.{key}")
    else:
        yield path


@pytest.mark.skipif(THEIRS is None, reason="the folder of JobSet's own examples")
def test_ours_have_the_fields_of_theirs(tmp_path: Path) -> None:
    assert THEIRS is not None
    found = {str(p.relative_to(THEIRS))[: -len(".yaml")] for p in Path(THEIRS).rglob("*.yaml")}
    assert found == set(EXAMPLES)
    for example, said in EXAMPLES.items():
        if isinstance(said, Other):
            continue
        texts = Path(THEIRS, f"{example}.yaml").read_text(), written(example, tmp_path).read_text()
        theirs, ours = (
            {
                field
                for data in yaml.safe_load_all(text)
                if data and data["kind"] == "JobSet"
                for field in fields(data)
            }
            for text in texts
        )
        assert theirs - ours == set(), example


@pytest.mark.slow
@pytest.mark.shows("jobset/exclusive-placement-example")
def test_those_that_can_run_do(tmp_path: Path) -> None:
    """All at once."""
    for example in RUNNING:
        written(example, tmp_path)
    environ = {**os.environ, "MUSTER_HOME": str(tmp_path / "home")}
    muster = [sys.executable, "-m", "muster"]
    command = [*muster, "run", str(tmp_path / "manifests")]
    done = subprocess.run(
        command, check=False, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1, done.stderr  # some are to fail
    runs = Client(tmp_path / "home").runs(limit=100)
    ends = {
        run.name.rpartition("-")[0]: (str(run.state), run.to_dict()["restarts"]) for run in runs
    }
    assert ends == {
        name_of(example): (said.state, said.restarts) for example, said in RUNNING.items()
    }
