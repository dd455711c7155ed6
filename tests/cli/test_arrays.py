"""Arrays on the command line and in Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from muster.cli.job_options import confirmed
from muster.client.api import create_job
from muster.client.api import run as start
from muster.client.client import Client
from muster.errors import InvalidInput, LargeArray
from muster.spec.override_flags import changes_from_flags
from support.command import muster, output_of

TWO_BY_HUNDRED = ("--array", "lr=0.1,0.01", "--array", "seed=0..99")


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.py"
    file.write_text("import sys\nprint(sys.argv[1:])\n")
    return file


def explained(*words: str) -> list[str]:
    return [line.strip() for line in muster("explain", *words).stdout.splitlines()]


def error(*words: str) -> str:
    (line,) = muster(*words, code=2).stderr.splitlines()
    return line.removeprefix("error: ")


def test_one_replica_is_explained() -> None:
    lines = explained("train.py", *TWO_BY_HUNDRED, "--parallelism", "4", "--", "--epochs", "3")
    assert "array: 200 parameter sets of lr, seed" in lines
    assert lines[0] == "job train: 200 replicas"
    at = lines.index("replica 0: lr=0.1 seed=0")
    assert lines[at + 1 : at + 3] == ["...", "replica 199: lr=0.01 seed=99"]
    assert (
        "group workers: 200 replicas of 1 node, 4 at once, all 200 replicas must succeed" in lines
    )
    assert not any(line.startswith("arguments that differ") for line in lines)
    assert lines[-1] == "only replica 0 of group workers is listed; the others have the same nodes"
    assert "variables: MUSTER_PARAM_LR, MUSTER_PARAM_SEED" in lines
    assert "runs train.py --epochs 3 --lr 0.1 --seed 0" in lines
    array = "node_groups[workers].array: lr=0.1,0.01 seed=0..99 (in the job: not set)"
    assert f"overridden for this run: {array}" in lines
    assert len([line for line in lines if line.split()[1:2] == ["workers"]]) == 1


def test_the_sets_of_a_sample_are_listed() -> None:
    lines = explained("train.py", "--array", "lr=uniform(0,1)", "--sample", "3")
    assert [line.partition("=")[0] for line in lines if line.startswith("replica ")] == [
        "replica 0: lr",
        "replica 1: lr",
        "replica 2: lr",
    ]
    lines = explained("train.py", "--array", "lr=uniform(0,1)", "--sample", "30")
    assert len([line for line in lines if line.startswith("replica ")]) == 11


def test_the_policy_of_an_array_is_explained() -> None:
    options = ("--parallelism", "4", "--max-failed", "3", "--only", "3-8,12")
    lines = explained("train.py", "--array", "lr=1..20", *options)
    assert [line for line in lines if line.startswith("group workers: ")] == [
        "group workers: only replicas 3-8, 12",
        "group workers: at most 4 replicas at once, in order",
        "group workers: the others are stopped when more than 3 replicas have failed",
        "group workers: 7 replicas of 1 node, 4 at once, all 7 replicas must succeed",
    ]
    assert not any("can be scaled" in line for line in lines)
    assert "replica 3: lr=4" in lines, "the first that runs"
    assert "runs train.py --lr 4" in lines


def test_a_command_gets_the_parameters_where_its_placeholders_are() -> None:
    lines = explained("--array", "lr=1,2", "--", "echo", "x=${param.lr}", "${HOME}")
    assert "runs echo x=1 '${HOME}'" in lines
    lines = explained("--array", "lr=1,2", "--", "sh", "-c", "echo ${param.lr}")
    assert "runs sh -c 'echo ${MUSTER_PARAM_LR}'" in lines


def test_a_word_of_the_command_is_named_as_it_was_typed() -> None:
    assert error("run", "--array", "lr=1,2", "--", "echo", "${lr}") == (
        "command, word 2: ${lr} is not replaced: no shell runs (write ${param.lr})"
    )
    assert error("run", "--", "echo", "-n", "${param.lr}").startswith("command, word 3: ${param.")
    assert error("run", "train.py", "--", "${param.lr}").startswith("args, word 1: ${param.lr} is")


def test_a_placeholder_can_be_text_without_an_array_too() -> None:
    assert "runs echo '${param.lr}'" in explained("--", "echo", "$${param.lr}")
    assert "${param.lr}" in muster("run", "--", "echo", "$${param.lr}").stdout


def test_a_file_of_sets(tmp_path: Path) -> None:
    (tmp_path / "sets.csv").write_text("lr,opt\n0.10,sgd\n1,adam w\n")
    lines = explained("train.py", "--array", "sets.csv", "--array", "seed=1..3")
    assert "array: 6 parameter sets of lr, opt, seed" in lines
    assert "runs train.py --lr 0.10 --opt sgd --seed 1" in lines


def test_sets_from_standard_input() -> None:
    done = muster("explain", "train.py", "--array", "-", input="file\na.txt\nb c.txt\n")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "array: 2 parameter sets of file" in lines
    done = muster("run", "train.py", "--array", "-", input="file\na.txt\n1,2\n", code=2)
    assert done.stderr.startswith("error: standard input:3: 2 values, but the header")


def test_standard_input_is_read_once() -> None:
    done = muster("run", "-", "--array", "-", input="command: 'true'\n", code=2)
    why = "standard input is TARGET already (give a file, such as --array sets.csv)"
    assert done.stderr == f"error: --array -: {why}\n"


def test_a_sample_of_the_array_of_a_job(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("artifact: train.py\narray: {lr: 1..9, seed: [007]}\n")
    muster("jobs", "create", "job.yaml")
    for target in ("job.yaml", tmp_path.name):
        lines = explained(target, "--sample", "2", "--sample-seed", "5", "--only", "1")
        assert "array: 2 parameter sets of lr, seed, a sample with seed 5" in lines
    lines = explained(tmp_path.name, "--set", "array.lr=4")
    assert "replica 0: lr=4 seed=007" in lines
    lines = explained(tmp_path.name, "--array", "x=1,2")
    assert "array: 2 parameter sets of x" in lines


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--array", "lr="], '--array lr=: has no values (write "" for an empty text)'),
        (["--array", "lr=9..1"], "--array lr=9..1: 9..1 is an empty range (write 9..1..-1)"),
        (
            ["--array", "lr=1", "--array", "lr=2"],
            "--array lr=2: lr is given twice (write all its values once)",
        ),
        (["--array", "l r=1"], "--array l r=1: 'l r' is not a valid name of a parameter "),
        (["--array", "no.csv"], "--array no.csv: no such file (did you mean"),
        (
            ["--array", "bad.csv"],
            "bad.csv:3: 1 value, but the header has 2 names: a, b (there is none for b)",
        ),
        (
            ["--array", "bad.csv", "--array", "no.csv"],
            "--array no.csv: bad.csv is a file, too (write their lines into one file, or NAME=",
        ),
        (
            ["--array", "a=0..999999", "--array", "b=1,2"],
            "--array: 2,000,000 parameter sets, 1,000,000 are allowed (give fewer values, or a ",
        ),
        (["--array", "a=uniform(0,1)"], "--array a=uniform(0,1): uniform(0,1) needs the number "),
        (["--array", "a=1,2", "--sample", "3"], "--sample 3: 3 sets cannot be drawn from 2"),
        (["--sample", "3"], "--sample 3: there is no array to draw from (add --array lr=0.1,0.01"),
        (
            ["--array", "a=1,2", "--sample-seed", "3"],
            "--sample-seed 3: is the seed of a sample, and there is none (add sample (--s",
        ),
        (["--array", "a=1,2", "--only", "2"], "--only 2: there is no replica 2: the array has 2"),
        (["--array", "a=1", "--parallelism", "0"], "--parallelism 0: must be at least 1, not 0"),
        (["--array", "a=1,2", "--max-failed", "3"], "--max-failed 3: 3 replicas may fail, but "),
        (["--array", "a=1", "--retries", "-1"], "--retries -1: must be at least 0, not -1"),
    ],
)
def test_bad_arrays(words: list[str], problem: str, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n3\n")
    assert error("run", "train.py", *words).startswith(problem)
    assert muster("ps", "--all", "--json").stdout == "[]\n"


def test_a_job_with_an_array(tmp_path: Path) -> None:
    created = muster("jobs", "create", "train.py", *TWO_BY_HUNDRED, "--parallelism", "2").stdout
    spec = Client().job(created.split()[0])[0].spec
    assert spec["array"]["parameters"] == {"lr": "0.1,0.01", "seed": "0..99"}
    assert (spec["parallelism"], spec["node_groups"]) == (2, [])


def test_an_array_of_many_sets_has_to_be_confirmed() -> None:
    many = ("--array", "a=0..199999")
    assert error("jobs", "create", "train.py", *many) == (
        "run 200,000 replicas, one for each parameter set: no terminal to confirm on (add --yes)"
    )

    def prepare(large_array: bool) -> str:
        if not large_array:
            raise LargeArray("many", sets=200_000)
        return "prepared"

    assert confirmed(prepare, yes=True) == "prepared"
    with pytest.raises(InvalidInput, match=r"\(add --yes\)"):
        confirmed(prepare, yes=False)


def test_arrays_in_python(tmp_path: Path) -> None:
    array = {"lr": [0.1, 0.01], "seed": range(100)}
    job = create_job("train.py", array=array, parallelism=4)
    assert job.spec["array"]["parameters"] == {"lr": "0.1,0.01", "seed": "0..99"}
    for many in ({"a": range(100_001)}, [{"a": n} for n in range(100_001)]):
        with pytest.raises(LargeArray, match="pass large_array=True") as refused:
            start("train.py", array=many)
        assert refused.value.sets == 100_001
        with pytest.raises(LargeArray):
            job.run(array=many)
        with pytest.raises(LargeArray):
            create_job("train.py", array=many)
    with pytest.raises(InvalidInput, match=r"array\.lr: has no values"):
        start("train.py", array={"lr": []})


def test_a_simulation_of_an_array(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: 'true'\n")
    words = ("--array", "lr=1,2,3", "--mtbf", "1000h", "--hours", "1", "--runs", "1", "--json")
    assert '"nodes": 3' in muster("simulate", "job.yaml", *words).stdout
    assert error("simulate", "job.yaml", "--array", "lr=", *words[2:]).startswith("--array lr=: ")


def test_flags_of_an_array_replace_the_one_of_the_job() -> None:
    changes = changes_from_flags(arrays=["a=1", "b=x,y"], sample=1, sample_seed=4)
    array = changes.require_valid().array
    assert array is not None
    assert (array.parameters, array.sample, array.sample_seed) == ({"a": "1", "b": "x,y"}, 1, 4)
    assert changes.parts == ()


OF_ARRAYS = (
    *("spec.arrays", "spec.array_files", "spec.parameter_rows", "spec.replica_numbers"),
    *("spec.rules.arrays", "plan.parameters"),
)


@pytest.mark.parametrize(
    "words", [["run", "--help"], ["run", "--", "true"], ["explain", "train.py"]]
)
def test_other_runs_import_nothing_of_arrays(words: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "muster", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "muster.cli.job_options" in imported
    assert imported.isdisjoint(f"muster.{name}" for name in OF_ARRAYS)


SECRET = "hunter2-4711"
#: Words after `run` or `explain`, which name a parameter whose name is that of a secret.
SECRETIVE = [
    ["--array", f"api_token={SECRET},x", "--", "true"],
    ["--array", f"api_token={SECRET},x", "--", "true", "${param.api_token}"],
    [
        "--array",
        f"api_token={SECRET},x",
        "--set",
        "node_groups[0].node_env.A=${param.api_token}",
        "--",
        "true",
    ],
    ["--array", "sets.csv", "--", "true"],
]


@pytest.mark.parametrize("words", SECRETIVE)
def test_no_command_shows_the_secret_of_a_parameter(words: list[str], script: Path) -> None:
    (script.parent / "sets.csv").write_text(f"api_token,lr\n{SECRET},1\n")
    texts = [output_of("explain", *words)]
    texts.append(output_of("explain", *words[:2], "--json", *words[2:]))
    done = muster("run", *words)
    texts += [done.stdout, done.stderr]
    for command in (
        ("runs", "show", "last", "--all"),
        ("runs", "show", "last", "--json"),
        ("runs", "table", "last"),
        ("runs", "table", "last", "--json"),
        ("runs", "table", "last", "--csv"),
        ("runs", "table", "last", "--columns", "api_token"),
        ("events", "last"),
        ("events", "last", "--json"),
        ("logs", "last"),
        ("jobs", "show", "true@1"),
        ("jobs", "show", "true@1", "--json"),
        ("status", "last"),
        ("runs", "retry", "last", "--only", "0"),
    ):
        ended = muster(*command)
        texts += [ended.stdout, ended.stderr]
    assert [text for text in texts if SECRET in text or "sealed" in text] == []
    service = Client().run("last").log_folder().parent / "service.log"
    assert SECRET not in service.read_text()


def test_convert_hides_the_secret_of_a_parameter(script: Path) -> None:
    (script.parent / "sets.csv").write_text(f"api_token,lr\n{SECRET},1\n")
    for array in (f"{{api_token: [{SECRET}, x]}}", f"[{{api_token: {SECRET}}}]", "sets.csv"):
        (script.parent / "job.yaml").write_text(f"name: a\ncommand: 'true'\narray: {array}\n")
        for kind in ("muster", "jobset"):
            done = muster("convert", "job.yaml", "--to", kind, code=0)
            assert SECRET not in done.stdout + done.stderr
