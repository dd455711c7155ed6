"""ADS's YAML: what becomes of each field, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.client.client import Client
from muster.errors import InvalidInput, Problem
from muster.spec.formats.convert import convert_file
from muster.spec.formats.manifests import read_manifest
from muster.spec.models import JobSpec
from muster.spec.overrides import changes_from_flags
from muster.spec.reader import read_spec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.py", "book.ipynb", "run.sh", "requirements.txt"):
        (tmp_path / name).touch()
    return tmp_path


def read(folder: Path, data: dict[str, Any]) -> tuple[JobSpec, tuple[str, ...]]:
    path = folder / "ads.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    manifest = read_manifest(path)
    return manifest.spec, manifest.notes


#: Where the scheduler listens, as people say it to Dask.
START_9999 = {"startOptions": ["--port 9999"]}


def distributed(kind: str = "dask", **changes: Any) -> dict[str, Any]:
    cluster = {"worker": {"replicas": 2}, **changes.pop("cluster", {})}
    runtime = {"entryPoint": "train.py", **changes.pop("runtime_spec", {})}
    return {
        "kind": "distributed",
        "apiVersion": "v1.0",
        "spec": {
            "infrastructure": {"kind": "infrastructure", "type": "dataScienceJob", "spec": {}},
            "cluster": {"kind": kind, "spec": cluster},
            "runtime": {"kind": "python", "spec": runtime, **changes.pop("runtime", {})},
        },
    }


def job(type_: str, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "job",
        "spec": {
            "name": "my job",
            "infrastructure": {
                "kind": "infrastructure",
                "type": "dataScienceJob",
                "spec": {"shapeName": "VM.Standard2.1", "compartmentId": "ocid1"},
            },
            "runtime": {"kind": "runtime", "type": type_, "spec": spec},
        },
    }


def refusals(folder: Path, data: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        read(folder, data)
    assert all(problem.source for problem in caught.value.problems), caught.value
    return {problem.path: problem.message for problem in caught.value.problems}


# --- distributed


@pytest.mark.parametrize("kind", ["dask", "RAY", "PyTorch", "tensorflow", "horovod"])
def test_each_kind_of_cluster(folder: Path, kind: str) -> None:
    spec, _ = read(folder, distributed(kind))
    assert spec.framework == kind.lower()
    assert [(g.name, g.nodes) for g in spec.node_groups] == [("main", 1), ("workers", 2)]
    assert (spec.artifact, spec.entrypoint) == (str(folder), "train.py")


def test_parameter_servers_are_a_group(folder: Path) -> None:
    spec, _ = read(folder, distributed("tensorflow", cluster={"ps": {"replicas": 3}}))
    assert [(g.name, g.nodes) for g in spec.node_groups][2] == ("ps", 3)


def test_variables_of_everybody_and_of_a_role(folder: Path) -> None:
    cluster = {
        "config": {"env": [{"name": "A", "value": 1}, {"name": "B", "value": {"x": [1]}}]},
        "worker": {"replicas": 1, "config": {"env": [{"name": "A", "value": "w"}]}},
    }
    runtime = {"env": [{"name": "C", "value": "r"}, {"name": "B", "value": "later"}]}
    spec, _ = read(folder, distributed(cluster=cluster, runtime_spec=runtime))
    said = {name: text for name, text in spec.env.items() if len(name) == 1}
    assert said == {"A": "1", "B": "later", "C": "r"}
    main, workers = spec.node_groups
    assert (main.env, workers.env) == ({"OCI__MODE": "MAIN"}, {"OCI__MODE": "WORKER", "A": "w"})


def test_programs_find_the_start_options_of_the_cluster(folder: Path) -> None:
    config = {"startOptions": ["--worker-port 8700:8800", "--x"]}
    spec, _ = read(folder, distributed("dask", cluster={"config": config}))
    assert spec.env["OCI__START_ARGS"] == "--worker-port 8700:8800 --x"
    assert "OCI__START_ARGS" not in read(folder, distributed("dask"))[0].env


def test_programs_are_told_what_adss_own_are(folder: Path) -> None:
    cluster = {"ps": {"replicas": 1}, "workDir": "oci://b@n/x"}
    runtime = {"entryPoint": "/code/train.py", "args": ["a"], "kwargs": "--b 1"}
    spec, _ = read(folder, distributed("tensorflow", cluster=cluster, runtime_spec=runtime))
    assert {name: text for name, text in spec.env.items() if name.startswith("OCI__")} == {
        "OCI__CLUSTER_TYPE": "TENSORFLOW",
        "OCI__WORKER_COUNT": "2",
        "OCI__PS_COUNT": "1",
        "OCI__EPHEMERAL": "True",
        "OCI__ENTRY_SCRIPT": "/code/train.py",
        "OCI__ENTRY_SCRIPT_ARGS": "a",
        "OCI__ENTRY_SCRIPT_KWARGS": "--b 1",
        "OCI__WORK_DIR": "oci://b@n/x",
        "OCI__SYNC_DIR": "/opt/ml",
    }
    assert [group.env["OCI__MODE"] for group in spec.node_groups] == ["MAIN", "WORKER", "PS"]
    assert [group.node_env.get("RANK") for group in spec.node_groups] == ["${rank}"] * 2 + [None]
    assert [(m.source, m.destination) for m in spec.mounts] == [("scratch:node/sync", "/opt/ml")]


@pytest.mark.shows("ads-configuration/dask-scheduler-port")
def test_the_scheduler_is_where_programs_have_it_written_in_them(folder: Path) -> None:
    assert read(folder, distributed())[0].env["DASK_SCHEDULER_PORT"] == "8786"
    env = [{"name": "DASK_SCHEDULER_PORT", "value": 9000}]
    spec, _ = read(folder, distributed(cluster={"config": {"env": env}}))
    assert spec.env["DASK_SCHEDULER_PORT"] == "9000"


def test_its_port_may_be_said_in_start_options(folder: Path) -> None:
    for where in ({"config": START_9999}, {"main": {"config": START_9999}}):
        spec, _ = read(folder, distributed(cluster=where))
        assert "DASK_SCHEDULER_PORT" not in spec.env
        assert spec.framework_options["scheduler_args"] == ["--port", "9999"]
        assert "worker_args" not in spec.framework_options, "workers have no such option"
        draft = Client(folder / "home").draft_for(folder / "ads.yaml", changes_from_flags())
        (port,) = [port for port in draft.plan.ports if port.name == "scheduler"]
        assert (port.number, port.fixed) == (9999, True)


def planned_port(folder: Path, kind: str, *variables: tuple[str, str]) -> Any:
    env = [{"name": name, "value": value} for name, value in variables]
    read(folder, distributed(kind, cluster={"config": {"env": env}}))
    draft = Client(folder / "home").draft_for(folder / "ads.yaml", changes_from_flags())
    (port,) = draft.plan.ports
    return port


@pytest.mark.shows(
    "ads-configuration/pytorch-port",
    "ads-configuration/tensorflow-port",
    "ads-configuration/tensorflow-port-changed",
)
@pytest.mark.parametrize(
    ("kind", "number", "variable"),
    [("pytorch", 29400, "MASTER_PORT"), ("tensorflow", 12345, "WORKER_PORT")],
)
def test_nodes_listen_where_it_is_documented_unless_a_variable_says_where(
    folder: Path, kind: str, number: int, variable: str
) -> None:
    port = planned_port(folder, kind)
    assert (port.number, port.preferred, port.fixed) == (number, True, False)
    port = planned_port(folder, kind, (variable, "2345"))
    assert (port.number, port.fixed) == (2345, True)


@pytest.mark.shows("ads-configuration/dask-scheduler-port", "ads-configuration/dask-dashboard-port")
def test_dask_s_ports_are_the_documented_ones(folder: Path) -> None:
    read(folder, distributed())
    draft = Client(folder / "home").draft_for(folder / "ads.yaml", changes_from_flags())
    found = {port.name: (port.number, port.fixed, port.preferred) for port in draft.plan.ports}
    assert found == {"scheduler": (8786, True, False), "dashboard": (8787, False, True)}


@pytest.mark.parametrize(("value", "refused"), [("9999", False), ("9000", True)])
def test_a_port_may_be_said_twice_but_not_differently(
    folder: Path, value: str, refused: bool
) -> None:
    env = [{"name": "DASK_SCHEDULER_PORT", "value": value}]
    data = distributed(cluster={"config": {**START_9999, "env": env}})
    if refused:
        (problem,) = drafted(folder, data)
        assert problem.message == "--port is 9999, but env.DASK_SCHEDULER_PORT is 9000"
    else:
        read(folder, data)
        Client(folder / "home").draft_for(folder / "ads.yaml", changes_from_flags())


def test_options_of_all_nodes_go_to_the_programs_that_know_them(folder: Path) -> None:
    words = ["--port 9999 --verbose --nthreads 2 --no-nanny", "--preload a.py"]
    spec, _ = read(folder, distributed(cluster={"config": {"startOptions": words}}))
    assert spec.framework_options == {
        "worker_on_main": False,
        "scheduler_args": ["--port", "9999", "--verbose", "--preload", "a.py"],
        "worker_args": ["--verbose", "--nthreads", "2", "--no-nanny", "--preload", "a.py"],
    }


def test_variables_that_dask_workers_are_started_by(folder: Path) -> None:
    env = [{"name": "nprocs", "value": 4}, {"name": "death_timeout", "value": 10}]
    own = {"replicas": 1, "config": {"env": [{"name": "nthread", "value": 2}]}}
    spec, _ = read(folder, distributed(cluster={"config": {"env": env}, "worker": own}))
    assert spec.processes_per_node == 4
    assert spec.framework_options == {
        "worker_on_main": False,
        "threads": 2,
        "worker_args": ["--death-timeout", "10"],
    }
    env = [{"name": "nprocs", "value": "many"}]
    found = refusals(folder, distributed(cluster={"config": {"env": env}}))
    assert "nprocs must be a whole number from 1, not 'many'" in found.popitem()[1]
    spec, _ = read(folder, distributed("ray", cluster={"config": {"env": env}}))
    assert spec.processes_per_node == 1, "it is Dask's"


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("/code/data/mnist.npz", "data/mnist.npz"),
        ("--data=/code/data", "--data=data"),
        ("/code", "."),
        ("/code/", "."),
        ("a:/code/b:/code", "a:b:."),
        ("/codes/x", "/codes/x"),
        ("/srv/code/x", "/srv/code/x"),
        ("./code/x", "./code/x"),
        ("oci://code/x", "oci://code/x"),
    ],
)
def test_paths_in_the_code_of_an_image(folder: Path, text: str, inside: str) -> None:
    env = [{"name": "A", "value": text}]
    runtime = {"args": [text], "env": env}
    spec, notes = read(folder, distributed(runtime_spec=runtime))
    assert (spec.args, spec.env["A"]) == ((inside,), inside)
    assert any("programs start where the code is" in note for note in notes) is (inside != text)


def test_another_folder_of_the_code(folder: Path) -> None:
    runtime = {"codeDir": "/srv/mine", "entryPoint": "/srv/mine/train.py", "args": ["/code/x"]}
    spec, _ = read(folder, distributed(runtime_spec=runtime))
    assert (spec.entrypoint, spec.args) == ("train.py", ("/code/x",))


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_cluster_that_stays(folder: Path, kind: str) -> None:
    env = [{"name": "OCI__TTL", "value": "2h"}]
    cluster = {"ephemeral": False, "config": {"env": env}}
    spec, notes = read(folder, distributed(kind, cluster=cluster))
    assert spec.command == ("python", "-m", "muster.node.keeper", "--ttl", "7200")
    assert spec.tags == {"muster-cluster": kind}
    assert [(g.name, g.replicas, g.most_replicas) for g in spec.node_groups] == [
        ("main", 1, 1),
        ("workers", 2, 16),
    ]
    assert any(note.startswith("entryPoint is not run") for note in notes)
    spec, notes = read(folder, distributed(kind, cluster={"ephemeral": False}))
    assert spec.command == ("python", "-m", "muster.node.keeper")
    assert any("the cluster stays for 30 days" in note for note in notes)
    env[0]["value"] = "soon"
    assert "OCI__TTL" in refusals(folder, distributed(kind, cluster=cluster)).popitem()[1]


def test_what_becomes_of_adss_own_variables_is_said(folder: Path) -> None:
    given = {
        "OCI__TTL": "1h",
        "TTL": "2h",
        "OCI__WORKER_COUNT": 7,
        "OCI__CLUSTER_TYPE": "DASK",
        "OCI__MAIN_IP": "1.2.3.4",
        "OCI__TIMEOUT": 60,
        "OCI__OTHER": "x",
    }
    env = [{"name": name, "value": value} for name, value in given.items()]
    cluster = {"config": {"env": env}, "ephemeral": False}
    spec, notes = read(folder, distributed(cluster=cluster))
    ours = {note for note in notes if note.startswith(("OCI__", "TTL"))}
    assert ours == {
        "OCI__TTL is 1h: the cluster ends 1h after its start, or by `muster cluster down`",
        "TTL is not used: OCI__TTL says how long the cluster stays",
        "OCI__WORKER_COUNT is 7 for programs only: the cluster goes by the YAML's fields",
        "OCI__MAIN_IP is not used: Muster sets it",
        "OCI__TIMEOUT is a variable for programs, and not read by Muster: "
        "say `ready_timeout` in a spec",
        "OCI__OTHER is a variable for programs, and not read by Muster",
    }
    assert spec.max_runtime == 4500, "should its keeper be gone"
    cluster["ephemeral"] = True
    _, notes = read(folder, distributed(cluster=cluster))
    for name in ("OCI__TTL", "TTL"):
        assert f"{name} is not used: this cluster ends with its program" in notes


def test_all_that_was_not_filled_in_comes_at_once(folder: Path) -> None:
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
    ], "what is misspelt is not missing, too"
    data = job("python", scriptPathURI="<dir>/a.py", inputs={"s3://<bucket>": "a"})
    assert {*refusals(folder, data).values()} == {
        "'<dir>/a.py' was not filled in",
        "s3://<bucket> was not filled in",
    }


def test_conversion_of_what_was_not_filled_in(folder: Path) -> None:
    runtime = {"entryPoint": "<your script>.py", "args": ["--data", "<data_path>"]}
    (folder / "ads.yaml").write_text(yaml.safe_dump(distributed(runtime_spec=runtime)))
    text, _ = convert_file(folder / "ads.yaml", None, "muster")
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert [line.split(": ")[2] for line in comments] == [
        "spec.runtime.spec.args[1]",
        "spec.runtime.spec.entryPoint",
    ]
    (folder / "job.yaml").write_text(text)
    assert read_spec(folder / "job.yaml").entrypoint == "<your script>.py"
    runtime["entryPoint"] = None  # type: ignore[assignment]
    (folder / "ads.yaml").write_text(yaml.safe_dump(distributed(runtime_spec=runtime)))
    text, _ = convert_file(folder / "ads.yaml", None, "muster")
    assert "spec.runtime.spec.entryPoint: is missing" in text, (
        "and not that there is nothing to run"
    )


def test_what_nobody_reads_need_not_be_filled_in(folder: Path) -> None:
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


def test_a_tag_that_is_no_text(folder: Path) -> None:
    tags = {"my-team": {"value": "<x>"}}
    data = job("script", scriptPathURI="train.py", freeformTags=tags)
    path = "spec.runtime.spec.freeformTags.my-team"
    assert list(refusals(folder, data)) == [path, f"{path}.value"]


def test_start_options_go_to_the_service_they_are_for(folder: Path) -> None:
    cluster = {
        "config": {"startOptions": ["--preload a.py"]},
        "worker": {"replicas": 1, "config": {"startOptions": ["--nthreads 1", "--no-nanny"]}},
    }
    spec, _ = read(folder, distributed(cluster=cluster))
    assert spec.framework_options == {
        "worker_on_main": False,
        "scheduler_args": ["--preload", "a.py"],
        "worker_args": ["--nthreads", "1", "--no-nanny"],
    }


@pytest.mark.parametrize("role", ["main", "worker", "ps", None])
def test_start_options_that_nobody_reads_are_a_note(folder: Path, role: str | None) -> None:
    said = {"config": {"startOptions": ["--verbose"]}}
    cluster = said if role is None else {role: {"replicas": 1, **said}}
    where = "config" if role is None else f"{role}.config"
    _, notes = read(folder, distributed("tensorflow", cluster=cluster))
    assert any(note.startswith(f"startOptions of {where} are not used") for note in notes)


@pytest.mark.parametrize("role", ["main", "worker", "ps"])
@pytest.mark.parametrize(
    "name", ["PROFILE", "PROFILE_CMD", "WORKSPACE", "SYNC_ARTIFACTS", "OCI__SYNC_DIR"]
)
def test_what_is_of_all_nodes_is_refused_of_one_role(folder: Path, role: str, name: str) -> None:
    env = [{"name": "A", "value": 1}, {"name": name, "value": 1}]
    cluster = {role: {"replicas": 1, "config": {"env": env}}}
    found = refusals(folder, distributed("tensorflow", cluster=cluster))
    assert list(found) == [f"spec.cluster.spec.{role}.config.env[1].name"]
    assert name in next(iter(found.values()))


def test_certificates_are_made_by_us(folder: Path) -> None:
    cluster = {
        "certificate": {"caCert": {"id": "x"}, "cert": {"id": "y"}},
        "config": {"startOptions": ["--tls-key /k --tls-cert=/c", "--verbose"]},
    }
    spec, notes = read(folder, distributed(cluster=cluster))
    assert spec.framework_options["tls"] is True
    assert spec.framework_options["scheduler_args"] == ["--verbose"]
    assert any("certificates" in note for note in notes)


def test_args_and_kwargs(folder: Path) -> None:
    runtime = {"args": [50, "a b"], "kwargs": "--epochs 3"}
    spec, _ = read(folder, distributed(runtime_spec=runtime))
    assert spec.args == ("50", "a b", "--epochs", "3")


def test_code_from_git_and_from_elsewhere(folder: Path) -> None:
    runtime = {"uri": "https://host/owner/code.git", "branch": "main", "commit": "abcdef12"}
    spec, _ = read(folder, distributed(runtime={"type": "git"}, runtime_spec=runtime))
    assert spec.git is not None
    assert (spec.git.url, spec.git.branch, spec.git.commit) == tuple(runtime.values())
    assert spec.entrypoint == "train.py"
    for entry in ("train.py", "/code/train.py", "/code/sources/train.py", "sources/train.py"):
        said = {"uri": "s3://bucket/sources", "entryPoint": entry}
        spec, _ = read(folder, distributed(runtime={"type": "remote"}, runtime_spec=said))
        assert spec.command == ("python", "/mnt/code/train.py")
        code = spec.mounts[0]
        assert (code.source, code.destination) == ("s3://bucket/sources", "/mnt/code")


PROFILED = [{"name": "PROFILE", "value": 1}, {"name": "PROFILE_CMD", "value": "nsys profile -x"}]


def test_profiling(folder: Path) -> None:
    cluster = {"config": {"env": PROFILED}}
    spec, _ = read(folder, distributed(cluster=cluster, runtime_spec={"args": ["a"]}))
    assert spec.command == ("nsys", "profile", "-x", "python", "train.py")
    assert (spec.artifact, spec.entrypoint, spec.args) == (str(folder), None, ("a",))

    runtime = {"uri": "https://host/owner/code.git"}
    data = distributed(cluster=cluster, runtime={"type": "git"}, runtime_spec=runtime)
    spec, _ = read(folder, data)
    assert spec.command == ("nsys", "profile", "-x", "python", "train.py")
    assert spec.git is not None and spec.git.url == runtime["uri"]

    spec, _ = read(folder, distributed(cluster=cluster, runtime_spec={"uri": str(folder)}))
    assert spec.command == ("nsys", "profile", "-x", "python", "train.py")
    spec, _ = read(folder, distributed(cluster=cluster, runtime_spec={"uri": "s3://bucket/code"}))
    assert spec.command == ("nsys", "profile", "-x", "python", "/mnt/code/train.py")

    missing = distributed(cluster=cluster, runtime_spec={"entryPoint": "nowhere.py"})
    assert "there is no" in refusals(folder, missing)["spec.runtime.spec.entryPoint"]


SYNCED = {"SYNC_ARTIFACTS": 1, "WORKSPACE": "s3://bucket"}


@pytest.mark.parametrize(
    ("env", "source", "where"),
    [
        ({}, "s3://bucket/sync", "/opt/ml"),
        (
            {"WORKSPACE_PREFIX": "team", "OCI__SYNC_DIR": "/mnt/out"},
            "s3://bucket/team/sync",
            "/mnt/out",
        ),
    ],
)
def test_programs_are_told_what_is_synchronised(
    folder: Path, env: dict[str, str], source: str, where: str
) -> None:
    listed = [{"name": name, "value": value} for name, value in {**SYNCED, **env}.items()]
    spec, _ = read(folder, distributed(cluster={"config": {"env": listed}}))
    assert [(m.source, m.destination) for m in spec.mounts] == [(source, where)]
    assert spec.env["OCI__SYNC_DIR"] == where


def test_what_is_synchronised_comes_beside_code_that_is_mounted(folder: Path) -> None:
    env = [{"name": name, "value": value} for name, value in SYNCED.items()]
    env.append({"name": "SYNC_SLEEP", "value": "60"})
    runtime = {"uri": "s3://bucket/code", "env": env}
    spec, notes = read(folder, distributed(runtime_spec=runtime))
    assert [m.destination for m in spec.mounts] == ["/mnt/code", "/opt/ml"]
    assert any(note.startswith("SYNC_SLEEP is not used") for note in notes)


def test_without_synchronisation_its_folder_is_a_variable_like_any_other(folder: Path) -> None:
    env = [{"name": "OCI__SYNC_DIR", "value": "/mnt/out"}]
    spec, _ = read(folder, distributed(cluster={"config": {"env": env}}))
    assert (spec.env["OCI__SYNC_DIR"], spec.mounts) == ("/mnt/out", ())


@pytest.mark.parametrize(
    ("workspace", "work_dir", "source"),
    [
        ("bucket", "oci://other@ns/x", "oci://bucket@ns/sync"),
        ("oci://bucket@ns2", "oci://other@ns/x", "oci://bucket@ns2/sync"),
        ("", "oci://other@ns/x", "oci://other@ns/x/sync"),
    ],
)
def test_where_it_is_synchronised_to(
    folder: Path, workspace: str, work_dir: str, source: str
) -> None:
    env = [{"name": "SYNC_ARTIFACTS", "value": 1}, {"name": "WORKSPACE", "value": workspace}]
    cluster = {"config": {"env": env}, "workDir": work_dir}
    spec, _ = read(folder, distributed(cluster=cluster))
    assert spec.mounts[0].source == source
    cluster["workDir"] = "/shared"
    if workspace == "bucket":
        found = refusals(folder, distributed(cluster=cluster))
        assert "WORKSPACE is no URL: 'bucket'" in found.popitem()[1]


def test_what_means_nothing_here_is_a_note(folder: Path) -> None:
    data = distributed(cluster={"image": "a/b:1", "workDir": "oci://b@n/x"})
    data["spec"]["infrastructure"]["spec"] = {"projectId": "p", "shapeName": "VM.Standard2.4"}
    _, notes = read(folder, data)
    said = "\n".join(notes)
    for what in ("projectId", "image", "workDir"):
        assert what in said


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        (distributed("mxnet"), "spec.cluster.kind", "no cluster called mxnet"),
        (
            distributed("pytorch", cluster={"ephemeral": False}),
            "spec.cluster.spec.ephemeral",
            "no client could connect",
        ),
        (
            distributed(cluster={"wrker": {"replicas": 1}}),
            "spec.cluster.spec.wrker",
            "does not read",
        ),
        (
            distributed(runtime_spec={"gitSecretId": "ocid1"}),
            "spec.runtime.spec.gitSecretId",
            "vault",
        ),
        (
            distributed(runtime_spec={"entryPoint": "nowhere.py"}),
            "spec.runtime.spec.entryPoint",
            "there is no",
        ),
        (
            job("python", scriptPathURI="train.py", entryFunction="f"),
            "spec.runtime.spec.entryFunction",
            "not single functions",
        ),
        (
            job("notebook", notebookPathURI="oci://bucket@ns/a.ipynb"),
            "spec.runtime.spec.notebookPathURI",
            "not at hand",
        ),
        (job("container", image="a/b:1"), "spec.runtime.spec.cmd", "only the image knows"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    folder: Path, data: dict[str, Any], path: str, message: str
) -> None:
    assert message in refusals(folder, data)[path]


def with_storage(data: dict[str, Any], *mounts: tuple[str, str]) -> dict[str, Any]:
    listed = [{"src": source, "dest": place} for source, place in mounts]
    data["spec"]["infrastructure"]["spec"]["storageMount"] = listed
    return data


@pytest.mark.shows("jobs/access-object-storage")
@pytest.mark.parametrize("data", [job("script", scriptPathURI="run.sh"), distributed()])
def test_storage_mounts(folder: Path, data: dict[str, Any]) -> None:
    listed = [("10.0.0.1@/export", "/data/a"), ("10.0.0.1:export", "b"), ("oci://b@n/p", "c")]
    spec, _ = read(folder, with_storage(data, *listed))
    assert [(m.source, m.destination) for m in spec.mounts if "scratch" not in m.source] == [
        ("nfs://10.0.0.1/export", "/data/a"),
        ("nfs://10.0.0.1/export", "/mnt/b"),
        ("oci://b@n/p", "/mnt/c"),
    ]
    found = refusals(folder, with_storage(data, ("ocid1.mounttarget.x:ocid1.export.y", "a")))
    assert "Oracle's cloud only" in found["spec.infrastructure.spec.storageMount[0].src"]
    found = refusals(folder, with_storage(data, ("oci://<bucket>@<ns>", "a")))
    assert "not filled in" in found["spec.infrastructure.spec.storageMount[0]"]


# --- problems that only later stages find


def drafted(folder: Path, data: dict[str, Any]) -> list[Problem]:
    """What refuses a run of it."""
    path = folder / "ads.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    client = Client(folder / "home")
    with pytest.raises(InvalidInput) as caught:
        client.draft_for(path, changes_from_flags())
    return list(caught.value.problems)


def line_of(folder: Path, text: str) -> str:
    lines = (folder / "ads.yaml").read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if text in line]
    return f"ads.yaml:{number}"


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        ("dask", ["--host", "1.2.3.4"], "--host: each node listens at its own address"),
        ("dask", ["--port none"], "--port: must be"),
        ("dask", ["--nworkers=2"], "--nworkers: each node has as many as the job says"),
        ("ray", ["--temp-dir /x"], "--temp-dir: paths of Ray's sockets"),
        ("ray", ["--port 6379 --address x"], "--address: workers are given the head's address"),
    ],
)
def test_options_of_all_nodes_are_refused_once_and_where_they_stand(
    folder: Path, kind: str, words: list[str], said: str
) -> None:
    data = distributed(kind, cluster={"config": {"startOptions": words}})
    (problem,) = drafted(folder, data)
    assert problem.message.startswith(said)
    assert problem.path == "spec.cluster.spec.config.startOptions"
    assert problem.source.endswith(line_of(folder, "startOptions"))


def test_options_of_a_role_are_refused_where_they_stand(folder: Path) -> None:
    worker = {"replicas": 1, "config": {"startOptions": ["--min-worker-port 1"]}}
    (problem,) = drafted(folder, distributed("ray", cluster={"worker": worker}))
    assert problem.path == "spec.cluster.spec.worker.config.startOptions"
    assert problem.hint.endswith("in a spec: `muster convert FILE --to muster`")


def test_a_mount_that_a_variable_names_is_refused_by_its_name(folder: Path) -> None:
    env = [{"name": name, "value": value} for name, value in SYNCED.items()]
    env[1]["value"] = "s3x://bucket"
    # whose ports are chosen, so that no other program of the machine can have them
    cluster = {"config": {"env": env}}
    (problem,) = drafted(folder, distributed("horovod", cluster=cluster))
    assert problem.path == "spec.cluster.spec.config.env[1].value"
    assert problem.message.startswith("WORKSPACE: s3x://bucket/sync: nothing knows how to read")
    assert problem.source.endswith(line_of(folder, "s3x://bucket"))


@pytest.mark.parametrize(
    ("shown", "name", "display_name"),
    [
        ("train-3.b", "train-3.b", None),
        ("My first job, with spaces", "My-first-job-with-spaces", "My first job, with spaces"),
        ("日本語", "ads", "日本語"),
        ("${LAB} 1", "x-1", "x 1"),
    ],
)
def test_what_people_call_it(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    shown: str,
    name: str,
    display_name: str | None,
) -> None:
    monkeypatch.setenv("LAB", "x")
    data = distributed()
    data["spec"]["infrastructure"]["spec"]["displayName"] = shown
    spec, _ = read(folder, data)
    assert (spec.name, spec.display_name) == (name, display_name)
    single = job("script", scriptPathURI="run.sh")
    single["spec"]["name"] = shown
    spec, _ = read(folder, single)
    assert (spec.name, spec.display_name) == (name, display_name)


def test_a_display_name_of_several_lines_is_refused_where_it_stands(folder: Path) -> None:
    data = distributed()
    data["spec"]["infrastructure"]["spec"]["displayName"] = "a\nb"
    found = refusals(folder, data)
    assert list(found) == ["spec.infrastructure.spec.displayName"]


def test_other_fields_are_refused_where_they_stand(folder: Path) -> None:
    data = with_storage(distributed(), ("s3x://a/b", "data"), ("s3x://c/d", "more"))
    data["spec"]["runtime"]["spec"]["env"] = [{"name": "DASK_SCHEDULER_PORT", "value": "x"}]
    data["spec"]["infrastructure"]["spec"]["displayName"] = "n" * 300
    found = {problem.path for problem in drafted(folder, data)}
    assert found == {"spec.infrastructure.spec.displayName"}, "a name is looked at first"
    data["spec"]["infrastructure"]["spec"]["displayName"] = "n"
    found = {problem.path for problem in drafted(folder, data)}
    storage = "spec.infrastructure.spec.storageMount"
    assert found == {f"{storage}[0].src", f"{storage}[1].src", "spec.runtime.spec.env[0].value"}
    data = job("script", scriptPathURI="run.sh", inputs={"s3x://a": "a"}, outputUri="s3x://b")
    found = {problem.path for problem in drafted(folder, data)}
    assert found == {"spec.runtime.spec.inputs.s3x://a", "spec.runtime.spec.outputUri"}


# --- jobs


@pytest.mark.shows("cluster-design/example-max-runtime")
def test_script_and_python(folder: Path) -> None:
    data = job(
        "python",
        scriptPathURI="train.py",
        args=["a", 1],
        env=[{"name": "A", "value": 1}],
        pythonPath=["lib", "more"],
        maximumRuntimeInMinutes=90,
        freeformTags={"team": "x"},
        conda={"type": "service", "slug": "s"},
    )
    spec, notes = read(folder, data)
    assert (spec.name, spec.artifact) == ("my-job", str(folder / "train.py"))
    assert spec.args == ("a", "1")
    assert spec.env == {"A": "1", "PYTHONPATH": "lib:more"}
    assert (spec.max_runtime, spec.tags) == (5400.0, {"team": "x"})
    assert any("conda" in note for note in notes)
    spec, _ = read(folder, job("script", scriptPathURI="run.sh"))
    assert spec.artifact == str(folder / "run.sh")


def test_where_a_program_starts(folder: Path) -> None:
    code = folder / "code_dir"
    (code / "sub").mkdir(parents=True)
    (code / "sub" / "a.py").touch()
    said = {"scriptPathURI": "code_dir", "pythonPath": ["lib"]}
    for entry, where, started in [
        ("code_dir/sub/a.py", None, None),  # ADS starts it beside the folder
        ("sub/a.py", "code_dir", None),
        ("a.py", "code_dir/sub", "sub"),
        ("a.py", "sub", "sub"),
        ("sub/a.py", ".", None),
    ]:
        spec, _ = read(folder, job("python", entrypoint=entry, workingDir=where, **said))
        group = spec.node_groups[0] if spec.node_groups else None
        assert spec.entrypoint == "sub/a.py", (entry, where)
        assert (group.working_dir if group else None) == started
        assert spec.env["PYTHONPATH"] == ".:lib", "modules are found where it starts"
    data = job(
        "gitPython",
        url="https://h/o/r.git",
        entrypoint="models/main.py",
        workingDir="models",
    )
    spec, _ = read(folder, data)
    assert (spec.entrypoint, spec.node_groups[0].working_dir) == ("models/main.py", "models")
    data = job(
        "pyTorchDistributed", source=".", command="torchrun a.py", replicas=2, workingDir="m"
    )
    (group,) = read(folder, data)[0].node_groups
    assert (group.name, group.nodes, group.working_dir) == ("workers", 2, "m")


def test_inputs_and_outputs_are_where_the_program_starts(folder: Path) -> None:
    data = job(
        "pyTorchDistributed",
        source=".",
        command="torchrun a.py",
        inputs={"https://h/input.txt": "data/input.txt", "oci://b@n/p": "/data"},
        outputDir="data",
        outputUri="oci://b@n/out",
    )
    spec, _ = read(folder, data)
    assert [(m.source, m.destination, m.link, m.read_only) for m in spec.mounts] == [
        ("https://h/input.txt", "/mnt/inputs", "data/input.txt", True),
        ("oci://b@n/p", "/data", None, True),
        ("oci://b@n/out", "/mnt/outputs", "data", False),
    ]
    data["spec"]["runtime"]["spec"]["outputDir"] = "."
    assert "holds the code, too" in refusals(folder, data)["spec.runtime.spec.outputDir"]


def test_a_script_from_elsewhere(folder: Path) -> None:
    spec, _ = read(folder, job("python", scriptPathURI="oci://b@n/p/a.py", args=["x"]))
    assert (spec.command, spec.args) == (("python", "/mnt/code/a.py"), ("x",))
    assert [(m.source, m.destination) for m in spec.mounts] == [("oci://b@n/p/a.py", "/mnt/code")]
    spec, _ = read(folder, job("script", scriptPathURI="oci://b@n/p", entrypoint="s/a.sh"))
    assert spec.command == ("bash", "/mnt/code/s/a.sh")


def test_what_another_type_of_runtime_has_is_a_note(folder: Path) -> None:
    _, notes = read(folder, job("script", scriptPathURI="run.sh", url="x", excludeTags=["a"]))
    said = "is not used: a runtime of type script has no such field"
    assert {f"url {said}", f"excludeTags {said}"} <= {*notes}


@pytest.mark.parametrize(
    ("command", "shell"),
    [
        ("torchrun a.py $X 'b c' \"d $X\"", "exec python a.py $X 'b c' \"d $X\""),
        ("torchrun --nproc-per-node 1 a.py '$X' \\$X", "exec python a.py '$X' \\$X"),
        ("torchrun \\\n  a.py *.csv `date` $(a|b)", "exec python a.py *.csv `date` $(a|b)"),
        ("accelerate launch a.py ~/data", "exec python a.py ~/data"),
        (["python", "a.py", "b $X", "c && d"], "python a.py \"b $X\" 'c && d'"),
        ("echo $NODE_RANK && python a.py\n", "echo $NODE_RANK && python a.py"),
        ("LEVEL=INFO python a.py", "LEVEL=INFO python a.py"),
        ("python a.py > out.txt 2>&1", "python a.py > out.txt 2>&1"),
        ("python a.py; python b.py", "python a.py; python b.py"),
        ("python a.py\npython b.py", "python a.py\npython b.py"),
        ("python a.py | tee log", "python a.py | tee log"),
        ("python a.py *.csv", "python a.py *.csv"),
        ("source env.sh", "source env.sh"),
    ],
)
def test_a_shell_has_a_command_as_it_stands(
    folder: Path, command: str | list[str], shell: str
) -> None:
    spec, _ = read(folder, job("pyTorchDistributed", source=".", command=command))
    assert spec.command == ("sh", "-c", shell)
    data = job("pyTorchDistributed", source=".", command=command, args=["--lr", "1"])
    assert "write them into the command" in str(InvalidInput(*_problems(folder, data)))


def test_a_launcher_that_a_shell_starts_is_a_note(folder: Path) -> None:
    command = "cd . && torchrun --standalone train.py"
    spec, notes = read(folder, job("pyTorchDistributed", source=".", command=command))
    assert spec.command == ("sh", "-c", command)
    assert any(note.startswith("torchrun is run on each node as it stands") for note in notes)


def test_conversion_keeps_what_is_refused_as_comments(folder: Path) -> None:
    data = job("gitPython", url="https://h/o/r.git", entrypoint="a.py", gitSecretId="ocid1")
    found = refusals(folder, data)
    assert "`muster convert FILE --to muster`" in str(InvalidInput(*_problems(folder, data)))
    text, _ = convert_file(folder / "ads.yaml", None, "muster")
    assert list(found) == ["spec.runtime.spec.gitSecretId"]
    first = text.splitlines()[0]
    assert first.startswith("# refused: ") and "spec.runtime.spec.gitSecretId: Muster" in first
    (folder / "job.yaml").write_text(text)
    assert read_spec(folder / "job.yaml").entrypoint == "a.py"
    broken = job("gitPython", entrypoint="a.py", gitSecretId="ocid1")
    (folder / "ads.yaml").write_text(yaml.safe_dump(broken))
    text, _ = convert_file(folder / "ads.yaml", None, "muster")
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert [line.split(": ", 2)[2] for line in comments[:1]] == [
        "spec.runtime.spec.url: is missing (say where the repository is)"
    ]
    assert len(comments) == 2


def _problems(folder: Path, data: dict[str, Any]) -> list[Problem]:
    with pytest.raises(InvalidInput) as caught:
        read(folder, data)
    return list(caught.value.problems)


def test_notebook(folder: Path) -> None:
    data = job("notebook", notebookPathURI="book.ipynb", excludeTags=["skip"])
    spec, _ = read(folder, data)
    assert spec.artifact == str(folder / "book.ipynb")
    assert spec.notebook is not None and spec.notebook.exclude_tags == ("skip",)


def test_git(folder: Path) -> None:
    data = job("gitPython", url="https://h/o/r.git", branch="dev", entrypoint="a/b.py")
    spec, _ = read(folder, data)
    assert spec.git is not None and (spec.git.branch, spec.entrypoint) == ("dev", "a/b.py")


@pytest.mark.parametrize(
    ("entrypoint", "cmd", "command"),
    [
        ("/bin/sh,-c", "echo a && b, c", ("/bin/sh", "-c", "echo a && b, c")),
        (["sh", "-c"], "sleep 5 && echo $A", ("sh", "-c", "sleep 5 && echo $A")),
        (None, '["python", "a.py", "x y"]', ("python", "a.py", "x y")),
        ('["python"]', ["a.py"], ("python", "a.py")),
        (["/bin/sh", "-c"], ["echo a, b"], ("/bin/sh", "-c", "echo a, b")),
        (None, "sleep 5", ("sleep", "5")),
        (None, '"python","a.py"', ("python", "a.py")),
    ],
)
def test_container(folder: Path, entrypoint: Any, cmd: Any, command: tuple[str, ...]) -> None:
    spec, notes = read(folder, job("container", image="a/b:1", entrypoint=entrypoint, cmd=cmd))
    assert (spec.command, spec.image) == (command, "a/b:1")
    assert any("image" in note for note in notes)


@pytest.mark.parametrize(
    ("command", "expected", "processes"),
    [
        ("torchrun train.py --x 1", ("python", "train.py", "--x", "1"), 1),
        ("torchrun --nproc_per_node=4 train.py", ("python", "train.py"), 4),
        ("torchrun --nproc-per-node 2 --rdzv-backend c10d a.py", ("python", "a.py"), 2),
        ("deepspeed train.py", ("python", "train.py"), 1),
        ("accelerate launch --num_processes 6 train.py", ("python", "train.py"), 2),
        ("python train.py", ("python", "train.py"), 1),
        ("python train.py 'a && b' \"c;d\"", ("python", "train.py", "a && b", "c;d"), 1),
        ("torchrun train.py 'a > b'", ("python", "train.py", "a > b"), 1),
    ],
)
def test_pytorch(folder: Path, command: str, expected: tuple[str, ...], processes: int) -> None:
    data = job("pyTorchDistributed", source=".", command=command, replicas=3)
    spec, _ = read(folder, data)
    assert (spec.framework, spec.nodes, spec.command) == ("pytorch", 3, expected)
    assert spec.processes_per_node == processes


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("torchrun --nproc_per_node=gpu a.py", "torchrun --nproc-per-node must be a number"),
        ("torchrun --nproc-per-node auto a.py", "must be a number here, not 'auto'"),
        ("torchrun --nproc-per-node=0 a.py", "must be a number here, not '0'"),
        ("torchrun --nproc-per-node=² a.py", "must be a number here, not '²'"),
        ("accelerate launch --num_processes=all a.py", "not 'all'"),
        ("accelerate launch --num_processes=3 a.py", "3 processes cannot be as many on each node"),
        ("deepspeed --num_gpus=x a.py", "not 'x'"),
        ("torchrun --tee=3 a.py", "torchrun --tee is not known here"),
        ("torchrun 'a.py", "cannot be split into words"),
        ("torchrun a.py && echo done", "torchrun is not run here, so no shell is there for '&&'"),
        ("torchrun a.py>log", "no shell is there for '>'"),
        ("torchrun a.py \"$(a '>')\" | tee log", "no shell is there for '|'"),
        ("deepspeed a.py\necho done", "no shell is there for '\\n'"),
        ("accelerate launch a.py; b", "accelerate launch is not run here"),
    ],
)
def test_what_launchers_are_told_and_cannot_be_done(folder: Path, command: str, text: str) -> None:
    data = job("pyTorchDistributed", source=".", command=command, replicas=2)
    found = refusals(folder, data)
    assert text in found["spec.runtime.spec.command"]


def requirements(folder: Path, source: str, **dependencies: str) -> tuple[str, ...] | None:
    data = job("pyTorchDistributed", source=source, command="x", dependencies=dependencies)
    return read(folder, data)[0].requirements


def test_pytorch_with_requirements(folder: Path) -> None:
    assert requirements(folder, ".", pipPackages="a>1 b") == ("a>1", "b")
    (folder / "code").mkdir()
    (folder / "code" / "more.txt").touch()
    (folder / "code" / "train.py").touch()
    more = str(folder / "code" / "more.txt")
    assert requirements(folder, "code", pipRequirements="more.txt") == (more,)
    assert requirements(folder, "file://code", pipRequirements="more.txt") == (more,)
    assert requirements(folder, "code/train.py", pipRequirements="more.txt") == (more,)
    both = {"pipRequirements": "more.txt", "pipPackages": "a>1 b"}
    assert requirements(folder, "code", **both) == (more, "a>1", "b")


def test_requirements_of_a_repository_are_in_it(folder: Path) -> None:
    data = job(
        "pyTorchDistributed",
        git={"url": "https://h/o/r.git"},
        command="x",
        dependencies={"pipRequirements": "more.txt", "pipPackages": "a"},
    )
    assert read(folder, data)[0].requirements == ("more.txt", "a")


def test_requirements_are_looked_for_in_the_code(folder: Path) -> None:
    """Not beside the YAML, where there are some."""
    (folder / "code").mkdir()
    where = "spec.runtime.spec.dependencies.pipRequirements"
    for name, text in {"requirements.txt": "there is no", "reqs.in": "is no .txt file"}.items():
        data = job(
            "pyTorchDistributed", source="code", command="x", dependencies={"pipRequirements": name}
        )
        with pytest.raises(InvalidInput) as caught:
            read(folder, data)
        (problem,) = caught.value.problems
        assert problem.path == where
        assert text in problem.message
        lines = (folder / "ads.yaml").read_text().splitlines()
        line = next(i for i, text in enumerate(lines, 1) if "pipRequirements" in text)
        assert problem.source.endswith(f"ads.yaml:{line}")


@pytest.mark.parametrize("command", ["python a.py 'x y'", ["python", "a.py", "x y"]])
def test_a_containers_command(folder: Path, command: Any) -> None:
    spec, _ = read(folder, job("container", image="a/b:1", command=command))
    assert spec.command == ("python", "a.py", "x y")
    found = refusals(folder, job("container", image="a/b:1", cmd="[python, a.py"))
    assert "no list of words" in found["spec.runtime.spec.cmd"]


def test_several_documents_are_several_jobs(folder: Path) -> None:
    text = yaml.safe_dump_all([job("script", scriptPathURI="run.sh"), distributed()])
    (folder / "two.yaml").write_text(text)
    assert read_manifest(folder / "two.yaml", "my-job").spec.name == "my-job"
    with pytest.raises(InvalidInput, match="there are 2"):
        read_manifest(folder / "two.yaml")


def test_a_spec_of_our_own_is_not_taken_for_one(tmp_path: Path) -> None:
    from muster.spec.reader import is_manifest

    assert not is_manifest("command: echo kind job\n")
    assert not is_manifest("description: |\n  kind: job\ncommand: x\n")
    assert is_manifest("kind: job\nspec: {}\n")
