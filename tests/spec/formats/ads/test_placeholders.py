"""Values of ADS YAML that were not filled in."""

from __future__ import annotations

from pathlib import Path

import yaml

from muster.spec.formats.convert import convert_file
from muster.spec.reader import read_spec
from support.ads import (
    distributed,
    job,
    read,
    refusals,
)


def test_all_placeholders_that_were_not_filled_in_are_reported(folder: Path) -> None:
    runtime = {"entryPoint": "<your script>.py", "args": ["--data", "<data_path>"]}
    data = distributed(runtime_spec=runtime)
    data["spec"]["cluster"]["spec"]["mainn"] = {}
    data["spec"]["cluster"]["spec"]["wrker"] = {"replicas": 1}
    found = refusals(folder, data)
    assert found.pop("spec.cluster.spec.wrker") == "Muster does not read this field"
    assert found == {
        "spec.runtime.spec.entryPoint": "'<your script>.py' was not filled in",
        "spec.runtime.spec.args[1]": "'<data_path>' was not filled in",
    }
    data["spec"]["runtime"]["spec"] = {"entrypoint": "train.py", "uri": "s3://<bucket>/x"}
    assert list(refusals(folder, data)) == [
        "spec.cluster.spec.wrker",
        "spec.runtime.spec.entrypoint",
        "spec.runtime.spec.uri",
    ], "a misspelled field is not also missing"
    data = job("python", scriptPathURI="<dir>/a.py", inputs={"s3://<bucket>": "a"})
    assert {*refusals(folder, data).values()} == {
        "'<dir>/a.py' was not filled in",
        "s3://<bucket> was not filled in",
    }


def test_converting_placeholders_that_were_not_filled_in(folder: Path) -> None:
    runtime = {"entryPoint": "<your script>.py", "args": ["--data", "<data_path>"]}
    (folder / "ads.yaml").write_text(yaml.safe_dump(distributed(runtime_spec=runtime)))
    text, *_ = convert_file(folder / "ads.yaml", None, "muster")
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert [line.split(": ")[2] for line in comments] == [
        "spec.runtime.spec.args[1]",
        "spec.runtime.spec.entryPoint",
    ]
    (folder / "job.yaml").write_text(text)
    assert read_spec(folder / "job.yaml").entrypoint == "<your script>.py"
    runtime["entryPoint"] = None  # type: ignore[assignment]
    (folder / "ads.yaml").write_text(yaml.safe_dump(distributed(runtime_spec=runtime)))
    text, *_ = convert_file(folder / "ads.yaml", None, "muster")
    assert "spec.runtime.spec.entryPoint: is missing" in text, "a missing program is not reported"


def test_unused_fields_need_not_be_filled_in(folder: Path) -> None:
    data = distributed(cluster={"image": "<region>.ocir.io/<image>", "workDir": "oci://<b>@<n>/x"})
    env = [{"name": "WORKSPACE", "value": "<bucket>"}, {"name": "SYNC_ARTIFACTS", "value": 0}]
    data["spec"]["runtime"]["spec"]["env"] = env
    names = {"compartmentId": "<compartment_ocid>", "logId": "{{ log_id }}", "subnetId": "<s>"}
    data["spec"]["infrastructure"]["spec"] = names
    _, notes = read(folder, data)
    assert all(any(name in note for note in notes) for name in names)
    env[1]["value"] = 1
    assert "was not filled in" in refusals(folder, data).popitem()[1]
    data["spec"]["runtime"]["spec"]["env"] = [{"name": "TOKEN", "value": "<token>"}]
    assert list(refusals(folder, data)) == ["spec.runtime.spec.env[0].value"]
    data["spec"]["runtime"]["spec"]["env"] = [{"name": "A", "value": {"a-b": {"value": "<x>"}}}]
    assert "spec.runtime.spec.env[0].value.a-b.value" in refusals(folder, data)


def test_a_tag_must_be_text(folder: Path) -> None:
    tags = {"my-team": {"value": "<x>"}}
    data = job("script", scriptPathURI="train.py", freeformTags=tags)
    path = "spec.runtime.spec.freeformTags.my-team"
    assert list(refusals(folder, data)) == [path, f"{path}.value"]
