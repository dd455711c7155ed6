"""Conversion of ADS YAML that is refused."""

from __future__ import annotations

from pathlib import Path

import yaml

from muster.errors import InvalidInput
from muster.spec.formats.convert import convert_file
from muster.spec.reader import read_spec
from support.ads import (
    job,
    problems_of,
    refusals,
)


def test_conversion_keeps_refused_fields_as_comments(folder: Path) -> None:
    data = job("gitPython", url="https://h/o/r.git", entrypoint="a.py", gitSecretId="ocid1")
    found = refusals(folder, data)
    assert "`muster convert FILE --to muster`" in str(InvalidInput(*problems_of(folder, data)))
    text, *_ = convert_file(folder / "ads.yaml", None, "muster")
    assert list(found) == ["spec.runtime.spec.gitSecretId"]
    first = text.splitlines()[0]
    assert first.startswith("# refused: ") and "spec.runtime.spec.gitSecretId: Muster" in first
    (folder / "job.yaml").write_text(text)
    assert read_spec(folder / "job.yaml").entrypoint == "a.py"
    broken = job("gitPython", entrypoint="a.py", gitSecretId="ocid1")
    (folder / "ads.yaml").write_text(yaml.safe_dump(broken))
    text, *_ = convert_file(folder / "ads.yaml", None, "muster")
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert [line.split(": ", 2)[2] for line in comments[:1]] == [
        "spec.runtime.spec.url: is missing (name the repository)"
    ]
    assert len(comments) == 2
