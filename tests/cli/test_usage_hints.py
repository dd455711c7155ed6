"""Invalid command lines: the error names the command probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.client.client import Client
from support.command import muster


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "job.yaml").write_text(
        "node_groups:\n- {name: workers, nodes: 2, command: hostname}\n"
    )
    (tmp_path / "url.yaml").write_text("artifact: s3://b/c.py\n")
    (tmp_path / "relative.yaml").write_text("command: python train.py\n")
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*words: str) -> str:
    done = muster(*words, code=2)
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("run job.yml", 'no such file (did you mean "job.yaml"?)'),
        ("convert job.yml", 'no such file (did you mean "job.yaml"?)'),
        ("run trian.py", '(did you mean "train.py"?)'),
        ("run hostname", "(a command comes after --: `muster run -- hostname`)"),
        ("run nosuch", "(check the path; a command comes after --: `muster run -- nosuch`)"),
        ("run no/such", "such not found (check the path)"),
        (
            "run docker://python:3",
            "TARGET: docker://python:3 not found (for an image, write a job file",
        ),
        ("run s3://b/train.py", "s3://b/train.py not found (only git repositories and local paths"),
        ("run url.yaml", "are read: mount it (mounts: [{source: s3://b/c.py}]), or copy it"),
        ("run relative.yaml", "path; on a command line, write `muster run . -- python train.py`)"),
        ("run -- --nodes", "there is no program --nodes on PATH"),
        ("run train.py --option a=1", "unknown field (remove it: the framework has no options)"),
        ("run code --entrypoint man.py", "(it holds main.py)"),
        (
            "run python train.py",
            "write `muster run train.py`, or `muster run -- python train.py` for a command",
        ),
        (
            "explain python train.py 3",
            "write `muster explain train.py -- 3`, or `muster explain -- python train.py 3` for",
        ),
        ("run train.py 3", "write its arguments after --: `muster run train.py -- 3`"),
        ("run echo a", "write a command after --: `muster run -- echo a`"),
        ("run job.yaml --gpus 2", "No such option '--gpus': write --set resources.gpus=VALUE"),
        ("run job.yaml --image=x", "No such option '--image': write --set image=VALUE"),
        ("jobs create job.yaml --dry-run", "`muster explain` with the same arguments shows what"),
        ("ls", "No such command 'ls'. Did you mean `muster ps`?"),
        ("stop train-3", "Did you mean `muster cancel train-3`?"),
        ("attach train-3", "Did you mean `muster logs train-3 --follow`?"),
        ("describe", "Did you mean `muster status RUN`?"),
        ("suspend last", "Did you mean `muster runs suspend last`?"),
        ("runs ls", "No such command 'ls'. Did you mean `muster runs list`?"),
        ("jobs dlete x", "Did you mean `muster jobs delete`?"),
        ("status", "Missing argument 'RUN'. Name a run, or write last for the newest"),
        ("ssh train-3", "Did you mean `muster shell train-3`?"),
        ("xyzzy", "No such command 'xyzzy'. `muster --help` lists them."),
        ("logs last --rank 3-1", "3-1 is an empty range; write 1-3"),
        ("logs last --rank a", "'a' is not a rank; write 3 or 3,17,40-42"),
        ("logs last --rank 0-99999999999", "a rank is less than 1,000,000"),
        ("ps -o xml", "'xml' is not one of 'json', 'yaml', 'wide'"),
        ("ps -o yaml --json", "yaml was chosen already"),
        ("run job.yaml --framework-options a=1", "write --option NAME=VALUE"),
        (
            "run train.py --epochs 3",
            "No such option '--epochs': if it is the program's, put it after --: "
            "`muster run train.py -- --epochs 3`",
        ),
        ("run --nodes 2 train.py -lr=.1", "`muster run --nodes 2 train.py -- -lr=.1`"),
        ("run --epochs 3 train.py", "write the program's arguments after --"),
        ("run train.py --node 3", "did you mean --nodes?"),
        (
            "run train.py -N 2",
            "No such option '-N': write -n N, or if it is the program's, put it after --: "
            "`muster run train.py -- -N 2`",
        ),
        ("run train.py --nproc_per_node=2", "write --processes-per-node N, or if"),
        ("run train.py --gres=gpu:2", "write --set resources.gpus=N, or if"),
        ("run train.py --mem 4G", "write --set resources.memory=4GiB, or if"),
        ("run train.py --time 1:00:00", "write --max-runtime 1h, or if"),
        ("run train.py -v a:b", "write --mount SRC:PATH, or if"),
        (
            "run train.py -it",
            "leave it out. `muster shell RUN` opens a shell in a running node. If it is the",
        ),
        ("run -f job.yaml", "name the file without an option: `muster run FILE`"),
        (
            "mpirun -np 2 hostname",
            "`muster run -n 2 -- hostname` or `muster run --framework mpi -n",
        ),
        ("mpiexec -n 2 ./a.out", "Did you mean `muster run -n 2 -- ./a.out` or"),
        ("srun -n 2 hostname", "Did you mean `muster run -n 2 -- hostname`?"),
        ("srun -N 2 -t 10 -- hostname", "Did you mean `muster run -n 2 --max-runtime 10m -- host"),
        ("srun --nosuch 1 hostname", "Did you mean `muster run -n N -- PROGRAM`?"),
        (
            "sbatch --partition=long -N2 train.py",
            "`muster run --detach --set slurm.partition=long -n 2 train.py`?",
        ),
        ("torchrun --standalone train.py --lr 1", "--framework pytorch train.py -- --lr 1`?"),
        ("run -np 2 hostname", "No such option '-np': write `muster run -n 2 -- hostname`"),
        ("run -np 2 -- hostname", "No such option '-np': write `muster run -n 2 -- hostname`"),
        ("explain -np 2 train.py 3", "write `muster explain -n 2 train.py -- 3`"),
        ("run -N 2 --name x train.py", "write `muster run -n 2 --name x train.py`"),
        ("run -N 2 -- hostname", "write `muster run -n 2 -- hostname`"),
        ("run -N two -- hostname", "write -n N\n"),
        ("run --gres=gpu:a100:2 -- hostname", "`muster run --set resources.gpus=2 -- hostname`"),
        ("run --mem 512 -- hostname", "`muster run --set resources.memory=512MiB -- hostname`"),
        ("run --walltime 1:30:00 train.py", "write `muster run --max-runtime 1h30m train.py`"),
        ("run --background train.py", "write `muster run --detach train.py`"),
        ("run --cwd /tmp -- hostname", "write `muster run --set working_dir=/tmp -- hostname`"),
        ("run -j 2x4 train.py", "write `muster run -n 2 --processes-per-node 4 train.py`"),
        ("run -m torch", "write `muster run -- python -m MODULE`\n"),
        ("run -y train.py", "leave it out: `muster run` asks nothing. Write `muster run train.py`"),
        (
            "run --rm -- hostname",
            "leave it out. `muster rm RUN` deletes a run that has ended. Write `muster run -- host",
        ),
        ("run --cloud aws -- hostname", "where nodes run. Write `muster run -- hostname`\n"),
        (
            "run --partition gpu -- hostname",
            "write `muster run --set slurm.partition=gpu -- hostname`\n",
        ),
        ("run --rdzv-backend c10d train.py", "Muster sets it. Write `muster run train.py`\n"),
        ("run --nosuch -- hostname", "'--nosuch': `muster run --help` lists the options\n"),
        ("-v run train.py", "'-v' of muster: leave it out: `muster run train.py`"),
        ("train.py", "Did you mean `muster run train.py`?"),
        ("train.py --lr 3", "Did you mean `muster run train.py -- --lr 3`?"),
        ("job.yaml --nodes 3", "Did you mean `muster run job.yaml --nodes 3`?"),
        ("restart last", "Did you mean `muster runs resume last` or `muster run JOB`?"),
        ("prun", "Did you mean `muster run` or `muster prune`?"),
        ("runs deleet", "Did you mean `muster runs delete`?"),
        ("jobs deploy", "No such command 'deploy'. `muster jobs --help` lists them."),
        ("logs last --node 0", "No such option '--node': write --rank N"),
        ("logs last --lines 5", "write --tail N"),
        ("logs last --previous", "write --attempt N"),
        ("logs last -c x", "write --group GROUP"),
        ("ps --watch", "`muster top` shows"),
        ("ps -A", "write --all"),
        ("runs list --filter a", "write --state STATE"),
        ("ps --format json", "write -o json"),
        ("status last --watch", "`muster events RUN --follow`"),
        ("events last -n 3", "`muster events RUN | tail -n N`"),
        ("rm last -f", "write --yes"),
        ("run -n 2 echo a", "write a command after --: `muster run -n 2 -- echo a`"),
        ("run last", "(last is a run: `muster status last`; run a file, a folder or a job)"),
        ("run --queue q -- hostname", "write `muster run --set kueue.queue=q -- hostname`"),
        ("run -s kubernetes -- hostname", "write `muster run --engine kubernetes -- hostname`"),
        ("run --gpu 2 -- hostname", "write `muster run --set resources.gpus=2 -- hostname`"),
        (
            "run train.py --namespace research",
            "a cluster's namespace belongs to its engine: `muster engines add kubernetes --name "
            "NAME --namespace NAMESPACE`, then `--engine NAME`, or if it is the program's",
        ),
        ("run --context gpu -- hostname", "--name NAME --context CONTEXT`, then `--engine NAME`"),
        ("run --kubeconfig f -- hostname", "--name NAME --kubeconfig FILE`, then `--engine NAME`"),
        ("port-forward last 8080", "Did you mean `muster open last --port 8080`?"),
        ("port-forward last 80:8080", "`muster open last --port 8080 --local-port 80`?"),
        ("port-forward last", "Did you mean `muster open last --port N`?"),
        ("port-forward --address 0.0.0.0 x 8080", "`muster open RUN --port 8080`?"),
        ("adopt jobset pretrain", "arguments (pretrain): write `muster adopt jobset/pretrain`"),
        ("--json ps", "'--json' of muster: write it after the command: `muster ps --json`"),
        ("help", "Did you mean `muster COMMAND --help`?"),
        ("help run", "Did you mean `muster run --help`?"),
        ("apply -f x.yaml", "Did you mean `muster run x.yaml`?"),
        ("down last", "Did you mean `muster cancel last`?"),
        ("job list", "Did you mean `muster jobs list`?"),
        ("jobs submit x", "Did you mean `muster jobs create`?"),
        ("cluster create", "Did you mean `muster cluster up`?"),
        ("cluster delete x", "Did you mean `muster cluster down`?"),
        ("prune --older-than 7", "--older-than: 7 has no unit (write 7s, 7m, 7h or 7d)"),
        ("rm --older-than 7 --yes", "7 has no unit (write 7s, 7m, 7h or 7d)"),
        pytest.param(
            "env prune --older-than 7",
            "7 has no unit (write 7s, 7m, 7h or 7d)",
            marks=pytest.mark.embedded("environments are on the machine of the server"),
        ),
        ("run job.yaml --max-runtime 10", "--max-runtime 10: 10 has no unit (write 10s, 10m"),
        ("jobs create job.yaml --max-runtime 10", "10 has no unit (write 10s, 10m, 10h or 10d)"),
        ("ps --since 1", "1 has no unit"),
        ("wait last --timeout 10", "10 has no unit"),
        ("cluster up dask --ttl 7", "7 has no unit"),
        ("simulate job.yaml --mtbf 10", "10 has no unit"),
        ("run job.yaml --option threads=2", "error: --option threads: unknown field"),
        ("run job.yaml --nodes wrokers=3", "error: --nodes wrokers=3: no group named 'wrokers'"),
        ("run job.yaml --set node_groups.0.nodes=3", "(write node_groups[0].nodes=...)"),
        ("run job.yaml --set failure.max_restart=2", 'did you mean "max_restarts"?'),
        ("run job.yaml --set failre.max_restarts=2", 'did you mean "failure"?'),
        ("run job.yaml --set framework=dask", "belongs to the job; a run cannot change it"),
        ("run code", "(choose the file to run: --entrypoint main.py; or give a command"),
    ],
)
def test_hints_name_the_intended_command(folder: Path, words: str, hint: str) -> None:
    assert hint in refused(*words.split())


def test_a_run_that_has_ended_can_be_started_again(folder: Path, client: Client) -> None:
    job, new = client.job(command=["false"])
    run = client.start(client.prepare_run(job, new_job=new)).wait()
    hint = f"`muster rerun {run.name}` runs it again"
    assert hint in refused("runs", "resume", run.name)
    again = client.start(client.prepare_run(client.job(f"{run.job_name}@1")[0]))
    assert again.wait().name == f"{run.job_name}-2"


def test_the_newest_runs_of_a_job_are_suggested(client: Client) -> None:
    for _ in range(11):
        job, new = client.job(command=["true"], name="some")
        run = client.start(client.prepare_run(job, new_job=new))
    run.wait()
    hint = "no run named 'some' (did you mean some-11 or some-10 or some-9?)"
    assert hint in refused("status", "some")


def test_missing_ranks_are_named_as_a_range(client: Client) -> None:
    job, new = client.job(command=["true"])
    client.start(client.prepare_run(job, new_job=new)).wait()
    assert "true-1 has no rank 1-99 (ranks are 0 to 0)" in refused("logs", "last", "--rank", "0-99")


def test_a_job_with_a_similar_name_is_suggested(folder: Path, client: Client) -> None:
    assert "check the path" in refused("run", "tutorail")
    job, new = client.job(command=["true"], name="tutorial")
    client.start(client.prepare_run(job, new_job=new)).wait()
    assert "tutorail not found (did you mean the job tutorial?" in refused("run", "tutorail")
