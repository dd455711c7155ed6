"""JobSet's own examples: each runs, or is refused with a reason."""

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
from muster.spec.formats.jobset.write import write_jobset
from muster.spec.formats.manifests import read_manifest

from .jobset_examples import EXAMPLES, FOLDER, Other, Refused, Runs, name_of

#: A folder with JobSet's original examples, if there is one.
ORIGINALS = os.environ.get("MUSTER_JOBSET_EXAMPLES")
RUNNING = {example: entry for example, entry in EXAMPLES.items() if isinstance(entry, Runs)}


def write_example(example: str, folder: Path) -> Path:
    """Write the rewritten manifest of an example to a file."""
    entry = EXAMPLES[example]
    name = name_of(example)
    if isinstance(entry, Other):
        found = [{"apiVersion": "v1", "kind": k, "metadata": {"name": "x"}} for k in entry.kinds]
    else:
        more = (entry.metadata or {}) if isinstance(entry, Runs) else {}
        jobset = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name, **more},
            "spec": entry.spec,
        }
        found = [*(entry.others if isinstance(entry, Runs) else ()), jobset]
    marks = folder / "marks"
    marks.mkdir(exist_ok=True)
    path = folder / "manifests" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    text = yaml.safe_dump_all(found, sort_keys=False)
    path.write_text(text.replace(FOLDER, str(marks)).replace("@NAME@", name))
    return path


@pytest.mark.shows("jobset/exclusive-placement-example")
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_read_or_refused_with_a_reason(example: str, tmp_path: Path) -> None:
    entry = EXAMPLES[example]
    files = [
        write_example(example, tmp_path),
        *([Path(ORIGINALS, f"{example}.yaml")] if ORIGINALS else []),
    ]
    for file in files:
        if isinstance(entry, Runs):
            write_jobset(read_manifest(file).spec)
            continue
        with pytest.raises(InvalidInput) as caught:
            read_manifest(file)
        kinds = f"no JobSet or Job in this file, but {', '.join(getattr(entry, 'kinds', ()))} ("
        assert (entry.message if isinstance(entry, Refused) else kinds) in str(caught.value)


def fields(data: Any, path: str = "") -> Iterator[str]:
    """The fields of a manifest, apart from labels, annotations and node selectors."""
    if isinstance(data, list):
        for item in data:
            yield from fields(item, path)
    elif isinstance(data, dict) and not path.endswith((".labels", ".annotations", ".nodeSelector")):
        for key, value in data.items():
            yield from fields(value, f"{path}.{key}")
    else:
        yield path


@pytest.mark.skipif(
    ORIGINALS is None, reason="needs MUSTER_JOBSET_EXAMPLES, the folder of JobSet's originals"
)
def test_our_examples_have_the_fields_of_the_published_ones(tmp_path: Path) -> None:
    assert ORIGINALS is not None
    found = {
        str(p.relative_to(ORIGINALS))[: -len(".yaml")] for p in Path(ORIGINALS).rglob("*.yaml")
    }
    assert found == set(EXAMPLES)
    for example, entry in EXAMPLES.items():
        if isinstance(entry, Other):
            continue
        texts = (
            Path(ORIGINALS, f"{example}.yaml").read_text(),
            write_example(example, tmp_path).read_text(),
        )
        original, rewritten = (
            {
                field
                for data in yaml.safe_load_all(text)
                if data and data["kind"] == "JobSet"
                for field in fields(data)
            }
            for text in texts
        )
        assert original - rewritten == set(), example


@pytest.mark.slow
@pytest.mark.shows("jobset/exclusive-placement-example")
def test_examples_end_in_the_expected_state(tmp_path: Path) -> None:
    """All examples run at once."""
    for example in RUNNING:
        write_example(example, tmp_path)
    environ = {**os.environ, "MUSTER_HOME": str(tmp_path / "home")}
    muster = [sys.executable, "-m", "muster"]
    command = [*muster, "run", str(tmp_path / "manifests")]
    done = subprocess.run(
        command, check=False, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1, done.stderr  # some are expected to fail
    runs = Client(tmp_path / "home").runs(limit=100)
    ends = {
        run.name.rpartition("-")[0]: (str(run.state), run.to_dict()["restarts"]) for run in runs
    }
    assert ends == {
        name_of(example): (entry.state, entry.restarts) for example, entry in RUNNING.items()
    }
